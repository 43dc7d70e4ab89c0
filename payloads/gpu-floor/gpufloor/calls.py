"""Which calls are in progress, from the events of the probes; pure, with the time given from outside.

Events of one thread may come out of order, since each CPU has a buffer of its own: the one with the latest time stamp
counts, and each one carries how deep the thread is in the library. So an event that was lost is healed by the next.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Tuple

_FORGET_AFTER_S = 30.0
Key = Tuple[str, int, int]


@dataclass(frozen=True)
class Event:
    """A thread entered or left a probed function. `depth`: in how many it is now; `at_s`: monotonic time."""

    pid: int
    tid: int
    depth: int
    at_s: float


class Calls:
    """The calls of all threads of all processes in all libraries that are watched (`source`: the library)."""

    def __init__(self, hold_s: float) -> None:
        self.hold_s = hold_s
        self._threads: dict[Key, Event] = {}
        self._ended_s: float | None = None

    def take(self, source: str, event: Event) -> None:
        """Note an event of a process that counts."""
        key = (source, event.pid, event.tid)
        last = self._threads.get(key)
        if last is not None and last.at_s > event.at_s:
            return
        self._threads[key] = event
        if event.depth == 0:
            self._end(event.at_s)

    def _end(self, at_s: float) -> None:
        self._ended_s = at_s if self._ended_s is None else max(self._ended_s, at_s)

    def end_thread(self, pid: int, tid: int, now_s: float) -> None:
        """The thread is gone; a call that it was in ends now."""
        self._close([key for key in self._threads if key[1:] == (pid, tid)], now_s)

    def end_source(self, source: str, now_s: float) -> None:
        """The library is no longer watched; nothing more will be heard of its calls."""
        self._close([key for key in self._threads if key[0] == source], now_s)

    def _close(self, keys: list[Key], now_s: float) -> None:
        for key in keys:
            if self._threads.pop(key).depth > 0:
                self._end(now_s)

    def open_threads(self) -> list[tuple[int, int]]:
        """(pid, tid) of the threads that are in a call."""
        return sorted({key[1:] for key, event in self._threads.items() if event.depth > 0})

    def pids(self) -> list[int]:
        """The processes that are in a call."""
        return sorted({pid for pid, _ in self.open_threads()})

    def first_open_s(self) -> float | None:
        """Since when some call is in progress; None when none is."""
        return min((event.at_s for event in self._threads.values() if event.depth > 0), default=None)

    def active_until(self) -> float | None:
        """Until when the floor is wanted: infinity while a call is in progress; None when there was none yet."""
        if any(event.depth > 0 for event in self._threads.values()):
            return float("inf")
        return None if self._ended_s is None else self._ended_s + self.hold_s

    def wanted(self, now_s: float) -> bool:
        """Whether the floor is wanted: a call is in progress, or the last one ended less than the hold time ago."""
        until = self.active_until()
        return until is not None and now_s < until

    def forget_old(self, now_s: float) -> None:
        """Drops threads that have been idle for long, so that nothing grows for ever."""
        for key in [key for key, event in self._threads.items() if event.depth == 0]:
            if now_s - self._threads[key].at_s > _FORGET_AFTER_S:
                del self._threads[key]
