"""A prediction against its measurement, reported as it is: hit, missed or undecided, and by how much."""

from __future__ import annotations

from dataclasses import dataclass

from boardbench.analysis.decisions import HIT, MISSED, UNDECIDED
from boardbench.analysis.estimates import Estimate, Figure, Interval, Unknown


@dataclass(frozen=True)
class Outcome:
    """`verdict`: against the bar that was registered. `miss`: measured - predicted, in the unit of both.

    `inside`: whether the measured value lies in the interval that was predicted; None where none was.
    """

    verdict: str
    miss: Figure
    inside: bool | None
    why: str


def against(predicted: Figure, measured: Figure, bar: float, higher_is_hit: bool = True) -> Outcome:
    """`bar`: the value, fixed beforehand, that the measured one must reach (in the same unit) for a hit.

    Judged by the measured interval: all of it at or beyond the bar is a hit, all of it short of it missed, a bar inside
    it undecided; without an interval by the value alone, and `why` says so. Not the predicted value but the bar
    decides; how far the prediction was off is told whatever the verdict.
    """
    if isinstance(measured, Unknown):
        return Outcome(UNDECIDED, Unknown(measured.why), None, f"not measured: {measured.why}")
    inside = measured.interval
    low, high = (inside.low, inside.high) if inside else (measured.value, measured.value)
    if not higher_is_hit:
        low, high, bar_seen = -high, -low, -bar
    else:
        bar_seen = bar
    verdict = HIT if low >= bar_seen else MISSED if high < bar_seen else UNDECIDED
    doubt = "" if inside else ", without an interval"
    why = f"measured {measured.text}{doubt}, bar {bar:.4g}"
    if isinstance(predicted, Unknown):
        return Outcome(verdict, Unknown(predicted.why), None, f"{why}; no prediction: {predicted.why}")
    if predicted.unit != measured.unit:
        raise ValueError(f"a prediction in {predicted.unit!r} and a measurement in {measured.unit!r}")
    off = measured.value - predicted.value
    ends = Interval(inside.low - predicted.value, inside.high - predicted.value, inside.level) if inside else None
    miss = Estimate(off, measured.unit, measured.n, "measured - predicted", ends)
    held = predicted.interval.holds(measured.value) if predicted.interval else None
    return Outcome(verdict, miss, held, f"predicted {predicted.text}, {why}")
