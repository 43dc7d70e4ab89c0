"""The end of a campaign on its boards: put back, given back, looked at once more."""

from __future__ import annotations

from collections.abc import Sequence

from boardbench import crew
from boardbench.errors import BenchError, UnreachableError
from boardbench.inventory import Board
from boardbench.matrix import lease, preflight
from boardbench.matrix.cooling.back import fans_back
from boardbench.matrix.progress import Phase, Progress
from boardbench.matrix.run_cell import Bench, restore_board
from boardbench.matrix.wave import Floor
from boardbench.results import store


def put_back(bench: Bench, boards: Sequence[Board], floor: Floor) -> dict[str, str]:
    """Restore these boards, forget what nobody will collect, give them back; by board, why that is not proved.

    A board that does not answer is waited for once: its hold ends by itself, as soon as nobody renews it.
    """
    bench.on_progress(Progress(Phase.RESTORE, "putting the boards back as they were"))
    bench.journal.note("restore", boards=[board.name for board in boards])
    not_restored: dict[str, str] = {}
    away: dict[str, BenchError] = {}
    try:
        not_restored |= fans_back(bench, floor.phases)
        for name, outcome in crew.each(boards, lambda board: _restore_one(bench, board, floor)).items():
            if outcome is not None:
                not_restored[name] = str(outcome)
            if isinstance(outcome, UnreachableError):
                away[name] = outcome
                floor.away.add(name)
    finally:
        bench.heart.stop()
        here = [board for board in boards if board.name not in away]
        errors = away | lease.release_all(bench.holder, here, bench.open_door)
        bench.journal.note(
            "restored",
            not_restored=not_restored,
            not_released={name: str(error) for name, error in errors.items()},
        )
    for name, why in not_restored.items():
        bench.on_progress(Progress(Phase.RESTORE, f"not put back: {why}", name))
    return not_restored


def _restore_one(bench: Bench, board: Board, floor: Floor) -> str | None:
    why = restore_board(bench, board)
    if why is not None:  # perhaps not ours any more
        return why
    for run_name in sorted(floor.leftover.get(board.name, ())):
        _forget(bench, board, run_name)
    return None


def _forget(bench: Bench, board: Board, run_name: str) -> None:
    """Runs that nobody will collect. That one stays staged costs space only, so it is noted and no more."""
    try:
        with bench.open_door(board) as door:
            door.call("finish", {"run": run_name}, deadline_s=bench.timings.restore_s)
            door.call("forget", {"run": run_name}, deadline_s=bench.timings.restore_s)
        bench.journal.note("abandoned", run=run_name)
    except BenchError as error:
        bench.journal.note("not-forgotten", run=run_name, error=error.as_dict())


def facts_after(bench: Bench, boards: Sequence[Board]) -> None:
    """facts-after.json of the boards that answer, and their clocks."""
    try:
        met, lost = preflight.meet(boards, bench.open_door)
    except BenchError as error:
        bench.journal.note("facts-after", error=error.as_dict())
        return
    for name, found in met.items():
        folder = bench.folder / "boards" / name
        folder.mkdir(parents=True, exist_ok=True)
        # An earlier end of the same campaign, before it was resumed, is not the end.
        store.write_json(folder / "facts-after.json", dict(found.facts), replace=True)
        bench.journal.note("clock", board=name, offset_s=found.offset_s, error_s=found.error_s)
    for name, loss in lost.items():
        bench.journal.note("facts-after", board=name, error=loss.as_dict())
