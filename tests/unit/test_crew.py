"""Several boards at once: each board's fate is its own, and one Ctrl-C stops all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from boardbench.crew import each
from boardbench.errors import BenchError, BugError, RigError
from boardbench.inventory import Access, Board, Cooling, Identity


def _boards(count: int) -> tuple[Board, ...]:
    return tuple(
        Board(f"b{n}", "host", Access("x"), (), frozenset(), Cooling(), Identity(), {}, "t:1") for n in range(count)
    )


def test_every_board_has_its_value_in_the_order_given() -> None:
    def work(board: Board) -> str:
        time.sleep(0.05 if board.name == "b0" else 0)
        return board.name.upper()

    assert list(each(_boards(5), work).items()) == [(f"b{n}", f"B{n}") for n in range(5)]


def test_one_boards_error_is_only_its_own() -> None:
    def work(board: Board) -> int:
        if board.name == "b1":
            raise RigError("is down", where=board.name)
        return 1

    done = each(_boards(3), work)
    assert (done["b0"], done["b2"]) == (1, 1)
    assert isinstance(done["b1"], RigError)


def test_an_error_that_is_none_of_ours_is_a_bug_with_its_cause() -> None:
    def work(board: Board) -> int:
        return {"b1": 1}[board.name]

    error = each(_boards(1), work)["b0"]
    assert isinstance(error, BugError)
    assert error.where == "b0"
    assert isinstance(error.__cause__, KeyError)


def test_an_exit_of_one_thread_is_the_exit_of_the_crew() -> None:
    begun: list[str] = []

    def work(board: Board) -> None:
        begun.append(board.name)
        raise SystemExit(7)

    with pytest.raises(SystemExit, match="7"):
        each(_boards(5), work, at_once=1)
    assert begun == ["b0"]


def test_boards_run_together_but_never_more_than_allowed() -> None:
    lock, now, most = threading.Lock(), [0], [0]

    def work(_: Board) -> None:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        time.sleep(0.03)
        with lock:
            now[0] -= 1

    each(_boards(9), work, at_once=3)
    assert most == [3]


def test_no_boards_is_no_work() -> None:
    def work(board: Board) -> int | BenchError:
        raise AssertionError(board)

    assert each((), work) == {}


def test_a_crew_of_nobody_is_refused() -> None:
    with pytest.raises(ValueError, match="at_once"):
        each(_boards(1), lambda _: 1, at_once=0)


_INTERRUPTED = """
import os, sys, time
sys.path.insert(0, {tests!r})
from test_crew import _boards
from boardbench.crew import check_stop, each
def work(board):
    os.write(1, f"began {{board.name}}\\n".encode())  # in one piece: print is not, from two threads
    try:
        while True:
            check_stop()
            time.sleep(0.02)
    finally:
        check_stop()  # told once: cleaning up is not disturbed
        time.sleep(0.5)  # and waited for, also by the thread that the Ctrl-C woke
        os.write(1, f"cleaned {{board.name}}\\n".encode())
try:
    each(_boards(4), work, at_once=2)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def test_ctrl_c_stops_all_lets_them_clean_up_and_begins_no_other() -> None:
    script = _INTERRUPTED.format(tests=str(Path(__file__).parent))
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    began = {process.stdout.readline().strip(), process.stdout.readline().strip()}
    os.kill(process.pid, signal.SIGINT)
    rest, _ = process.communicate(timeout=10)
    assert began == {"began b0", "began b1"}
    assert sorted(rest.split("\n")[:2]) == ["cleaned b0", "cleaned b1"]
    assert rest.split("\n")[2] == "interrupted"
    assert "began" not in rest
