"""A cluster on cables under load, and what befalls its nodes: `python -m ...strikes OUT PLAN` (in `cables.ALONE`).

PLAN is `{"engine", "policy", "strikes": [{"kind", "node", "after_s", "for_s"}], "lets_go_s"}` as JSON. It leaves
`OUT/strikes.json`: each strike with its moments (monotonic clock), and all that scheduler and nodes have counted.
"""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import grpc
from npuforge import channels, rpc
from npuforge import npuforge_pb2 as pb

from . import cables
from .cluster import MODEL, PAYLOADS, Program, unary, until, write_toml
from .test_backends import board as board_files

NAMES = ("jack", "king", "queen")
NODE_PORT, PORT, HTTP_PORT = 51001, 50051, 8080
CLIENTS = 12
CONNECTIONS = 2
# A node has three times what it needs on a busy host; more than a test's limit, so that it is told and not cut off.
BACK_S = 45.0
SERVED = 3
LOOK_S = 0.02


class Node:
    """A board with an agent; its boots, and what each life of its agent has served."""

    def __init__(self, name: str, number: int, folder: Path, engine: str) -> None:
        self.name, self.board = name, cables.Board(name, number)
        self._folder = folder / name
        self._boot_id = board_files(self._folder, 2_208_000) / "proc/sys/kernel/random/boot_id"
        self._boot_id.parent.mkdir(parents=True)
        self.address = f"{self.board.address}:{NODE_PORT}"
        constants = json.loads((PAYLOADS / "npu-node/npunode/virtual_constants.json").read_text())
        # Slow enough for a small host to carry the bytes of all nodes.
        (self._folder / "constants.json").write_text(json.dumps({**constants, "npu_ms": 80.0}))
        tables = {
            "node": {"id": name, "scheduler_address": f"{cables.HOST}:{PORT}", "listen": self.address},
            "transport": {"security": "plaintext", "engine": engine},
            "backend": {"type": "virtual", "virtual_root": str(self._folder),
                        "constants_file": str(self._folder / "constants.json")},
            "models": {"model_id": MODEL, "warmup_runs": 1},
        }  # fmt: skip
        self._config = write_toml(self._folder / "node.toml", tables)
        self.agent: Program | None = None
        self.boots = 0

    def boot(self) -> None:
        """Switches the board on: another boot id than ever."""
        self._boot_id.write_text(f"{uuid.uuid4()}\n")
        self.boots += 1
        self.board.power_on()

    def start(self) -> None:
        """Starts the agent; does not wait."""
        self.agent = Program("npu-node", self._config, self._folder / "agent.log", self.board.within())

    def kill(self) -> None:
        """Ends the agent as a power failure or the kernel would."""
        assert self.agent is not None
        self.agent.end(signal.SIGKILL)

    def answers(self) -> bool:
        """Whether its port takes a new connection now."""
        assert self.agent is not None
        assert self.agent.process.poll() is None, f"the agent of {self.name} ended by itself: {self.agent.says()}"
        try:
            with socket.create_connection((self.board.address, NODE_PORT), 0.25):
                return True
        except OSError:
            return False

    def counted(self) -> dict[str, int]:
        """What this life of the agent has counted."""
        with grpc.insecure_channel(self.address, options=channels.client_options()) as channel:
            method = rpc.NODE["StreamTelemetry"]
            stream = channel.unary_stream(
                method.path,
                request_serializer=method.request.SerializeToString,
                response_deserializer=method.response.FromString,
            )(pb.StreamTelemetryRequest(period_ms=1000), timeout=10.0)
            sample = next(stream)
            stream.cancel()
        return {"inferences": sample.inferences_total, "errors": sample.errors_total}


def metrics() -> dict[str, float]:
    """The scheduler's counters, by the text before each number."""
    page = http.client.HTTPConnection(cables.HOST, HTTP_PORT, timeout=10)
    page.request("GET", "/metrics")
    text = page.getresponse().read().decode()
    page.close()
    lines = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, value in lines}


def tries(found: dict[str, float], node: str) -> tuple[int, int]:
    """(good tries, failed tries) at a node."""
    of_node = {name: value for name, value in found.items() if name.startswith(f'npu_node_tries_total{{node="{node}"')}
    good = int(sum(value for name, value in of_node.items() if "NPF-0000" in name))
    return good, int(sum(of_node.values())) - good


