"""How long boards stand idle between two loads of the thermal matrix, as its own report says.

The goal is one of a machine that does nothing else. Elsewhere it is stretched by how much longer than its own CPU time
a piece of plain work takes in the same run.
"""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path

import pytest
from tests.command_line import environment, start

from boardbench.report.dead_time import GOAL_S

PROJECT = Path(__file__).resolve().parents[2]


def inv(folder: Path, *words: str) -> str:
    """The command line, as a user types it; what it prints."""
    process = start(words, environment(folder / "state", folder / "results"))
    out, err = process.communicate(timeout=400)
    assert process.returncode == 0, f"inv {' '.join(words)}:\n{out}\n{err}"
    return out


def stretch(cpu_s: float = 0.5) -> float:
    """How long plain work takes on this machine now, relative to the CPU time in it: 1.0 where nobody else works."""
    began_s, before_s = time.monotonic(), time.process_time()
    while time.process_time() - before_s < cpu_s:
        pass
    return max(1.0, (time.monotonic() - began_s) / cpu_s)


@pytest.mark.perf
@pytest.mark.boards
@pytest.mark.parametrize("kind", ["bwrap", pytest.param("nspawn", marks=pytest.mark.nspawn)])
def test_the_dead_time_between_loads_is_below_its_goal(kind: str) -> None:
    matrix = (PROJECT / "playbooks/matrices/thermal.yml").read_text().replace("repeats: 1", "repeats: 4")
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="boardbench-perf-") as name:
        folder = Path(name)
        (folder / "thermal.yml").write_text(matrix)
        try:
            inv(folder, "virtual.up", "--kind", kind, "--time-scale", "240")
            inv(folder, "provision", "--skip-tags", "llama")
            busy = [stretch()]
            inv(folder, "bench", "--matrix", str(folder / "thermal.yml"), "--json")
            busy.append(stretch())
            dead = json.loads(inv(folder, "report", "--json").splitlines()[-1])["dead_time_s"]
        finally:
            inv(folder, "virtual.down")
    limit_s = GOAL_S * max(busy)
    print(f"dead time between loads: median {dead['median']} s, limit {limit_s:.2f} s; {dead['per_wave']}")
    assert len(dead["per_wave"]) >= 7
    assert dead["median"] < limit_s
