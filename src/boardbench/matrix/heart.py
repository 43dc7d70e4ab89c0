"""Heartbeats: a campaign's hold of its boards is short, and renewed as long as the controller lives.

In the silent window nothing is sent to any board: what is needed to hold them so long is taken before it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from boardbench import crew
from boardbench.errors import BenchError, DeadlineError, UnreachableError
from boardbench.inventory import Board
from boardbench.matrix.lease import Holder
from boardbench.results.fetch import DoorLike

BEATS_PER_TTL = 3
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
        self._open_door = open_door
        self._end = threading.Event()
        self._beating = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="heart", daemon=True)

    def leave_out(self, board: str) -> None:
        """No more beats for this board: the campaign does not hold it (any more)."""
        self._out.add(board)

    @contextmanager
    def silent(self, window_s: float, busy: Sequence[str]) -> Iterator[None]:
        """No beat inside. Boards that are not `busy` are held for `window_s` and the usual time first."""
        with self._beating:
            self._beat(window_s + self.ttl_s, [name for name in self._boards if name not in busy])
            yield

    def _run(self) -> None:
        while not self._end.wait(self.ttl_s / BEATS_PER_TTL):
            with self._beating:
                if not self._end.is_set():
                    self._beat(self.ttl_s, list(self._boards))

    def _beat(self, ttl_s: float, names: Sequence[str]) -> None:
        boards = [self._boards[name] for name in names if name not in self._out and name not in self.lost]

        def renew(board: Board) -> None:
            with self._open_door(board) as door:
                self._holder.renew(door, board.name, ttl_s)

        for name, outcome in crew.each(boards, renew).items():
            # A board that does not answer now may do so at the next beat; the run loop finds out by itself.
            if isinstance(outcome, BenchError) and not isinstance(outcome, UnreachableError | DeadlineError):
                self.lost[name] = str(outcome)

    def start(self) -> None:
        """The first beat comes after a third of the time for which the boards were taken."""
        self._thread.start()

    def stop(self) -> None:
        """No beat after this: a hold that is given back must not be taken again."""
        self._end.set()
        if self._thread.is_alive():
            self._thread.join(WAIT_FOR_BEAT_S)
