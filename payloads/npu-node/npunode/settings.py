"""The agent's config file: the rig's tables and keys, and ours for security and the backends."""

from npuforge.config import REQUIRED, ConfigError, load_config
from npuforge.transport import KEYS, check_engine

TABLES = {
    "node": {
        "id": (str, REQUIRED),
        "scheduler_address": (str, REQUIRED),
        "listen": (str, "0.0.0.0:51001"),
        "advertise_address": (str, ""),
        "device_type": (str, "nanopi-r76s"),
        "npu_type": (str, "rk3576"),
        "npu_core_count": (int, 2),
        # How long requests that are here may take to end after SIGTERM.
        "drain_ms": (int, 5000),
    },
    "transport": KEYS,
    "worker": {
        "worker_count": (int, 8),
        "max_queue_depth": (int, 32),
        "queue_timeout_ms": (int, 3000),
        "want_float": (bool, False),
    },
    "backend": {
        "type": (str, REQUIRED),
        # Of the NPU that another process still holds.
        "start_patience_ms": (int, 30_000),
        "virtual_root": (str, "/"),
        "constants_file": (str, ""),
        "zero_time": (bool, False),
        "seed": (int, 1),
    },
    "models": {
        "directory": (str, ""),
        "model_id": (str, "yolov8n"),
        "version": (str, "1"),
        "file": (str, ""),
        "sha256": (str, ""),
        "warmup_runs": (int, 3),
    },
    "telemetry": {
        "heartbeat_interval_ms": (int, 1000),
        "temperature_path": (str, "auto"),
    },
}


def load_settings(path):
    """The settings as {table: {key: value}}. ConfigError for what cannot be meant."""
    settings = load_config(path, TABLES)
    check_engine(settings["transport"]["engine"])
    node, worker = settings["node"], settings["worker"]
    if not node["id"] or len(node["id"]) > 64:
        raise ConfigError(f"{path}: [node] id must have 1 to 64 characters")
    host = node["listen"].rpartition(":")[0]
    if not node["advertise_address"] and host in ("", "0.0.0.0", "[::]"):
        raise ConfigError(f"{path}: [node] advertise_address is needed: {node['listen']} is no address to call")
    if not 1 <= worker["worker_count"] <= 64:
        raise ConfigError(f"{path}: [worker] worker_count must be 1 to 64, not {worker['worker_count']}")
    if settings["telemetry"]["heartbeat_interval_ms"] < 50:
        raise ConfigError(f"{path}: [telemetry] heartbeat_interval_ms must be at least 50")
    return settings
