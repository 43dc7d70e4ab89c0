"""The `status` verb: it reads lease, runs and sensors, and leaves the board as it found it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from boardbench.remote import lease, stamps, status
from boardbench.remote.failures import Failure
from boardbench.remote.run_state import Run

from .fakes import FakeCall
from .trees import Tree

ADA = {"owner": "ada", "host": "desk", "campaign": "c-1"}


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    made = Tree(tmp_path)
    made.write("sys/class/thermal/thermal_zone0/type", "soc-thermal\n")
    made.write("sys/class/thermal/thermal_zone0/temp", "61200\n")
    made.write("sys/class/thermal/thermal_zone1/type", "npu-thermal\n")
    made.write("sys/devices/system/cpu/cpufreq/policy0/scaling_cur_freq", "1416000\n")
    return made


def ask(tree: Tree) -> dict[str, Any]:
    return status.status({}, FakeCall(tree.places))  # type: ignore[arg-type]


def stage(tree: Tree, name: str, *, supervisor: tuple[int, int] | None = None, ended: bool = False) -> None:
    run = Run(tree.places, name)
    run.create()
    run.save({"run": name, "campaign": "c-1", "boot_id": "boot-1", "phase": "started" if supervisor else "prepared"})
    if supervisor:
        pid, ticks = supervisor
        value = {"pid": pid, "supervisor_pid": pid, "supervisor_start_time_ticks": ticks, "started": stamps.now()}
        Path(run.started_path).write_text(json.dumps(value))
    if ended:
        Path(run.exit_path).write_text(json.dumps({"code": 0}))


def me() -> tuple[int, int]:
    return os.getpid(), int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])


def test_a_free_board_says_what_it_reads_and_why_it_reads_nothing(tree: Tree) -> None:
    found = ask(tree)
    assert found["lease"] == {"held": False, "note": "nobody holds it"}
    assert found["runs"] == []
    assert found["thermal"][0] == {"type": "soc-thermal", "name": "soc-thermal", "celsius": 61.2}
    assert "missing" in found["thermal"][1]["celsius"]
    assert found["cpu_policies"][0]["cur_khz"] == 1416000
    assert found["boot_id"] == "boot-1"


def test_the_lease_is_told_with_the_time_that_is_left(tree: Tree) -> None:
    lease.lease({"action": "take", "ttl_s": 60.0, **ADA}, FakeCall(tree.places))  # type: ignore[arg-type]
    held = ask(tree)["lease"]
    assert {key: held[key] for key in ADA} == ADA
    assert 50 < held["left_s"] <= 60


def test_a_load_runs_only_while_its_own_supervisor_lives(tree: Tree) -> None:
    tree.places.proc = "/proc"
    pid, ticks = me()
    tree.write("proc/unused", "")
    boot_id = stamps.boot_id(tree.places)
    for name, supervisor, ended in (
        ("prepared", None, False),
        ("running", (pid, ticks), False),
        ("ended", (pid, ticks), True),
        ("another-process", (pid, ticks + 1), False),
    ):
        stage(tree, name, supervisor=supervisor, ended=ended)
        run = Run(tree.places, name)
        run.save({**run.load(), "boot_id": boot_id})
    runs = {run["run"]: run for run in ask(tree)["runs"]}
    assert {name: run["load_runs"] for name, run in runs.items()} == {
        "prepared": False, "running": True, "ended": False, "another-process": False,
    }  # fmt: skip
    assert runs["running"]["campaign"] == "c-1"


def test_a_state_that_cannot_be_read_costs_only_its_own_entry(tree: Tree) -> None:
    stage(tree, "good")
    stage(tree, "torn")
    tree.write("var/lib/boardbench/runs/torn/run-state.json", "{")
    runs = {run["run"]: run for run in ask(tree)["runs"]}
    assert runs["good"]["phase"] == "prepared"
    assert "cannot be read" in runs["torn"]["missing"]


def test_asking_changes_nothing_on_the_board(tree: Tree) -> None:
    stage(tree, "r1")

    def everything() -> dict[str, tuple[int, int]]:
        return {str(p): (p.lstat().st_mtime_ns, p.lstat().st_size) for p in sorted(tree.root.rglob("*"))}

    before = everything()
    ask(tree)
    assert everything() == before


def test_an_argument_is_refused(tree: Tree) -> None:
    with pytest.raises(Failure, match="unknown argument"):
        status.status({"deep": True}, FakeCall(tree.places))  # type: ignore[arg-type]
