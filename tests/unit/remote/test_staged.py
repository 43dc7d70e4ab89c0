"""A controller that was away learns what lies on the board, and guesses nothing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from boardbench.remote import lease, main, processes, stamps, supervise
from boardbench.remote.failures import Failure
from boardbench.remote.run_state import Run
from boardbench.remote.staged import staged

from .fakes import FakeCall, board_places

ADA = {"owner": "ada", "host": "desk", "campaign": "c-1", "ttl_s": 60.0}


@pytest.fixture
def call(tmp_path: Path) -> FakeCall:
    return FakeCall(board_places(tmp_path))


def stage(call: FakeCall, name: str, **state: Any) -> Run:
    run = Run(call.places, name)
    run.create()
    if state:
        run.save({"campaign": "c-1", "boot_id": stamps.boot_id(call.places), **state})
    return run


def told(call: FakeCall) -> dict[str, Any]:
    return {entry["run"]: entry for entry in staged({}, call)["runs"]}  # type: ignore[arg-type]


def test_a_board_without_runs_says_so(call: FakeCall) -> None:
    assert staged({}, call) == {"runs": []}  # type: ignore[arg-type]


def test_each_run_is_told_with_its_phase_and_the_answer_to_its_start(call: FakeCall) -> None:
    stage(call, "a")
    stage(call, "b", phase="prepared")
    answer = {"unit": "u", "pid": 1, "started": {"monotonic_s": 1.0}, "boot_id": "x"}
    stage(call, "c", phase="started", start_answer=answer)
    found = told(call)
    assert {name: entry["phase"] for name, entry in found.items()} == {"a": "unknown", "b": "prepared", "c": "started"}
    assert found["b"]["start_answer"] is None
    assert found["c"]["start_answer"] == answer
    assert not any(entry["running"] for entry in found.values())


def test_a_load_that_runs_is_told_and_one_from_before_a_reboot_is_not(call: FakeCall) -> None:
    me = processes.stat(call.places, os.getpid())
    assert me is not None
    for name, boot_id in (("now", stamps.boot_id(call.places)), ("before", "another-boot")):
        run = stage(call, name, phase="started", boot_id=boot_id)
        supervise.write_json(run.started_path, {"pid": me.pid, "start_time_ticks": me.start_time_ticks})
    assert {name: entry["running"] for name, entry in told(call).items()} == {"now": True, "before": False}


def test_a_damaged_state_file_costs_only_its_own_run(call: FakeCall) -> None:
    stage(call, "good", phase="prepared")
    run = stage(call, "torn")
    (Path(run.folder) / "run-state.json").write_text("{")
    assert {name: entry["phase"] for name, entry in told(call).items()} == {"good": "prepared", "torn": "unknown"}


def ask(call: FakeCall, who: dict[str, Any]) -> dict[str, Any]:
    return main.run_verb({"verb": "staged", "args": {"lease": who}}, call)  # type: ignore[arg-type]


def test_a_heartbeat_goes_along_with_any_verb(call: FakeCall) -> None:
    assert ask(call, ADA) == {"runs": []}
    assert ask(call, ADA) == {"runs": []}
    held = lease.lease({"action": "show"}, call)["lease"]  # type: ignore[arg-type]
    assert (held["campaign"], held["heartbeats"]) == ("c-1", 1)


def test_a_verb_is_refused_when_somebody_else_holds_the_board(call: FakeCall) -> None:
    ask(call, ADA)
    with pytest.raises(Failure, match="now held by ada@desk"):
        ask(call, dict(ADA, campaign="c-2"))
    with pytest.raises(Failure, match="lease is 'mine'"):
        ask(call, "mine")  # type: ignore[arg-type]
