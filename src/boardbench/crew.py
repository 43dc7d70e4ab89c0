"""The same work on several boards at once, one thread a board. One board's error is only its own."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import TypeVar

from boardbench.errors import BenchError, BugError
from boardbench.inventory import Board

T = TypeVar("T")
# How long an interrupted crew waits for its threads to put things in order; a second Ctrl-C does not wait.
_WIND_UP_S = 30.0


class _Stop:
    """Tells each thread of a crew once that it is to stop; what it does to clean up after that is not disturbed."""

    def __init__(self) -> None:
        self.wanted = threading.Event()
        self._told: set[int] = set()

    def check(self) -> None:
        me = threading.get_ident()
        if self.wanted.is_set() and me not in self._told:
            self._told.add(me)
            raise KeyboardInterrupt


_current: ContextVar[_Stop | None] = ContextVar("boardbench-crew-stop", default=None)


def check_stop() -> None:
    """Raises KeyboardInterrupt, once a thread, when the crew that this thread works for was interrupted."""
    stop = _current.get()
    if stop is not None:
        stop.check()


def each(boards: Sequence[Board], work: Callable[[Board], T], *, at_once: int = 16) -> dict[str, T | BenchError]:
    """Does `work` for every board, at most `at_once` at a time, and gives each board's value or error, in order.

    An error that is none of ours becomes a BugError with the original as its cause. On Ctrl-C no further board is
    begun, every call in flight is closed, and KeyboardInterrupt is raised when all threads have ended.
    """
    if at_once < 1:
        raise ValueError(f"at_once is {at_once}, must be at least 1")
    waiting: queue.SimpleQueue[Board] = queue.SimpleQueue()
    for board in boards:
        waiting.put(board)
    done: dict[str, T | BenchError] = {}
    fatal: list[BaseException] = []
    stop = _Stop()

    def serve(ended: threading.Event) -> None:
        _current.set(stop)
        try:
            while not stop.wanted.is_set():
                board = waiting.get_nowait()
                done[board.name] = _one(board, work)
        except queue.Empty:
            return
        except BaseException as error:
            # An exit, or the Ctrl-C that this thread was told of: the caller's thread raises it, for the whole crew.
            fatal.append(error)
            stop.wanted.set()
        finally:
            ended.set()

    # Events, not Thread.join: a join that a Ctrl-C interrupts takes the living thread for ended ever after.
    begun: list[threading.Event] = []
    try:
        for number in range(min(at_once, len(boards))):
            begun.append(threading.Event())
            threading.Thread(target=serve, args=(begun[-1],), name=f"crew-{number}", daemon=True).start()
        for ended in begun:
            _wait(ended)
    except KeyboardInterrupt:
        stop.wanted.set()
        for ended in begun:
            ended.wait(_WIND_UP_S)
        raise
    # The caller itself may be a thread of another crew.
    check_stop()
    if fatal:
        raise fatal[0]
    return {board.name: done[board.name] for board in boards}


def _one(board: Board, work: Callable[[Board], T]) -> T | BenchError:
    try:
        return work(board)
    except BenchError as error:
        return error
    except Exception as error:
        bug = BugError(f"{type(error).__name__}: {error}", where=board.name)
        bug.__cause__ = error
        return bug


def _wait(ended: threading.Event) -> None:
    # In slices: nested crews must hear their outer crew's Ctrl-C while they wait.
    while not ended.wait(0.25):
        check_stop()
