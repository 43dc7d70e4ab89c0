"""Has a rate settled, at which level, and how much below its peak? By steps and slope, not by "the last third".

The field rig's own definition (`rig_definition`: peak = best run, steady = mean of the last third) is kept beside it to
recompute published figures; here the data are asked whether there is a steady state at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil

import numpy as np
import numpy.typing as npt
from scipy import stats

from boardbench.analysis.changepoint import ChangePoint, change_points
from boardbench.analysis.estimates import LEVEL, Estimate, Figure, Interval, Unknown
from boardbench.analysis.loss import best_level, loss_percent
from boardbench.analysis.trend import (
    FALLING,
    NO_TREND,
    Trend,
    block_means,
    effective_count,
    noise_lag1,
    paired_readings,
    trend,
)

Array = npt.NDArray[np.float64]
STEADY, STILL_FALLING, STILL_RISING, NOT_SHOWN = "steady", "still falling", "still rising", "not determinable"
MIN_TAIL = 8
"""A plateau of fewer readings, or shorter than two fifths of the record, is not called one."""
TAIL_SHARE = 0.4
TOLERANCE = 0.01
"""A level that changes by no more than this share over its own length is steady: less was never ranked in the field."""


@dataclass(frozen=True)
class SteadyState:
    """`verdict`: steady, still falling, still rising, or not determinable; `why` says on what it rests.

    Rates are in the unit that was given. `first`, `peak`: the first and the best reading (its own time: `peak_at`).
    `peak_level`: the best median of 3 neighbours. `steady`: the mean level of the settled tail, or why there is none.
    `tail`: the mean level of the last part whether settled or not, from `tail_from` on. `degradation`: percent from
    peak level to tail; `at_least` says that it was not over when the record ended. `change`: how much the tail
    changes over its own length, percent. `steps`: all steps of the level, at the times `steps_at`.
    """

    verdict: str
    why: str
    first: Figure
    peak: Figure
    peak_at: float | None
    peak_level: Figure
    steady: Figure
    tail: Figure
    tail_from: float | None
    degradation: Figure
    at_least: bool
    change: Figure
    steps: tuple[ChangePoint, ...]
    steps_at: tuple[float, ...]
    n: int
    missing: int


def steady_state(
    times: Sequence[float],
    rates: Sequence[float | None],
    unit: str = "1/s",
    tolerance: float = TOLERANCE,
    level: float = LEVEL,
) -> SteadyState:
    """Whether and where a rate settles. `times`: monotonic seconds of each interval (its middle or its end).

    1. Steps: binary segmentation (`change_points`); those under `tolerance` of the level are left out of account.
    2. The longest flat tail after the last step is sought, at least 8 readings and two fifths of the record: *steady*
       when the whole interval of its change (Theil-Sen, correlated neighbours) lies within +-tolerance of its level.
    3. Without one, the last two fifths speak: *still falling* or *still rising* when the interval of their change
       leaves out 0 and the change is more than the tolerance; else not determinable.
    More than 300 readings are first told in block means ("readings" below are then blocks); first and peak are not.
    Fewer than 8 readings, or rates not above 0: nothing is determinable but first and peak.
    """
    all_at, every = paired_readings(times, rates)
    missing = len(rates) - len(every)
    at, found = block_means(all_at, every)
    if len(found) < MIN_TAIL or float(found.min()) <= 0:
        why = (
            f"a steady state needs {MIN_TAIL} readings, there are {len(found)}"
            if len(found) < MIN_TAIL
            else "a rate of 0 or less was read: look at the errors of the load first"
        )
        return _nothing(why, all_at, every, unit, missing)
    steps = change_points(found.tolist())
    shortest = max(MIN_TAIL, ceil(TAIL_SHARE * len(found)))
    last_step = max((step.index for step in steps if abs(step.relative) > tolerance), default=0)
    lag1 = noise_lag1(_without(steps, found))
    start, verdict, why, moved = _tail(at, found, last_step, shortest, tolerance, level, lag1)
    tail = _level(found[start:], unit, level, lag1, f"mean of the last {len(found) - start} of {len(found)} readings")
    peak_level = _peak_level(found, unit, level, lag1)
    steady: Figure = tail if verdict == STEADY else Unknown(f"{verdict}: {why}" if verdict != NOT_SHOWN else why)
    return SteadyState(
        verdict=verdict, why=why, first=_one(every[0], unit, "first reading"),
        peak=_one(every.max(), unit, "best reading"), peak_at=float(all_at[every.argmax()]), peak_level=peak_level,
        steady=steady, tail=tail, tail_from=float(at[start]), degradation=_degradation(peak_level, tail, level),
        at_least=verdict == STILL_FALLING, change=moved, steps=steps,
        steps_at=tuple(float(at[step.index]) for step in steps), n=len(every), missing=missing,
    )  # fmt: skip


def _without(steps: Sequence[ChangePoint], found: Array) -> Array:
    """The readings with each level taken out: a step is not noise that resembles its neighbour."""
    edges = [0, *[step.index for step in steps], len(found)]
    return np.concatenate([found[a:b] - found[a:b].mean() for a, b in pairwise(edges)])


def _tail(
    at: Array, found: Array, last_step: int, shortest: int, tolerance: float, level: float, lag1: float
) -> tuple[int, str, str, Figure]:
    """Where the tail starts, the word for it, why, and how much it changes."""
    latest = len(found) - shortest
    if last_step > latest:
        why = f"the level stepped {len(found) - last_step} readings before the end; {shortest} after it are needed"
        return latest, NOT_SHOWN, why, Unknown(why)
    for start in _starts(last_step, latest):
        moved = trend(at[start:].tolist(), found[start:].tolist(), level, lag1)
        if isinstance(moved, Trend) and _flat(moved, found[start:], tolerance):
            figure = _change(moved, found[start:])
            why = f"{figure.text} over the last {len(found) - start} of {len(found)} readings"
            return start, STEADY, f"{why}, within +-{100 * tolerance:g} %", figure
    # Not flat. Only the shortest tail may say where it goes: a longer one tells of what is over.
    moved = trend(at[latest:].tolist(), found[latest:].tolist(), level, lag1)
    if isinstance(moved, Unknown):
        return latest, NOT_SHOWN, moved.why, moved
    figure = _change(moved, found[latest:])
    why = f"{figure.text} over the last {shortest} of {len(found)} readings"
    if moved.word != NO_TREND and abs(figure.value) > 100 * tolerance:
        return latest, STILL_FALLING if moved.word == FALLING else STILL_RISING, why, figure
    return latest, NOT_SHOWN, f"neither flat within {100 * tolerance:g} % nor moving by more: {why}", figure


def _starts(first: int, latest: int) -> list[int]:
    """Up to 13 starts from the longest tail to the shortest allowed."""
    return sorted({round(float(start)) for start in np.linspace(first, latest, 13)})


def _flat(moved: Trend, tail: Array, tolerance: float) -> bool:
    allowed = tolerance * float(tail.mean())
    return -allowed <= moved.change_interval.low and moved.change_interval.high <= allowed


def _change(moved: Trend, tail: Array) -> Estimate:
    share = 100.0 / float(tail.mean())
    ends = moved.change_interval
    inside = Interval(ends.low * share, ends.high * share, ends.level, ends.method)
    return Estimate(moved.change * share, "percent", moved.n, "Theil-Sen slope x length of the tail", inside)


def _level(tail: Array, unit: str, level: float, lag1: float, method: str) -> Estimate:
    """Mean with a t interval for as many readings as the correlated ones are worth."""
    worth = effective_count(len(tail), lag1)
    half = float(stats.t.ppf((1 + level) / 2, max(1.0, worth - 1))) * float(tail.std(ddof=1)) / worth**0.5
    mean = float(tail.mean())
    return Estimate(
        mean, unit, len(tail), method, Interval(mean - half, mean + half, level, "t, correlated neighbours")
    )


def _peak_level(found: Array, unit: str, level: float, lag1: float) -> Estimate:
    """The best median of three neighbours, and the noise of one reading (from first differences).

    The best of many is too high by chance: its interval reaches down by the expected excess of the best of n / 3.
    """
    top = best_level(found.tolist())
    steps = np.diff(found)
    noise = 1.4826 * float(np.median(np.abs(steps - np.median(steps)))) / (2 * (1 - lag1)) ** 0.5
    # 1.16: a median of three is that much noisier than their mean; the rest: correlated neighbours average out less.
    error = 1.16 * noise * ((1 + (4 * lag1 + 2 * lag1**2) / 3) / 3) ** 0.5
    quantile = float(stats.t.ppf((1 + level) / 2, max(3, len(found) // 2 - 1)))
    excess = float(stats.norm.ppf(1 - 0.5 / max(1.0, len(found) / 3))) * error
    ends = Interval(top - excess - quantile * error, top + quantile * error, level, "t, for the best of many")
    return Estimate(top, unit, len(found), "best median of 3 neighbouring readings", ends)


def _degradation(peak: Estimate, tail: Estimate, level: float) -> Figure:
    """1 - tail / peak in percent; the interval joins the errors of both ends."""
    ratio, lost = tail.value / peak.value, loss_percent(tail.value, peak.value)
    if lost is None:
        return Unknown("the peak is not above 0")
    if peak.interval is None or tail.interval is None:
        return Unknown("the peak or the tail has no interval")
    up = tail.interval.high - tail.value
    worst_peak, best_peak = peak.interval.low, peak.interval.high
    if worst_peak <= 0:
        return Unknown("the peak is not above its noise")
    toward = ratio * float(np.hypot(up / tail.value, (peak.value - worst_peak) / peak.value))
    away = ratio * float(np.hypot(up / tail.value, (best_peak - peak.value) / peak.value))
    ends = Interval(lost - 100 * toward, lost + 100 * away, level, "errors of peak and tail joined")
    return Estimate(lost, "percent", tail.n, "1 - tail level / peak level", ends)


def _one(value: float, unit: str, method: str) -> Estimate:
    return Estimate(float(value), unit, 1, method)


def _nothing(why: str, at: Array, found: Array, unit: str, missing: int) -> SteadyState:
    unknown = Unknown(why)
    some = len(found) > 0
    return SteadyState(
        verdict=NOT_SHOWN, why=why, first=_one(found[0], unit, "first reading") if some else unknown,
        peak=_one(found.max(), unit, "best reading") if some else unknown,
        peak_at=float(at[found.argmax()]) if some else None, peak_level=unknown, steady=unknown, tail=unknown,
        tail_from=None, degradation=unknown, at_least=False, change=unknown, steps=(), steps_at=(),
        n=len(found), missing=missing,
    )  # fmt: skip
