"""A resumed campaign first settles what the earlier controller left on the boards: nothing twice, nothing lost."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from boardbench import crew
from boardbench.errors import BenchError, BugError
from boardbench.inventory import Board
from boardbench.matrix import run_cell
from boardbench.matrix.contact import enter
from boardbench.matrix.progress import OnProgress, Phase, Progress
from boardbench.matrix.resume import Past
from boardbench.matrix.run_cell import Bench
from boardbench.matrix.wave import TELL_EVERY_S
from boardbench.results.fetch import DoorLike
from boardbench.results.record import Attempt, with_answer


def catch_up(bench: Bench, boards: Sequence[Board], past: Past) -> dict[str, BenchError]:
    """Collect every run whose load was started, whether it has ended or not, and forget every other.

    Runs that came home are counted in `past.standing`. Returns the boards on which that failed.
    """

    def work(board: Board) -> None:
        whole, settings_stand = _settle(bench, board, past.pending)
        for begun in whole:
            stand = settings_stand and past.latest.get(board.name) == begun.run
            run = run_cell.collect_run(bench, board, begun, settings_stand=stand)
            valid = "valid" if run["valid"] else "invalid"
            tell = f"{begun.cell} had gone on without a controller: collected as attempt {begun.attempt}, {valid}"
            bench.on_progress(Progress(Phase.COLLECT, tell, board.name))
            past.standing.count(run)

    failed: dict[str, BenchError] = {}
    for name, outcome in crew.each(boards, work).items():
        if isinstance(outcome, BugError):
            raise outcome
        if isinstance(outcome, BenchError):
            failed[name] = outcome
    return failed


def _settle(bench: Bench, board: Board, pending: Mapping[str, Attempt]) -> tuple[list[Attempt], bool]:
    """Forgets the half runs of this campaign on the board and returns the whole ones, which are to be collected.

    Also whether the campaign's settings still stand there. When they were put back meanwhile (by the campaign's own
    end, or by whoever met the board first), what they are now says nothing about the run.
    """
    whole: list[Attempt] = []
    mine = {run: attempt for run, attempt in pending.items() if attempt.board == board.name}
    with enter(bench, board) as door:
        bench.holder.renew(door, board.name, bench.hold_s)
        answer = door.call("staged", {}, deadline_s=bench.timings.restore_s)
        scopes = door.call("scopes", {}, deadline_s=bench.timings.restore_s).get("scopes")
        for entry in _entries(answer):
            run = str(entry["run"])
            if not run.startswith(run_cell.run_prefix(bench)):
                continue
            start = entry.get("start_answer")
            if run in mine and isinstance(start, Mapping):
                whole.append(with_answer(mine[run], start))
            else:
                _forget(bench, door, run, str(entry["phase"]))
            mine.pop(run, None)
    for run in mine:
        bench.journal.note("abandoned", run=run, why="the board does not have it")
    stand = isinstance(scopes, list) and any(entry.get("scope") == bench.scope for entry in scopes)
    return whole, stand


def _entries(answer: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    found = answer.get("runs")
    return [entry for entry in found if isinstance(entry, Mapping)] if isinstance(found, list) else []


def _forget(bench: Bench, door: DoorLike, run: str, phase: str) -> None:
    """A run that was only prepared, or that was begun and never answered; or one that lies here already."""
    if phase in ("prepared", "started"):
        door.call("finish", {"run": run}, deadline_s=bench.timings.restore_s)
    door.call("forget", {"run": run}, deadline_s=bench.timings.restore_s)
    bench.journal.note("abandoned", run=run, why=f"half a run ({phase}): the cell is repeated as a new attempt")


def let_loads_end(past: Past, window_s: float, on_progress: OnProgress) -> None:
    """A load that went on without a controller is not disturbed: no board is asked for anything before its end."""
    busy = past.busy_s(window_s)
    end = time.monotonic() + max(busy.values(), default=0.0)
    while (left := end - time.monotonic()) > 0:
        message = f"a load may still run on {', '.join(sorted(busy))}: left alone for {left:.0f} s more"
        on_progress(Progress(Phase.MEASURE, message))
        time.sleep(min(left, TELL_EVERY_S))
