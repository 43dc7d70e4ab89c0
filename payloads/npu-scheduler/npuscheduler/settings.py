"""The scheduler's config file: the rig's tables and keys, and ours for security and the trap."""

import collections

from npuforge import channels
from npuforge.config import ConfigError, load_config
from npuforge.transport import KEYS, check_engine

POLICIES = ("round-robin", "least-queue", "ect")

TABLES = {
    "server": {
        "grpc_listen": (str, "0.0.0.0:50051"),
        "http_listen": (str, "0.0.0.0:8080"),
        "metrics_listen": (str, ""),
        "max_payload_bytes": (int, channels.MAX_PAYLOAD_BYTES),
    },
    "scheduler": {
        "policy": (str, "ect"),
        "request_timeout_ms": (int, 5000),
        "node_rpc_timeout_ms": (int, 3000),
        "max_retries": (int, 1),
        "retry_backoff_min_ms": (int, 10),
        "retry_backoff_max_ms": (int, 100),
        "queue_timeout_ms": (int, 3000),
        # The trap: nodes are judged as their last heartbeat left them. Never for a measurement.
        "stale": (bool, False),
    },
    "transport": {
        **KEYS,
        "node_connections": (int, 2),
        "h2_stream_window_bytes": (int, 0),
        "h2_connection_window_bytes": (int, 0),
    },
    "health": {
        "interval_ms": (int, 2000),
        "timeout_ms": (int, 1000),
        "failures_to_unreachable": (int, 3),
        "successes_to_healthy": (int, 3),
    },
    "thresholds": {
        "busy_queue_depth": (int, 8),
        "degraded_error_rate": (float, 0.10),
        "degraded_temperature_c": (float, 80.0),
        "disable_temperature_c": (float, 90.0),
    },
    "telemetry": {
        "clock_interval_ms": (int, 5000),
    },
}

HealthRules = collections.namedtuple(
    "HealthRules",
    "interval_s timeout_s failures_to_unreachable successes_to_healthy "
    "busy_queue_depth degraded_error_rate degraded_temperature_c disable_temperature_c",
)


def load_settings(path):
    """The settings as {table: {key: value}}. ConfigError for what cannot be meant."""
    settings = load_config(path, TABLES)
    check_engine(settings["transport"]["engine"])
    scheduler, transport = settings["scheduler"], settings["transport"]
    if scheduler["policy"] not in POLICIES:
        raise ConfigError(f"{path}: [scheduler] policy is '{scheduler['policy']}'; it can be {', '.join(POLICIES)}")
    if not 1 <= transport["node_connections"] <= 64:
        raise ConfigError(f"{path}: [transport] node_connections must be 1 to 64")
    for table, key in (("scheduler", "request_timeout_ms"), ("scheduler", "node_rpc_timeout_ms"),
                       ("health", "interval_ms"), ("health", "failures_to_unreachable"),
                       ("health", "successes_to_healthy"), ("telemetry", "clock_interval_ms")):  # fmt: skip
        if settings[table][key] < 1:
            raise ConfigError(f"{path}: [{table}] {key} must be at least 1")
    if scheduler["retry_backoff_min_ms"] > scheduler["retry_backoff_max_ms"]:
        raise ConfigError(f"{path}: [scheduler] retry_backoff_min_ms is above retry_backoff_max_ms")
    if not 0 < settings["server"]["max_payload_bytes"] <= channels.MAX_PAYLOAD_BYTES:
        raise ConfigError(f"{path}: [server] max_payload_bytes must be 1 to {channels.MAX_PAYLOAD_BYTES}")
    return settings


def health_rules(settings):
    """What decides a node's state."""
    health = settings["health"]
    return HealthRules(
        health["interval_ms"] / 1000,
        health["timeout_ms"] / 1000,
        health["failures_to_unreachable"],
        health["successes_to_healthy"],
        **settings["thresholds"],
    )
