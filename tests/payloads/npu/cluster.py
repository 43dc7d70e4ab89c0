"""A whole cluster as programs on loopback, and a client of it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import grpc
from npuforge import channels, rpc
from npuforge import npuforge_pb2 as pb

PAYLOADS = Path(__file__).resolve().parents[3] / "payloads"
MODEL = "yolov8n"
IMAGE_BYTES = 640 * 640 * 3
# A busy host starts a program in seconds, not in a moment.
PATIENCE_S = 60.0

Tables = Mapping[str, Mapping[str, object]]


def image_of(seed: int) -> bytes:
    """An image of the size that the model takes; none of another seed (below 251) is the same."""
    row = bytes((seed * 37 + index) % 251 for index in range(251))
    return (row * (IMAGE_BYTES // 251 + 1))[:IMAGE_BYTES]


def request(seed: int = 1, **fields: Any) -> pb.InferRequest:
    """A good request, but for what is said otherwise."""
    whole = {"request_id": f"r{seed}", "model_id": MODEL, "payload": image_of(seed), "input_format": 3, **fields}
    return pb.InferRequest(**whole)


def free_port() -> int:
    """A port that nobody has now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def until(check: Callable[[], Any], what: str, patience_s: float = PATIENCE_S) -> Any:
    """What `check` returns as soon as it is true."""
    end = time.monotonic() + patience_s
    while True:
        found = check()
        if found:
            return found
        assert time.monotonic() < end, f"not in time: {what}"
        time.sleep(0.05)


def write_toml(path: Path, tables: Tables) -> Path:
    """A config file."""
    lines = []
    for name, keys in tables.items():
        lines.append(f"[{name}]")
        lines += [f"{key} = {json.dumps(value)}" for key, value in keys.items()]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def merged(base: Tables, over: Tables) -> dict[str, dict[str, object]]:
    """`base` with the keys of `over`."""
    return {name: {**base.get(name, {}), **over.get(name, {})} for name in {**base, **over}}


class Program:
    """One program of the cluster; `within`: words before its command line that put it somewhere else."""

    def __init__(self, name: str, config: Path, log: Path, within: tuple[str, ...] = ()) -> None:
        self.log = log
        # PYTHONPATH would hide a library that the program does not find by itself.
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        with log.open("ab") as stream:
            self.process = subprocess.Popen(
                [*within, sys.executable, str(PAYLOADS / name / "main.py"), "--config", str(config)],
                stdout=stream,
                stderr=stream,
                env=environment,
            )

    def says(self) -> str:
        """All that it has logged."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def end(self, number: int = signal.SIGTERM) -> int:
        """Sends a signal and waits; the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)


class Cluster:
    """A scheduler and nodes; `start` waits until all nodes are in service."""

    def __init__(self, folder: Path, scheduler: Tables | None = None) -> None:
        self.folder = folder
        self.port, self.http_port = free_port(), free_port()
        base: Tables = {
            "server": {"grpc_listen": f"127.0.0.1:{self.port}", "http_listen": f"127.0.0.1:{self.http_port}"},
            "scheduler": {"policy": "round-robin"},
            "transport": {"security": "plaintext"},
        }
        self.scheduler_settings = merged(base, scheduler or {})
        self.scheduler: Program | None = None
        self.nodes: dict[str, Program] = {}
        self.channel = grpc.insecure_channel(self.address, options=channels.client_options())

    @property
    def address(self) -> str:
        """Where the scheduler is."""
        return f"127.0.0.1:{self.port}"

    def start(self, names: tuple[str, ...] = ("jack", "king", "queen"), node: Tables | None = None) -> None:
        """Starts all, and waits until the nodes are candidates."""
        self.start_scheduler()
        for name in names:
            self.start_node(name, node)
        self.wait_for(*names)

    def start_scheduler(self) -> Program:
        """Starts the scheduler and waits until it answers."""
        config = write_toml(self.folder / "scheduler.toml", self.scheduler_settings)
        self.scheduler = Program("npu-scheduler", config, self.folder / "scheduler.log")
        until(self._healthy, "the scheduler answers")
        return self.scheduler

    def _healthy(self) -> bool:
        assert self.scheduler is not None
        assert self.scheduler.process.poll() is None, self.scheduler.says()
        try:
            return self.page("/healthz") == "ok\n"
        except OSError:
            return False

    def start_node(self, name: str, settings: Tables | None = None) -> Program:
        """Starts a node; does not wait."""
        base: Tables = {
            "node": {
                "id": name,
                "scheduler_address": self.address,
                "listen": f"127.0.0.1:{free_port()}",
            },
            "transport": {"security": "plaintext"},
            "backend": {"type": "virtual", "zero_time": True},
            "models": {"model_id": MODEL, "warmup_runs": 2},
            "telemetry": {"heartbeat_interval_ms": 200, "temperature_path": str(self.folder / f"{name}.temp")},
        }
        config = write_toml(self.folder / f"{name}.toml", merged(base, settings or {}))
        self.nodes[name] = Program("npu-node", config, self.folder / f"{name}.log")
        return self.nodes[name]

    def heat(self, name: str, celsius: float) -> None:
        """What the node's temperature file says from now on."""
        partial = self.folder / f"{name}.temp.partial"
        partial.write_text(f"{int(celsius * 1000)}\n", encoding="ascii")
        partial.replace(self.folder / f"{name}.temp")

    def wait_for(self, *names: str) -> None:
        """Waits until exactly these nodes are candidates."""
        until(lambda: self.candidates() == set(names), f"{names} are in service; {self.logs()}")

    def candidates(self) -> set[str]:
        """The nodes that may have requests."""
        return {node.descriptor.node_id for node in self.list_nodes().nodes if not node.excluded_because}

    def logs(self) -> str:
        """What all programs have said."""
        return "\n".join(path.read_text(errors="replace") for path in sorted(self.folder.glob("*.log")))

    def page(self, path: str) -> str:
        """A page of the scheduler."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http_port}{path}", timeout=10) as answer:
            return str(answer.read().decode())

    def call(self, name: str, message: Any, timeout_s: float = 30.0) -> Any:
        """One RPC of the scheduler."""
        return unary(self.channel, rpc.SCHEDULER[name], message, timeout_s)

    def infer(self, seed: int = 1, **fields: Any) -> Any:
        """One inference."""
        return self.call("Infer", request(seed, **fields))

    def list_nodes(self) -> Any:
        """ListNodes."""
        return self.call("ListNodes", pb.ListNodesRequest())

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.channel.close()
        programs = [*self.nodes.values(), *([self.scheduler] if self.scheduler else [])]
        for program in programs:
            if program.process.poll() is None:
                program.process.send_signal(signal.SIGTERM)
        for program in programs:
            try:
                program.process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                program.process.kill()
                program.process.wait()


def unary(channel: Any, method: Any, message: Any, timeout_s: float = 30.0) -> Any:
    """One RPC on a channel."""
    call = channel.unary_unary(
        method.path,
        request_serializer=method.request.SerializeToString,
        response_deserializer=method.response.FromString,
    )
    return call(message, timeout=timeout_s)
