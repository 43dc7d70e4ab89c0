"""The trap: nodes that are judged by their last heartbeat get all requests at once, without one error."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from .cluster import Cluster
from .test_backends import board

SLOTS = 12
MEASURED_S = 8.0
# As on the rig, several times what a queue of all requests takes to be worked off.
HEARTBEAT_MS = 4000


def _rate(folder: Path, policy: str, stale: bool) -> tuple[float, set[str]]:
    """Inferences/s of three boards whose NPU is slow enough for nothing else to matter, and the error codes."""
    settings = {"scheduler": {"policy": policy, "stale": stale}, "health": {"interval_ms": 3 * HEARTBEAT_MS}}
    root = board(folder / "board", 2_208_000, 100_000_000)
    with Cluster(folder, settings) as cluster:
        node = {
            "backend": {"type": "virtual", "zero_time": False, "virtual_root": str(root)},
            "models": {"warmup_runs": 1},
            "telemetry": {"heartbeat_interval_ms": HEARTBEAT_MS},
        }
        cluster.start(("jack", "king", "queen"), node)
        assert cluster.list_nodes().stale is stale
        codes: set[str] = set()
        ends: list[float] = []
        until = time.monotonic() + 2.0 + MEASURED_S

        def work() -> None:
            while time.monotonic() < until:
                codes.add(cluster.infer(1).error_code)
                ends.append(time.monotonic())

        threads = [threading.Thread(target=work) for _ in range(SLOTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sum(until - MEASURED_S <= end < until for end in ends) / MEASURED_S, codes


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["least-queue", "ect"])
def test_stale_states_lose_more_than_forty_percent_without_an_error(tmp_path: Path, policy: str) -> None:
    for name in ("fresh", "stale"):
        (tmp_path / name).mkdir()
    fresh, codes = _rate(tmp_path / "fresh", policy, stale=False)
    collapsed, stale_codes = _rate(tmp_path / "stale", policy, stale=True)
    assert codes == stale_codes == {""}
    assert collapsed < 0.6 * fresh, f"{collapsed:.1f}/s stale, {fresh:.1f}/s fresh"
