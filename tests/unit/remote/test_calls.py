"""A call is over when all of it is over."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from boardbench.remote import calls, processes
from boardbench.remote.failures import Failure

from .fakes import FakeCall, board_places


@pytest.fixture
def call(tmp_path: Path) -> FakeCall:
    return FakeCall(board_places(tmp_path))


def record(call: FakeCall, pid: int, ticks: int) -> Path:
    folder = Path(call.places.calls)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "old-1.json"
    path.write_text(json.dumps({"pid": pid, "start_time_ticks": ticks, "pgid": pid}))
    return path


def test_a_call_without_a_record_has_ended(call: FakeCall) -> None:
    assert calls.ended({"call": "old-1"}, call) == {"ended": True, "pids": []}  # type: ignore[arg-type]


def test_a_running_call_is_shown_with_its_children_and_then_as_ended(call: FakeCall) -> None:
    code = "import subprocess,sys; p=subprocess.Popen(['sleep','60']); print(p.pid, flush=True); p.wait()"
    head = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert head.stdout is not None
        child = int(head.stdout.readline())
        found = processes.stat(call.places, head.pid)
        assert found is not None
        path = record(call, head.pid, found.start_time_ticks)
        assert calls.ended({"call": "old-1"}, call) == {"ended": False, "pids": sorted([head.pid, child])}  # type: ignore[arg-type]
        head.kill()
        head.wait()
        # The head is gone, its child is not: the call has not ended.
        assert calls.ended({"call": "old-1"}, call)["pids"] == [child]  # type: ignore[arg-type]
    finally:
        processes.end_all(
            call.places, [(p.pid, p.start_time_ticks) for p in processes.each(call.places) if p.pgrp == head.pid], 1.0
        )
        head.wait()
        if head.stdout:
            head.stdout.close()
    assert calls.ended({"call": "old-1"}, call) == {"ended": True, "pids": []}  # type: ignore[arg-type]
    assert not path.exists()


def test_a_pid_that_was_given_away_is_not_the_call(call: FakeCall) -> None:
    other = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        record(call, other.pid, 1)
        assert calls.ended({"call": "old-1"}, call)["ended"]  # type: ignore[arg-type]
    finally:
        other.kill()
        other.wait()


@pytest.mark.parametrize("name", ["", "../x", "a/b", None, 3])
def test_the_id_of_a_call_is_no_path(call: FakeCall, name: object) -> None:
    with pytest.raises(Failure) as error:
        calls.ended({"call": name}, call)  # type: ignore[arg-type]
    assert error.value.fault == "bad-input"
