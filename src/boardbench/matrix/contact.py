"""How a campaign keeps in touch with a board that is away now and then: it tries again, up to its patience."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from boardbench import crew
from boardbench.errors import BenchError, DeadlineError, RigError, UnreachableError
from boardbench.inventory import Board
from boardbench.matrix.progress import Phase, Progress
from boardbench.results.fetch import DoorLike

if TYPE_CHECKING:
    from boardbench.matrix.run_cell import Bench

T = TypeVar("T")
BUSY = "another call is changing this board"


def enter(bench: Bench, board: Board) -> DoorLike:
    """A connection to the board; tries again, less and less often, while the board does not answer.

    Raises the last UnreachableError or DeadlineError when the patience is used up.
    """
    deadline = time.monotonic() + bench.patience_s
    wait_s = bench.timings.retry_every_s / 4
    while True:
        try:
            return bench.open_door(board)
        except (UnreachableError, DeadlineError) as error:
            if time.monotonic() + wait_s >= deadline:
                raise
            bench.on_progress(Progress(Phase.RETRY, f"no answer ({error.what}), trying again", board.name))
            pause(wait_s)
            wait_s = min(2 * wait_s, 4 * bench.timings.retry_every_s)


def through_losses(bench: Bench, board: Board, work: Callable[[DoorLike], T], first: DoorLike | None = None) -> T:
    """`work`, begun anew whenever the link is lost in it, until the patience is used up; leaves the door open.

    `first`: a connection that is open already, for the first try.

    The call that was cut off ends on the board, but not at once: until then the board says that it is being changed.
    """
    deadline = time.monotonic() + bench.patience_s
    lost = False
    while True:
        door, first = first or enter(bench, board), None
        try:
            return work(door)
        except UnreachableError as error:
            again: BenchError = error
            lost = True
        except RigError as error:
            if not lost or BUSY not in error.what:
                raise
            again = error
        door.close()
        if time.monotonic() + bench.timings.retry_every_s >= deadline:
            raise again
        bench.on_progress(Progress(Phase.RETRY, f"{again.what}; once more", board.name))
        pause(bench.timings.retry_every_s / 2)


def pause(seconds: float) -> None:
    """Sleep that a Ctrl-C of the campaign ends soon."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        crew.check_stop()
        time.sleep(min(left, 0.2))
