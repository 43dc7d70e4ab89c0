"""What clocks did inside a window: residency, throttling, and the band that a throttled chip is held in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from boardbench.analysis.estimates import Estimate, Figure, Unknown, present
from boardbench.analysis.series import GAP_PERIODS, Series

ALLOWED, CURRENT = "allowed", "current"


@dataclass(frozen=True)
class Residency:
    """Share of the covered time (0 to 1) and number of samples at each clock, in the unit of the series."""

    by_time: Mapping[float, float]
    by_samples: Mapping[float, int]
    samples: int
    missing: int
    covered_s: float

    def sample_share(self, clock: float) -> float:
        """The share of samples at a clock: the figure that most reports publish."""
        return self.by_samples.get(clock, 0) / self.samples


@dataclass(frozen=True)
class Throttling:
    """How a clock was held down inside a window.

    `onset_s`: seconds from the window's start to the first reading below `top`; `depth`: 1 - lowest / top (0 to 1);
    `below_s`: time below top, each reading held to the next one; `below_share`: of the covered time. `capacity`:
    time-weighted mean clock / top (1.0: nothing was lost). `first_at`: clock -> seconds to the first reading at or
    below it. `source`: `allowed` (what the kernel grants) or `current` (also dips when idle: only for a governor that
    keeps the clock up).
    """

    throttled: bool
    top: float
    lowest: float
    onset_s: float | None
    depth: float
    below_s: float
    below_share: float
    capacity: float
    first_at: Mapping[float, float]
    episodes: int
    source: str
    samples: int


@dataclass(frozen=True)
class RegulationBand:
    """Temperature while the clock is held down: 5th, 50th and 95th percentile of the readings, degC."""

    low: float
    middle: float
    high: float
    n: int


def residency(clock: Series, start_s: float, end_s: float) -> Residency | Unknown:
    """How long the clock stood where.

    A reading holds until the next row; before a gap (over 2.5 periods) and at the log's end, one period. Not
    determinable: no reading inside the window.
    """
    pieces = _held_on(clock, start_s, end_s)
    inside = clock.inside(start_s, end_s) if end_s >= start_s else None
    found = present(inside.values) if inside is not None else []
    if inside is None or not found:
        return Unknown("no clock reading inside the window")
    total = sum(width for _, width, _ in pieces)
    by_time: dict[float, float] = {}
    for _, width, value in pieces:
        by_time[value] = by_time.get(value, 0.0) + width
    samples = dict(sorted(Counter(found).items()))
    shares = {level: width / total for level, width in sorted(by_time.items())} if total > 0 else {}
    return Residency(shares, samples, len(found), len(inside.values) - len(found), total)


def throttling(
    clock: Series, start_s: float, end_s: float, top: float | None = None, source: str = ALLOWED
) -> Throttling | Unknown:
    """Onset, depth and time below the top clock, inside the window.

    `top`: the highest clock that the board has; without it the highest of the whole series, before the load too, which
    misses a clock that was held down from the first row on. Not determinable: no reading inside the window.
    """
    whole = present(clock.values)
    pieces = _held_on(clock, start_s, end_s)
    if not pieces or not whole:
        return Unknown("no clock reading inside the window")
    highest = max(whole) if top is None else top
    below = [(at, width, value) for at, width, value in pieces if value < highest]
    total = sum(width for _, width, _ in pieces)
    below_s = sum(width for _, width, _ in below)
    lowest = min(value for _, _, value in pieces)
    first = _first_at([(at - start_s, value) for at, _, value in below])
    entries = [value < highest for _, _, value in pieces]
    return Throttling(
        throttled=bool(below), top=highest, lowest=lowest, onset_s=below[0][0] - start_s if below else None,
        depth=1 - lowest / highest if highest > 0 else 0.0, below_s=below_s,
        below_share=below_s / total if total > 0 else 0.0,
        capacity=sum(w * v for _, w, v in pieces) / total / highest if total > 0 and highest > 0 else 1.0,
        first_at=first, episodes=int(entries[0]) + sum(b and not a for a, b in pairwise(entries)),
        source=source, samples=len(pieces),
    )  # fmt: skip


def _first_at(below: list[tuple[float, float]]) -> dict[float, float]:
    """Each clock that was seen -> when it or a lower one was first read, highest clock first."""
    lower: list[tuple[float, float]] = []
    for at, value in below:
        if not lower or value < lower[-1][1]:
            lower.append((at, value))
    found: dict[float, float] = {}
    step = 0
    for level in sorted({value for _, value in below}, reverse=True):
        while lower[step][1] > level:
            step += 1
        found[level] = lower[step][0]
    return found


def regulation_band(
    temperature: Series, held_down: Throttling | Unknown, start_s: float, end_s: float
) -> RegulationBand | Unknown:
    """The band in which the kernel regulates: readings from the throttling's onset to the window's end.

    Not determinable: never throttled, or fewer than 20 readings after the onset (a 5th percentile needs them).
    """
    if isinstance(held_down, Unknown):
        return held_down
    if held_down.onset_s is None:
        return Unknown("the clock was never held down")
    found = present(temperature.inside(start_s + held_down.onset_s, end_s).values)
    if len(found) < 20:
        return Unknown(f"{len(found)} temperature readings after the onset, 20 are needed")
    low, middle, high = np.percentile(found, [5, 50, 95], method="inverted_cdf")
    return RegulationBand(float(low), float(middle), float(high), len(found))


def rig_plateau(npu: Series, after_s: float = 300.0, drop: float = 15.0) -> tuple[float, float] | Unknown:
    """The window that the field rig's thermal analyser calls plateau, for comparison with its figures.

    From 300 s after the log's start to the last row before the NPU falls more than 15 degC below its peak.
    """
    rows = [(t, v) for t, v in zip(npu.times_s, npu.values, strict=True) if v is not None]
    late = [(t, v) for t, v in rows if t >= rows[0][0] + after_s] if rows else []
    if not late:
        return Unknown(f"the log has no reading later than {after_s:g} s after its start")
    peak = max(v for _, v in rows)
    end = late[0][0]
    for at, value in late:
        if value < peak - drop:
            break
        end = at
    return late[0][0], end


def busy_share(utilisation_percent: Series, start_s: float, end_s: float) -> Figure:
    """Mean utilisation over a window in percent, each reading held to the next; not determinable without a reading."""
    pieces = _held_on(utilisation_percent, start_s, end_s)
    total = sum(width for _, width, _ in pieces)
    if total <= 0:
        return Unknown("no utilisation reading inside the window")
    mean = sum(width * value for _, width, value in pieces) / total
    return Estimate(mean, "percent", len(pieces), "time-weighted mean of readings")


def _held_on(series: Series, start_s: float, end_s: float) -> list[tuple[float, float, float]]:
    """(time, seconds held, reading) of the readings inside the window."""
    period = series.period_s or 0.0
    rows = list(zip(series.times_s, series.values, strict=True))
    found = []
    for index, (at, value) in enumerate(rows):
        if value is None or not start_s <= at <= end_s:
            continue
        until = rows[index + 1][0] if index + 1 < len(rows) else at + period
        if until - at > GAP_PERIODS * period:
            until = at + period
        found.append((at, max(0.0, min(until, end_s) - at), value))
    return found
