"""Heartbeats: a campaign's hold of its boards is short, and renewed as long as the controller lives.

In the silent window nothing is sent to any board: what is needed to hold them so long is taken before it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from boardbench import crew
from boardbench.errors import BenchError, DeadlineError, UnreachableError
from boardbench.inventory import Board
from boardbench.matrix.lease import Holder
from boardbench.results.fetch import DoorLike

BEATS_PER_TTL = 3
SHORTEST_WAIT_S = 0.005
WAIT_FOR_BEAT_S = 5.0


class Heart:
    """Renews the hold of `boards` every third of `ttl_s`, from a thread of its own, from `start` to `stop`.

    `lost`: boards that another campaign has taken away, and its words. They are left alone from then on.
    """

    def __init__(
        self, holder: Holder, boards: Mapping[str, Board], ttl_s: float, open_door: Callable[[Board], DoorLike]
    ) -> None:
        self.ttl_s = ttl_s
        self.lost: dict[str, str] = {}
        self._holder = holder
        self._boards = boards
        self._out: set[str] = set()
        self._away: set[str] = set()
        self._open_door = open_door
        self._end = threading.Event()
        self._beating = threading.Lock()
        # By board, when its next beat is due. A hold lasts two beats longer.
        self._due: dict[str, float] = {}
        self._thread = threading.Thread(target=self._run, name="heart", daemon=True)

    def leave_out(self, board: str) -> None:
        """No more beats for this board: the campaign does not hold it (any more)."""
        self._out.add(board)

    @contextmanager
    def silent(self, window_s: float, busy: Sequence[str]) -> Iterator[None]:
        """No beat inside, for about `window_s`. Boards that are not `busy` are first held for so long and the usual
        time, if they are not yet; those that are busy have been held for it by the calls of their runs.
        """
        beat_s = self.ttl_s / BEATS_PER_TTL
        with self._beating:
            # A hold lasts two beats longer than the time when it is due; one of them is kept in hand.
            end_s = time.monotonic() + window_s
            short = [name for name in self._boards if name not in busy and self._due.get(name, 0.0) + beat_s < end_s]
            self._beat(window_s + self.ttl_s, short)
            yield
            self._due |= dict.fromkeys(busy, time.monotonic() + beat_s)

    def _run(self) -> None:
        while not self._end.wait(self._wait_s()):
            with self._beating:
                now_s = time.monotonic()
                if not self._end.is_set():
                    self._beat(self.ttl_s, [name for name in self._boards if self._due.get(name, 0.0) <= now_s])

    def _wait_s(self) -> float:
        most_s = self.ttl_s / BEATS_PER_TTL
        next_s = min((self._due[name] for name in self._kept() if name in self._due), default=float("inf"))
        return min(most_s, max(SHORTEST_WAIT_S, next_s - time.monotonic()))

    def _kept(self) -> list[str]:
        return [name for name in self._boards if name not in self._out and name not in self.lost]

    def _beat(self, ttl_s: float, names: Sequence[str]) -> None:
        kept = self._kept()
        boards = [self._boards[name] for name in names if name in kept]
        next_s = time.monotonic() + ttl_s - (BEATS_PER_TTL - 1) * self.ttl_s / BEATS_PER_TTL
        self._due |= dict.fromkeys((board.name for board in boards), next_s)

        def renew(board: Board) -> None:
            with self._open_door(board) as door:
                self._holder.renew(door, board.name, ttl_s)

        for name, outcome in crew.each(boards, renew).items():
            # A board that does not answer now may do so at the next beat; the run loop finds out by itself.
            if not isinstance(outcome, BenchError):
                self._away.discard(name)
                continue
            # Away for longer: not at every beat, since the next window has to wait for a connection that is tried.
            late_s = self.ttl_s if name in self._away else self.ttl_s / BEATS_PER_TTL
            self._due[name] = time.monotonic() + late_s
            self._away.add(name)
            if not isinstance(outcome, UnreachableError | DeadlineError):
                self.lost[name] = str(outcome)

    def start(self) -> None:
        """The first beat comes after a third of the time for which the boards were taken."""
        self._due = dict.fromkeys(self._boards, time.monotonic() + self.ttl_s / BEATS_PER_TTL)
        self._thread.start()

    def stop(self) -> None:
        """No beat after this: a hold that is given back must not be taken again."""
        self._end.set()
        if self._thread.is_alive():
            self._thread.join(WAIT_FOR_BEAT_S)
