"""Readings of a log inside a load window, by the monotonic clock; a missing reading stays missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev

import numpy as np
import numpy.typing as npt

from boardbench.analysis.estimates import Unknown, present

Array = npt.NDArray[np.float64]
GAP_PERIODS = 2.5
"""Up to two periods between readings is a tick that came late; more is a gap in the log."""


@dataclass(frozen=True)
class Series:
    """A column of a log: monotonic seconds (forward only, else ValueError) and readings, None where one failed."""

    times_s: tuple[float, ...]
    values: tuple[float | None, ...]

    def __post_init__(self) -> None:
        if len(self.times_s) != len(self.values):
            raise ValueError(f"{len(self.times_s)} times and {len(self.values)} readings are no series")
        if any(b <= a for a, b in zip(self.times_s, self.times_s[1:], strict=False)):
            raise ValueError("time does not go forward: use the monotonic clock")
        present(self.values)

    @staticmethod
    def of(times_s: Sequence[float], values: Sequence[float | None]) -> Series:
        """A series from any two sequences."""
        return Series(tuple(float(t) for t in times_s), tuple(None if v is None else float(v) for v in values))

    def inside(self, start_s: float, end_s: float) -> Series:
        """The rows from `start_s` to `end_s`, both ends included. Raises ValueError for a window that ends early."""
        if end_s < start_s:
            raise ValueError(f"a window from {start_s} s to {end_s} s ends before it starts")
        rows = [(t, v) for t, v in zip(self.times_s, self.values, strict=True) if start_s <= t <= end_s]
        return Series(tuple(t for t, _ in rows), tuple(v for _, v in rows))

    @property
    def period_s(self) -> float | None:
        """The median time between rows; None with fewer than two."""
        return median(np.diff(self.times_s).tolist()) if len(self.times_s) > 1 else None

    @property
    def blank(self) -> bool:
        """Whether there are rows and not one reading: the whole column failed."""
        return bool(self.values) and all(value is None for value in self.values)

    @property
    def all_zero(self) -> bool:
        """Whether there are readings and all are exactly 0: for a temperature, a clock or a voltage a failed read."""
        found = present(self.values)
        return bool(found) and not any(found)


@dataclass(frozen=True)
class Summary:
    """Plain figures of readings in their own unit; each counts alike. `stdev`: sample; None below 2 readings."""

    n: int
    missing: int
    mean: float
    stdev: float | None
    minimum: float
    median: float
    maximum: float

    @property
    def text(self) -> str:
        """`379.9 +- 13.5 (n 5)`."""
        return f"{self.mean:.4g}{'' if self.stdev is None else f' +- {self.stdev:.2g}'} (n {self.n})"


def summarise(values: Sequence[float | None]) -> Summary | Unknown:
    """Count, missing, mean, sample standard deviation, least, median and greatest. None at all: not determinable."""
    found = present(values)
    if not found:
        return Unknown(f"none of {len(values)} readings is there" if values else "there is no reading")
    return Summary(
        n=len(found), missing=len(values) - len(found), mean=fmean(found),
        stdev=stdev(found) if len(found) > 1 else None, minimum=min(found), median=median(found), maximum=max(found),
    )  # fmt: skip


@dataclass(frozen=True)
class WindowFigures:
    """Readings inside a load window. `covered_share`: the share of the window that has readings without a gap.

    `time_weighted_mean`: over the covered time; None where there is none. `first`: the first reading (start state).
    """

    summary: Summary
    first: float
    time_weighted_mean: float | None
    covered_share: float
    rows: int


def over_window(series: Series, start_s: float, end_s: float) -> WindowFigures | Unknown:
    """All figures of a column inside [start, end]: no reading before or after the load counts.

    Not determinable: a window without length, no row in it, or all readings missing.
    """
    if not end_s > start_s:
        return Unknown(f"the window from {start_s:g} s to {end_s:g} s has no length")
    cut = series.inside(start_s, end_s)
    summary = summarise(cut.values)
    if isinstance(summary, Unknown):
        return Unknown(f"{summary.why} inside the load window")
    widths, middles = held(series, start_s, end_s)
    covered = float(widths.sum())
    return WindowFigures(
        summary=summary,
        first=next(value for value in cut.values if value is not None),
        time_weighted_mean=float(widths @ middles) / covered if covered > 0 else None,
        covered_share=covered / (end_s - start_s),
        rows=len(cut.times_s),
    )


def held(series: Series, start_s: float, end_s: float) -> tuple[Array, Array]:
    """Widths (s) and mean readings of the pieces between neighbouring rows, cut by the window (trapezoid).

    A piece counts only when both its rows have a reading and lie no more than 2.5 periods apart. At the window's
    edges the piece that crosses is cut there, its readings interpolated.
    """
    period = series.period_s
    times = np.array(series.times_s)
    values = np.array([np.nan if v is None else v for v in series.values])
    if period is None:
        return np.zeros(0), np.zeros(0)
    a, b, left, right = times[:-1], times[1:], values[:-1], values[1:]
    low, high = np.maximum(a, start_s), np.minimum(b, end_s)
    good = np.isfinite(left) & np.isfinite(right) & (b - a <= GAP_PERIODS * period) & (high > low)
    a, b, left, right, low, high = (column[good] for column in (a, b, left, right, low, high))
    slope = (right - left) / (b - a)
    return high - low, left + slope * ((low + high) / 2 - a)
