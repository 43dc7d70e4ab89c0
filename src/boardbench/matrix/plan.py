"""The locked plan: what will run where, in which order, and by which rules. A pure function of matrix and boards."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from typing import Any

from boardbench.errors import InputError
from boardbench.inventory import Board
from boardbench.matrix.arms import Arm, blocks_of
from boardbench.matrix.cluster import cluster_workload, members
from boardbench.matrix.factors import Setting
from boardbench.matrix.guard import Guard, guards_of
from boardbench.matrix.levels import level_settings
from boardbench.matrix.load import Matrix
from boardbench.matrix.order import caveat, order_waves
from boardbench.results import store
from boardbench.workloads.base import Durations, Traits
from boardbench.workloads.registry import traits_of, workload

SCHEMA_VERSION = 1
MIN_LOGGER_PERIOD_S = 0.1
"""Wall seconds: a logger that samples faster than this loads the board that it watches."""
SCALED_GAP_S = 0.5
"""Wall seconds: on boards whose time is scaled a shorter hole in the log is never held against a run."""
OVERHEAD_S = 20.0
"""Wall seconds of a wave beside cooling and load (connections, logger start, fetch): for the estimate only."""


@dataclass(frozen=True)
class Cell:
    """One arm, one repetition, and the boards that it runs on. `role`: its part in a wave that works together."""

    number: int
    name: str
    wave: int
    arm: str
    repetition: int
    boards: tuple[str, ...]
    role: str = ""


@dataclass(frozen=True)
class Plan:
    """A matrix, the boards it runs on and their time scale; equal inputs give an equal plan."""

    matrix: Matrix
    boards: tuple[str, ...]
    time_scale: float
    arms: tuple[Arm, ...]
    cells: tuple[Cell, ...]
    guards: Mapping[str, Guard]

    @property
    def waves(self) -> tuple[tuple[Cell, ...], ...]:
        """The cells that start together, in order."""
        return tuple(tuple(group) for _, group in itertools.groupby(self.cells, key=lambda cell: cell.wave))

    def wall_s(self, board_s: float) -> float:
        """A duration of board time in wall seconds."""
        return board_s / self.time_scale

    @property
    def traits(self) -> Traits:
        """In what the workload differs from a load of fixed duration."""
        return traits_of(self.matrix.workload)

    @property
    def work_scale(self) -> float:
        """The time scale of the work: real work takes its time, however fast a board's physics run."""
        return 1.0 if self.traits.ends_by_work else self.time_scale

    @property
    def load_scale(self) -> float:
        """By what the load's durations are divided: the scale of the work, but never so that a load is shorter than the
        matrix's `min_wall_s` (rates are per wall second, and a second of load has too few samples)."""
        floor_s = self.matrix.min_wall_s
        return min(self.work_scale, max(1.0, self.matrix.duration_s / floor_s)) if floor_s else self.work_scale

    @property
    def window_s(self) -> float:
        """How long a load lasts, in wall seconds."""
        return self.matrix.duration_s / self.load_scale

    @property
    def interval_s(self) -> float:
        """An interval of the load, in wall seconds."""
        return self.matrix.interval_s / self.load_scale

    @property
    def logger_period_s(self) -> float:
        """The logger's real period in wall seconds."""
        return max(self.matrix.logger.period_s / self.work_scale, MIN_LOGGER_PERIOD_S)

    @property
    def max_gap_s(self) -> float:
        """The longest hole in the log that a run may have, in wall seconds.

        Where boards' time runs faster, a wall period is the least that a host can hold, not what the matrix wants, and
        a hole of a few of them is the host's doing.
        """
        gap_s = self.logger_period_s * self.matrix.logger.max_gap_periods
        return max(gap_s, SCALED_GAP_S) if self.time_scale > 1 else gap_s

    @property
    def estimated_s(self) -> float:
        """Wall seconds that the campaign will take when nothing is retried and cooling takes half of its limit."""
        cooling_s = self.matrix.cool.timeout_s / 2 if self.matrix.cool else 0.0
        return len(self.waves) * (self.window_s + self.wall_s(cooling_s) + OVERHEAD_S)

    def arm(self, name: str) -> Arm:
        """The arm of this name."""
        return next(arm for arm in self.arms if arm.name == name)

    def cell(self, name: str) -> Cell:
        """The cell of this name."""
        return next(cell for cell in self.cells if cell.name == name)

    def select(self, globs: Sequence[str]) -> tuple[str, ...] | None:
        """Names of the cells that one of `globs` fits; None (all of them) without a glob. Raises InputError."""
        if not globs:
            return None
        for glob in globs:
            if not any(fnmatchcase(cell.name, glob) for cell in self.cells):
                raise InputError(f"no cell fits '{glob}'", where="--cells", advice="--list-cells shows all")
        return tuple(cell.name for cell in self.cells if any(fnmatchcase(cell.name, glob) for glob in globs))

    def chosen_waves(self, selected: Sequence[str] | None) -> tuple[tuple[Cell, ...], ...]:
        """The waves with only the selected cells (None: all), without those that are empty then."""
        if selected is None:
            return self.waves
        kept = (tuple(cell for cell in wave if cell.name in selected) for wave in self.waves)
        return tuple(wave for wave in kept if wave)

    def options(self, arm: Arm) -> dict[str, Any]:
        """The workload's options in this arm."""
        return {**self.matrix.workload_options, **arm.options}

    def settings(self, arm: Arm, board: str, facts: Mapping[str, Any] | None) -> tuple[Setting, ...]:
        """The settings of a run of this arm on a board with these facts. Raises RigError (see `level_settings`)."""
        path = str(self.matrix.path)
        return (*self.matrix.settings, *level_settings(self.matrix.factors, arm, board, facts, path))

    @property
    def caveat(self) -> str:
        """What the order leaves open; empty when nothing."""
        return caveat(self.matrix.repeats, self.matrix.order, blocks_of(self.arms, self.matrix.factors))

    def body(self) -> dict[str, object]:
        """The plan as JSON values, without its own hash."""
        matrix = self.matrix
        cool = matrix.cool
        return {
            "schema_version": SCHEMA_VERSION,
            "matrix": matrix.name,
            "matrix_file_sha256": matrix.file_sha256,
            "question": matrix.question,
            "domain": matrix.domain,
            "workload": {"name": matrix.workload, "options": dict(matrix.workload_options)},
            "board_time": {"duration_s": matrix.duration_s, "interval_s": matrix.interval_s},
            "wall_time": {
                "duration_s": self.window_s,
                "interval_s": self.interval_s,
                "logger_period_s": self.logger_period_s,
                "logger_max_gap_s": self.max_gap_s,
                "estimated_s": self.estimated_s,
            },
            "time_scale": self.time_scale,
            "factors": [factor.body() for factor in matrix.factors],
            "restricted_to": {name: list(levels) for name, levels in matrix.choice.only.items()},
            "baselines": [{"arm": b.arm, "is": b.describes} for b in matrix.baselines],
            "repeats": matrix.repeats,
            "order": {"kind": matrix.order, "seed": matrix.seed},
            "attempts": matrix.attempts,
            "cool": None if cool is None else {**asdict(cool), "zone_types": list(cool.zone_types)},
            **({"limits": dict(matrix.limits)} if matrix.limits else {}),
            "guard": {name: guard.body() for name, guard in self.guards.items()},
            "settings": [{"resource": s.resource, "args": dict(s.args)} for s in matrix.settings],
            "logger": {
                "payload": matrix.logger.payload,
                "period_s": matrix.logger.period_s,
                "max_gap_periods": matrix.logger.max_gap_periods,
            },
            "metrics": [
                {"name": m.name, "unit": m.unit, "direction": m.direction, "from": m.source} for m in matrix.metrics
            ],
            "rules": [rule.body() for rule in matrix.rules],
            "prediction": None if matrix.prediction is None else matrix.prediction.body(),
            "gates": sorted(matrix.gates),
            "boards": list(self.boards),
            **self._runs(),
        }

    def _runs(self) -> dict[str, object]:
        return {
            "arms": [
                {
                    "name": a.name,
                    "levels": dict(a.levels),
                    "phase": a.phase,
                    "control_of": a.control_of,
                    "options": dict(a.options),
                }
                for a in self.arms
            ],
            "cells": [
                {
                    "number": c.number,
                    "name": c.name,
                    "wave": c.wave,
                    "arm": c.arm,
                    "repetition": c.repetition,
                    "boards": list(c.boards),
                    **({"role": c.role} if c.role else {}),
                }
                for c in self.cells
            ],
        }

    @property
    def sha256(self) -> str:
        """Hash of the canonical JSON of `body()`."""
        return store.canonical_sha256(self.body())

    def document(self) -> dict[str, object]:
        """`plan.json`: the body and its hash."""
        return {**self.body(), "sha256": self.sha256}


