"""What a request costs on its whole way: load generator, scheduler, nodes, 1.2 MB in and 1.2 MB out, no service time.

The claim is about CPU time, since that is what limits a small host, and it is held against a bare gRPC echo and against
bare sockets of the same sizes in the same run: the way has two such hops, with the scheduler's work between them.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from .cluster import PAYLOADS, Cluster

SLOTS, FEW, MANY = 36, 300, 2300
RIG_BEST_PER_S, CORES = 387.0, 2
RIG = Path(__file__).parent / "rig"


def _cpu_s(pids: list[int]) -> float:
    """Of these processes, and of children that have ended."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ticks / os.sysconf("SC_CLK_TCK") + ended.ru_utime + ended.ru_stime


def _printed(script: str) -> list[float]:
    done = subprocess.run([sys.executable, RIG / script], capture_output=True, check=True, timeout=300)
    return [float(word) for word in done.stdout.split()]


def _loaded(cluster: Cluster, pids: list[int], out: Path, requests: int) -> tuple[float, float]:
    """(CPU seconds of all, requests a second) of a closed loop of the load generator, its start included."""
    before = _cpu_s(pids)
    argv = [sys.executable, str(PAYLOADS / "npu-load" / "main.py"), "--scheduler", cluster.address, "--plaintext"]
    argv += ["--out", str(out), "--concurrency", str(SLOTS), "--requests", str(requests), "--warmup", "2"]
    subprocess.run(argv, capture_output=True, check=True, timeout=300)
    (report,) = out.glob("*.json")
    summary = json.loads(report.read_text())["summary"]
    assert summary["succeeded"] == requests
    return _cpu_s(pids) - before, summary["throughput"]


@pytest.mark.perf
def test_the_whole_way_costs_little_more_than_bare_sockets(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        cluster.start()
        assert cluster.scheduler is not None
        pids = [cluster.scheduler.process.pid, *(node.process.pid for node in cluster.nodes.values())]
        few_s, _ = _loaded(cluster, pids, tmp_path / "few", FEW)
        many_s, rate = _loaded(cluster, pids, tmp_path / "many", MANY)
    # Starting the load generator and the warm-up are in both.
    whole_s = (many_s - few_s) / (MANY - FEW)
    (echo_s,), (bare_s, bare_rate) = _printed("bare_echo.py"), _printed("bare_way.py")
    possible = CORES / whole_s
    print(
        f"\nwhole way {1e3 * whole_s:.2f} CPU-ms: {whole_s / echo_s:.2f} x a bare gRPC echo of {1e3 * echo_s:.2f}, "
        f"{whole_s / bare_s:.2f} x bare sockets all the way of {1e3 * bare_s:.2f}; {CORES} cores have time for "
        f"{possible:.0f}/s, {possible / RIG_BEST_PER_S:.2f} x the rig's best; on this host now {rate:.0f}/s "
        f"({rate / RIG_BEST_PER_S:.2f} x; bare sockets {bare_rate:.0f}/s)"
    )
    # The way has two hops; each costs less than two thirds of what the library takes for one.
    assert whole_s < 1.33 * echo_s
    assert whole_s < 2.0 * bare_s
