"""The cells that start together: prepare all, start all, leave them alone, collect all.

The joins between these steps are the barrier: a board that fails a step drops out with its reason, the others go on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from boardbench import crew
from boardbench.errors import BenchError, BugError, DeadlineError, RigError, UnreachableError
from boardbench.inventory import Board
from boardbench.matrix import contact, run_cell
from boardbench.matrix.cooling import Step
from boardbench.matrix.plan import Cell
from boardbench.matrix.progress import Phase, Progress
from boardbench.matrix.run_cell import Bench
from boardbench.results.fetch import DoorLike
from boardbench.results.record import Attempt

T = TypeVar("T")
Outcome = dict[str, Any] | BenchError
"""run.json of a collected attempt, or why there is none."""
TELL_EVERY_S = 10.0
UNKNOWN = "unknown"


@dataclass
class Floor:
    """What is true on the boards now: each fan's phase (`unknown` while it is switched) and what the board sets for
    it, runs that are staged there for nobody, connections that the wave before has left open for the next, and the
    boards that did not answer when they were to be put back.

    A run is in `leftover` from its preparation until it is collected, or until only a late collect can bring it home.
    """

    phases: dict[str, tuple[str, list[Step]]] = field(default_factory=dict)
    leftover: dict[str, set[str]] = field(default_factory=dict)
    doors: dict[str, DoorLike] = field(default_factory=dict)
    away: set[str] = field(default_factory=set)

    def close_doors(self) -> None:
        """No connection stays open: an idle one would still make a board send and answer keepalives."""
        while self.doors:
            self.doors.popitem()[1].close()


def run_wave(
    bench: Bench, cells: Sequence[Cell], attempts: Mapping[str, int], floor: Floor, eta_s: float
) -> dict[str, Outcome]:
    """One attempt of these cells (different boards, one arm), numbered by cell name; outcome by cell name.

    On any exception, Ctrl-C included, the connections are closed; what was prepared or started is in `floor.leftover`.
    """
    wave = _Wave(bench, cells, attempts, floor, eta_s)
    try:
        wave.run()
    except BaseException:
        floor.close_doors()
        raise
    finally:
        wave.close_doors()
    return wave.outcomes


class _Wave:
    def __init__(
        self, bench: Bench, cells: Sequence[Cell], attempts: Mapping[str, int], floor: Floor, eta_s: float
    ) -> None:
        self.bench = bench
        self.cells = {cell.boards[0]: cell for cell in cells}
        self.attempts = attempts
        self.floor = floor
        self.ends_monotonic_s = time.monotonic() + eta_s
        self.doors: dict[str, DoorLike] = {}
        self.outcomes: dict[str, Outcome] = {}

    def run(self) -> None:
        switched = self._switch_fans(list(self.cells))
        prepared = self._each(list(switched), self._prepare(switched), Phase.PREPARE)
        if self._is_lacking(prepared, Phase.PREPARE):
            return
        with self.bench.heart.silent(self.bench.silence_s, list(prepared)):
            started = self._each(list(prepared), self._start(prepared), Phase.START)
            self.close_doors()
            self.floor.close_doors()  # of boards that are not in this wave
            if started and not self._is_lacking(started, Phase.START):
                if self.bench.plan.traits.ends_by_work:
                    self._wait_for_ends(started)
                else:
                    self._leave_alone()
        with self.bench.stops.finishing(f"the loads have ended, their files are fetched ({', '.join(self.attempts)})"):
            self._each(list(started), self._collect(started), Phase.COLLECT)

    def close_doors(self) -> None:
        """The connections of this wave."""
        while self.doors:
            _, door = self.doors.popitem()
            door.close()

    def _switch_fans(self, names: Sequence[str]) -> dict[str, list[Step]]:
        """One after the other: a driver may ask a person. Returns the fan's settings on the boards that are ready."""
        ready: dict[str, list[Step]] = {}
        for name in names:
            cell = self.cells[name]
            phase, driver = self.bench.phase(cell), self.bench.drivers.get(name)
            if phase is None or driver is None:
                ready[name] = []
                continue
            if self.floor.phases.get(name, ("", []))[0] != phase:
                self.floor.phases[name] = (UNKNOWN, [])  # a switch that fails may have done its work all the same
                self._tell(Phase.COOLING, f"fan to {phase}", name)
                began_s = time.monotonic()
                try:
                    self.floor.phases[name] = (phase, driver.set(phase))
                    self.bench.journal.note("waited", board=name, took_s=round(time.monotonic() - began_s, 3))
                except BenchError as error:
                    self._drop(name, Phase.COOLING, error)
                    continue
            ready[name] = self.floor.phases[name][1]
        return ready

    def _prepare(self, switched: Mapping[str, list[Step]]) -> Callable[[Board], tuple[Mapping[str, Any], ...]]:
        def work(board: Board) -> tuple[Mapping[str, Any], ...]:
            cell = self.cells[board.name]
            attempt = self.attempts[cell.name]
            self.floor.leftover.setdefault(board.name, set()).add(run_cell.run_name(self.bench, cell, attempt))

            def once(door: DoorLike) -> tuple[Mapping[str, Any], ...]:
                self.doors[board.name] = door
                return run_cell.prepare(self.bench, door, cell, attempt, switched[board.name])

            return contact.through_losses(self.bench, board, once, self.floor.doors.pop(board.name, None))

        return work

    def _start(self, prepared: Mapping[str, tuple[Mapping[str, Any], ...]]) -> Callable[[Board], Attempt]:
        def work(board: Board) -> Attempt:
            cell = self.cells[board.name]
            door, attempt = self.doors[board.name], self.attempts[cell.name]
            begun = run_cell.start(self.bench, door, cell, attempt, prepared[board.name])
            self.doors.pop(board.name).close()  # at once: the others may take longer, and this load begins
            return begun

        return work

    def _collect(self, started: Mapping[str, Attempt]) -> Callable[[Board], dict[str, Any]]:
        def work(board: Board) -> dict[str, Any]:
            begun = started[board.name]
            try:
                leave_open = partial(self.floor.doors.__setitem__, board.name)
                run = run_cell.collect_run(self.bench, board, begun, leave_open=leave_open)
            except (UnreachableError, DeadlineError) as error:
                # It has run to its end, for all that is known, and is not run again: it can be fetched later.
                self.floor.leftover[board.name].discard(begun.run)
                advice = "the run stays on the board: bench --resume or collect brings it home"
                raise RigError(error.what, where=error.where, advice=advice) from error
            except BenchError:
                self.floor.leftover[board.name].discard(begun.run)
                raise
            self.floor.leftover[board.name].discard(begun.run)
            self.outcomes[self.cells[board.name].name] = run
            return run

        return work

    def _each(self, names: Sequence[str], work: Callable[[Board], T], phase: Phase) -> dict[str, T]:
        """`work` on all boards at once (no limit: it is a barrier); those that fail drop out of the wave."""
        if not names:
            return {}
        good: dict[str, T] = {}
        self._tell(phase, f"{phase.value} {len(names)} boards")
        boards = [self.bench.boards[name] for name in names]
        for name, outcome in crew.each(boards, work, at_once=len(boards)).items():
            if isinstance(outcome, BugError):
                raise outcome
            if isinstance(outcome, BenchError):
                self._drop(name, phase, outcome)
            else:
                good[name] = outcome
        return good

    def _drop(self, name: str, phase: Phase, error: BenchError) -> None:
        cell = self.cells[name]
        self.outcomes[cell.name] = error
        attempt = self.attempts[cell.name]
        self.bench.journal.note(
            "lost", cell=cell.name, board=name, attempt=attempt, phase=phase.value, error=error.as_dict()
        )
        self._tell(Phase.LOST, f"lost at {phase.value}: {error}", name)

    def _is_lacking(self, ready: Mapping[str, object], phase: Phase) -> bool:
        """Whether nobody is left, or somebody without whom the others are no wave: then those drop out too.

        A load that has started without a node ends by itself, and is collected as what it is.
        """
        cells = list(self.cells.values())
        gone = sorted(name for name in self.cells if name not in ready)
        if gone and phase is Phase.PREPARE and any(cell.role for cell in cells):
            for name in ready:
                why = RigError(f"not started: {', '.join(gone)} dropped out of its wave", where=name, transient=True)
                self._drop(name, phase, why)
            return True
        return not ready

    def _leave_alone(self) -> None:
        """The silent window: nothing is sent to any board until the load should have ended."""
        bench = self.bench
        end = time.monotonic() + bench.lead_s + bench.window_s + bench.trail_s
        while (left := end - time.monotonic()) > 0:
            self._tell(Phase.MEASURE, f"load runs, {left:.0f} s left")
            time.sleep(min(left, TELL_EVERY_S))

    def _wait_for_ends(self, started: Mapping[str, Attempt]) -> None:
        """The silent window of loads that end by their own work: each board tells when its load has ended."""
        bench = self.bench
        self._tell(Phase.MEASURE, f"load runs, {bench.window_s:.0f} s at most")
        boards = [bench.boards[name] for name in started]
        # A link that is lost meanwhile is the collecting's matter, which has patience.
        crew.each(boards, lambda board: run_cell.await_end(bench, board, started[board.name]), at_once=len(boards))

    def _tell(self, phase: Phase, message: str, board: str | None = None) -> None:
        cell = next(iter(self.cells.values()))
        waves = len(self.bench.plan.waves)
        eta_s = max(0.0, self.ends_monotonic_s - time.monotonic())
        self.bench.on_progress(Progress(phase, message, board, cell.wave, waves, eta_s))
