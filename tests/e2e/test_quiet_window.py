"""Nothing is sent to a board inside the window in which it is measured: watched from the host, by connection."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from boardbench.virtual.fleet import Fleet

from .conftest import Bench

pytestmark = [pytest.mark.boards, pytest.mark.slow]

MATRIX = """\
version: 1
name: quiet
question: Is it quiet?
boards: {kinds: [nanopi-r76s], together: each}
workload: {name: burn, threads: all, interval_s: 60}
duration_s: 600
factors:
  cooling: {kind: phase, levels: [active]}
attempts: 2
settings: {governor: performance}
metrics:
  - {name: steady, unit: operations/s, direction: higher-is-better}
"""
LISTENS, TIME_WAIT = "0A", "06"
# A loaded host may start a program late: then the load moves against the controller's clock by so much.
EDGE_S = 0.5


class Watch(threading.Thread):
    """Every few milliseconds: which boards have a connection now, as the host's kernel says (it sees both ends)."""

    def __init__(self, ports: Mapping[str, str]) -> None:
        super().__init__(daemon=True)
        self._ports = dict(ports)
        self._over = threading.Event()
        self.looks: list[float] = []
        self.seen: dict[str, list[tuple[float, str]]] = {name: [] for name in ports.values()}

    def run(self) -> None:
        while not self._over.wait(0.005):
            now = time.monotonic()
            self.looks.append(now)
            for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
                _, local, remote, state, *_ = line.split()
                if state in (LISTENS, TIME_WAIT):
                    continue
                for here, there in ((local, remote), (remote, local)):
                    if here in self._ports:
                        self.seen[self._ports[here]].append((now, there))

    def close(self) -> None:
        self._over.set()
        self.join()


def kernel_name(host: str, port: int) -> str:
    """An IPv4 address and port as /proc/net/tcp shows them."""
    return "".join(f"{int(part):02X}" for part in reversed(host.split("."))) + f":{port:04X}"


def test_no_connection_to_a_board_inside_its_measured_window(bench: Bench, tmp_path: Path) -> None:
    matrix = tmp_path / "quiet.yml"
    matrix.write_text(MATRIX)
    assert bench.inv("virtual.up", "--kind", "bwrap", "--time-scale", "60").code == 0
    assert bench.inv("provision", "--skip-tags", "llama").code == 0
    fleet = Fleet.open("default", bench.state / "boardbench" / "fleets")
    watch = Watch({kernel_name(at.host, at.port): name for name, at in fleet.access().items()})
    watch.start()
    try:
        done = bench.inv("bench", "--matrix", str(matrix), "--json")
    finally:
        watch.close()
    assert done.code == 0, done.err
    runs: list[dict[str, Any]] = [
        json.loads(file.read_text()) for file in Path(done.document["campaign"]).glob("cells/*/attempt-*/run.json")
    ]
    assert {run["boards"][0] for run in runs} == {"king", "queen", "jack"}
    for run in runs:
        start_s, end_s = run["load_window_monotonic_s"]
        seen = watch.seen[run["boards"][0]]
        assert any(at < start_s for at, _ in seen), "the watch sees nothing at all"
        assert any(at > end_s for at, _ in seen)
        inside = [at for at in watch.looks if start_s <= at <= end_s]
        assert len(inside) > 100
        talk = [(round(at - start_s, 3), who) for at, who in seen if start_s + EDGE_S < at < end_s - EDGE_S]
        assert talk == [], f"{run['boards'][0]} was talked to while it was measured ({end_s - start_s:.1f} s)"
