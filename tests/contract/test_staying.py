"""A program that stays from call to call: one exec, and still every call with its own end, deadline and errors."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from boardbench import board as door_module
from boardbench.board import Door
from boardbench.errors import BenchError, BugError, DeadlineError, RigError, UnreachableError

from .conftest import Bench
from .local_sshd import running, until


@pytest.fixture
def door(bench: Bench) -> Door:
    made = bench.open()
    made.stay = True
    return made


def pid_of(door: Door) -> int:
    return int(str(door.call("echo", {}, deadline_s=20)["pid"]))


def gone(pid: int) -> bool:
    """Ended, and none of its threads holds a pipe any more."""
    tasks = Path(f"/proc/{pid}/task")
    try:
        return not running(pid) and len(list(tasks.iterdir())) <= 1
    except OSError:
        return True


def test_many_calls_are_one_exec_of_one_program(door: Door) -> None:
    pids = {pid_of(door) for _ in range(20)}
    assert (len(pids), door.connections, door.execs) == (1, 1, 1)


def test_a_door_that_is_not_to_stay_pays_an_exec_a_call(bench: Bench) -> None:
    with bench.open() as door:
        assert len({pid_of(door) for _ in range(3)}) == 3
        assert door.execs == 3


def test_streams_blobs_events_and_errors_go_on_in_the_same_program(door: Door) -> None:
    pid = pid_of(door)
    got = bytearray()
    door.call("flood", {"pieces": 3, "byte": 7}, deadline_s=30, on_data=lambda _, piece: got.extend(piece))
    assert got == b"\7" * (3 * (1 << 18))
    sha = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
    door.call("take", {"blobs": [sha], "forget": True}, deadline_s=20, blobs={sha: b"test"})
    with pytest.raises(BenchError, match="it is so"):
        door.call("fail", {"fault": "rig"}, deadline_s=20)
    with pytest.raises(BugError, match="ZeroDivisionError"):
        door.call("stumble", {"zero": 0}, deadline_s=20)
    events: list[dict[str, object]] = []
    door.call("tell", {"count": 5}, deadline_s=20, on_event=events.append)
    assert len(events) == 6
    assert (pid_of(door), door.execs) == (pid, 1)


def test_the_deadline_of_a_later_call_ends_the_program_and_the_next_call_gets_a_new_one(
    door: Door, tmp_path: Path
) -> None:
    pid = pid_of(door)
    with pytest.raises(DeadlineError, match="its work on the board has ended"):
        door.call("hang", {"pid_file": str(tmp_path / "pids")}, deadline_s=2)
    pids = [int(word) for word in (tmp_path / "pids").read_text().split()]
    assert pids[0] == pid
    assert until(lambda: not [pid for pid in pids if running(pid)], 15)
    assert pid_of(door) != pid


def test_the_deadline_of_a_call_that_is_over_ends_nothing(door: Door) -> None:
    pid = pid_of(door)
    until_s = time.monotonic() + 3.0
    assert door.call("echo", {}, deadline_s=3.0)["pid"] == pid
    time.sleep(max(0.0, until_s + 0.3 - time.monotonic()))
    assert (pid_of(door), door.execs) == (pid, 1)


def test_closing_the_door_ends_the_waiting_program(door: Door) -> None:
    pid = pid_of(door)
    assert running(pid)
    door.close()
    assert until(lambda: not running(pid), 15)


def test_closing_the_door_in_a_later_call_ends_its_work(door: Door, tmp_path: Path) -> None:
    pid_of(door)
    caught: list[BenchError] = []

    def call() -> None:
        try:
            door.call("hang", {"pid_file": str(tmp_path / "pids")}, deadline_s=60)
        except BenchError as error:
            caught.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    assert until((tmp_path / "pids").exists, 15)
    pids = [int(word) for word in (tmp_path / "pids").read_text().split()]
    door.close()
    thread.join(10)
    assert isinstance(caught[0], UnreachableError)
    assert until(lambda: not [pid for pid in pids if running(pid)], 15)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_waiting_program_that_was_ended_is_replaced(door: Door, number: int) -> None:
    pid = pid_of(door)
    os.kill(pid, number)
    assert until(lambda: gone(pid), 15)
    time.sleep(0.2)  # until the end has come through
    assert pid_of(door) != pid
    assert door.execs == 2


def test_a_program_that_has_waited_for_long_is_not_trusted(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    pid = pid_of(door)
    monkeypatch.setattr(door_module, "_KEPT_S", 0.0)
    assert pid_of(door) != pid
    assert until(lambda: not running(pid), 15)


def test_what_nobody_asked_for_is_never_taken_for_an_answer(door: Door) -> None:
    """The program of a call that broke off in the middle of its words is not used again."""
    pid = pid_of(door)
    with pytest.raises(RigError, match="garbage"):
        door.call("garbage", {"hex": b"Welcome\n".hex()}, deadline_s=20)
    assert pid_of(door) != pid


def test_no_call_leaves_a_record(door: Door, bench: Bench) -> None:
    calls: Callable[[], list[str]] = lambda: [path.name for path in (bench.root / "run/boardbench/calls").iterdir()]  # noqa: E731
    for _ in range(3):
        pid_of(door)
    assert until(lambda: calls() == [], 5)