def make_plan(matrix: Matrix, boards: Sequence[Board], time_scale: float = 1.0) -> Plan:
    """The plan for these boards, as `choose_boards` gave them. `time_scale` is 1 for hardware. Raises InputError."""
    names = [board.name for board in boards]
    if not names or len(set(names)) != len(names):
        raise InputError("a plan needs boards, each once", where=str(matrix.path))
    arms = matrix.arms
    _check_options(matrix, arms)
    cells: list[Cell] = []
    blocks = blocks_of(arms, matrix.factors)
    waves = order_waves(len(arms), matrix.repeats, matrix.order, matrix.seed, blocks)
    for wave, (arm_index, repetition) in enumerate(waves, start=1):
        arm = arms[arm_index]
        options = {**matrix.workload_options, **arm.options}
        for board, role in members(matrix.workload, options, names):
            number = len(cells) + 1
            name = f"{number:03d}-{arm.name}-{board}"
            cells.append(Cell(number, name, wave, arm.name, repetition, (board,), role))
    return Plan(matrix, tuple(names), time_scale, arms, tuple(cells), guards_of(matrix.guard, boards))


def _check_options(matrix: Matrix, arms: Sequence[Arm]) -> None:
    """The workload takes the options of each arm. Raises InputError before any board is asked."""
    if cluster_workload(matrix.workload) is not None:
        return  # `members` asks it
    for arm in arms:
        try:
            workload(matrix.workload).argv("plan", {**matrix.workload_options, **arm.options}, Durations(1.0, 1.0))
        except InputError as error:
            raise InputError(f"arm {arm.name}: {error.what}", where=str(matrix.path), advice=error.advice) from error