def strike(node: Node, kind: str, for_s: float) -> dict[str, Any]:
    """One strike, and how the node came back; moments of the monotonic clock."""
    told: dict[str, Any] = {"node": node.name, "kind": kind, "for_s": for_s}
    if kind == "kill":
        node.kill()
    else:
        node.board.pull()
    if kind == "reboot":
        node.kill()
        node.board.power_off()
    # Between these two moments the node can hear nobody, and nobody it.
    told["struck_s"] = time.monotonic()
    time.sleep(for_s)
    # Of the agent's life that begins now; one that was cut off goes on.
    told["born"] = tries(metrics(), node.name) if kind != "cut" else None
    told["over_s"] = time.monotonic()
    if kind == "cut":
        node.board.plug()
    else:
        if kind == "reboot":
            node.boot()
        node.start()
    limit_s = time.monotonic() + BACK_S
    while not node.answers() and time.monotonic() < limit_s:
        time.sleep(LOOK_S)
    told["answers_s"] = time.monotonic()
    good = tries(metrics(), node.name)[0]
    while (now := tries(metrics(), node.name)[0]) < good + SERVED and time.monotonic() < limit_s:
        time.sleep(LOOK_S)
    told["served_since"] = now - good
    return told


def connections() -> dict[str, dict[str, int]]:
    """Established connections of each board: `in` to the scheduler, `out` from it to the agent."""
    found = {f"10.77.0.{10 + number}": {"in": 0, "out": 0} for number in range(len(NAMES))}
    tables = [Path("/proc/net", name).read_text().splitlines()[1:] for name in ("tcp", "tcp6")]
    for line in [line for table in tables for line in table]:
        _, local, remote, state = line.split()[:4]
        # The last four bytes are the address also where a version 6 socket carries version 4.
        address = socket.inet_ntoa(int(remote.partition(":")[0][-8:], 16).to_bytes(4, "little"))
        if state == "01" and address in found:
            found[address]["in" if int(local.partition(":")[2], 16) == PORT else "out"] += 1
    return found


def settled(patience_s: float) -> dict[str, dict[str, int]]:
    """The connections once none is left of those that were cut, or after the patience."""
    end = time.monotonic() + patience_s
    while True:
        found = connections()
        # Requests go over CONNECTIONS, the node's own heartbeats over one.
        if all(ways["in"] <= 1 and ways["out"] <= CONNECTIONS for ways in found.values()) or time.monotonic() > end:
            return found
        time.sleep(0.5)


def listed() -> list[Any]:
    """`NodeStatus` of all nodes."""
    with grpc.insecure_channel(f"{cables.HOST}:{PORT}", options=channels.client_options()) as channel:
        return list(unary(channel, rpc.SCHEDULER["ListNodes"], pb.ListNodesRequest()).nodes)


def run(out: Path, plan: dict[str, Any]) -> None:
    """The whole of it."""
    cables.make_switch()
    tables = {
        "server": {"grpc_listen": f"{cables.HOST}:{PORT}", "http_listen": f"{cables.HOST}:{HTTP_PORT}"},
        "scheduler": {"policy": plan["policy"]},
        "transport": {"security": "plaintext", "engine": plan["engine"], "node_connections": CONNECTIONS},
    }
    scheduler = Program("npu-scheduler", write_toml(out / "scheduler.toml", tables), out / "scheduler.log")
    nodes = {name: Node(name, number, out, plan["engine"]) for number, name in enumerate(NAMES)}
    for node in nodes.values():
        node.boot()
        node.start()
    until(_in_service, "all nodes are in service")
    told = []
    client = subprocess.Popen(
        [sys.executable, "-m", f"{__package__}.ledger_client", f"{cables.HOST}:{PORT}", str(CLIENTS),
         str(out / "ledger.jsonl")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert client.stdin is not None
    assert client.stdout is not None
    assert client.stdout.readline() == "ready\n"
    for planned in plan["strikes"]:
        time.sleep(planned["after_s"])
        told.append(strike(nodes[planned["node"]], planned["kind"], planned["for_s"]))
        print(json.dumps(told[-1]), flush=True)
    time.sleep(2.0)
    client.stdin.close()
    codes = {"client": client.wait(60)}
    made = {"strikes": told, "metrics": metrics(), "boots": {name: node.boots for name, node in nodes.items()}}
    made["lives"] = {name: node.counted() for name, node in nodes.items()}
    made["reboots"] = {node.descriptor.node_id: node.reboot_count for node in listed()}
    made["connections"] = settled(plan["lets_go_s"])
    programs = {"scheduler": scheduler, **{name: node.agent for name, node in nodes.items()}}
    for name, program in reversed(programs.items()):
        assert program is not None
        codes[name] = program.end()
    (out / "strikes.json").write_text(json.dumps({**made, "codes": codes}, indent=1))


def _in_service() -> bool:
    try:
        return {node.descriptor.node_id for node in listed() if not node.excluded_because} == set(NAMES)
    except grpc.RpcError:
        return False


if __name__ == "__main__":
    run(Path(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text()))
