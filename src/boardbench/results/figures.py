"""Figures of one attempt, read from its raw files: throughput, heat, and what could not be had."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from boardbench.analysis.metrics import value_of
from boardbench.analysis.thermal import Heat, RateInterval, ThermalSample, Throughput, heat, throughput
from boardbench.errors import BenchError
from boardbench.results.raw import ThermalLog, read_thermal
from boardbench.workloads.base import Figure, Samples
from boardbench.workloads.registry import traits_of, workload

# The zone that stands for the whole chip, by kind of board: the first one that the log has.
CHIP_ZONES = ("soc-thermal_celsius", "tj-thermal_celsius")
# The rail that feeds the whole board: a maximum of another one would be no maximum of the board's.
INPUT_RAILS = ("VDD_IN_watts",)
_CUR = re.compile(r"policy(\d+)_cur_khz")


@dataclass(frozen=True)
class Figures:
    """What an attempt's files say. `unit`: what is counted; `notes`: what is missing, for people; `own`: figures that
    only this workload has.

    `samples` and `log` are the raw readings behind the figures: big, so nobody keeps them for many runs.
    """

    throughput: Throughput | None
    heat: Heat | None
    unit: str | None
    notes: tuple[str, ...]
    own: Mapping[str, Figure] = field(default_factory=dict)
    samples: Samples | None = None
    log: ThermalLog | None = None

    def value_of(self, name: str, source: str, unit: str) -> tuple[float | None, str]:
        """The figure `source` of the workload called `name`, in `unit`; or None and why there is none."""
        units = traits_of(name).figures.get(source)
        if units is None:
            return value_of(source, unit, self.throughput, self.heat)
        figure = self.own.get(source, Figure(None, "it was not measured"))
        return None if figure.value is None else figure.value * units[unit], figure.why


def figures_of(attempt: Path, run: Mapping[str, Any], time_scale: float) -> Figures:
    """The figures of the attempt in this folder, whose run.json is `run`. What cannot be read is a note, no error."""
    notes: list[str] = []
    samples = _samples(attempt, str(run["workload"]["name"]), notes)
    log, problems = read_thermal(attempt / "thermal.csv") if (attempt / "thermal.csv").is_file() else (None, [])
    notes += [str(problem) for problem in problems[:3]]
    if samples is None:
        return Figures(None, None, None, tuple(notes), log=log)
    rate = throughput([RateInterval(i.start_monotonic_s, i.end_monotonic_s, i.rate_per_s) for i in samples.intervals])
    hot = None
    if log is not None and samples.window_monotonic_s is not None:
        hot = heat(thermal_samples(log), samples.window_monotonic_s, time_scale)
        notes += [*hot.notes, *_unread(log)]
    return Figures(rate, hot, samples.unit, tuple(notes), samples.figures, samples=samples, log=log)


def _samples(attempt: Path, name: str, notes: list[str]) -> Samples | None:
    try:
        return workload(name).read(attempt / "workload")
    except BenchError as error:
        notes.append(str(error))
        return None


def _pick(log: ThermalLog, wanted: Sequence[str]) -> list[float | None]:
    column = next((name for name in wanted if name in log.columns), None)
    return [None] * len(log.rows) if column is None else log.column(column)


def thermal_samples(log: ThermalLog) -> list[ThermalSample]:
    """The rows of a thermal log with the columns that this analysis uses; the big cores are the last CPU policy."""
    policies = sorted(int(match[1]) for name in log.columns if (match := _CUR.fullmatch(name)))
    big = f"policy{policies[-1]}" if policies else "none"
    return [
        ThermalSample(*values)
        for values in zip(
            log.clock("monotonic_s"),
            _pick(log, CHIP_ZONES),
            _pick(log, [f"{big}_cur_khz"]),
            _pick(log, [f"{big}_max_khz"]),
            _pick(log, ["npu_cur_hz"]),
            _pick(log, INPUT_RAILS),
            strict=True,
        )
    ]


def _unread(log: ThermalLog) -> list[str]:
    """Which readings are missing: a sensor that fails is told, not hidden. One that never answers is told in short."""
    counts: dict[str, int] = {}
    for entry in log.missing:
        for part in filter(None, entry.split(";")):
            counts[part] = counts.get(part, 0) + 1
    never = [part for part, count in counts.items() if count == len(log.rows)]
    notes = [f"not measured: {'; '.join(part.replace('=', ': ') for part in never)}"] if never else []
    some = {part: count for part, count in counts.items() if part not in never}
    return notes + [f"{count} of {len(log.rows)} readings missing: {part}" for part, count in sorted(some.items())]
