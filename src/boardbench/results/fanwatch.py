"""Did somebody switch a fan while the load ran? Asked of the temperature curve, where no tachometer tells.

Under a constant load a board heats along a sum of saturating exponentials: it rises ever more slowly, and it does not
fall. A fan that is switched off bends the curve upwards again; one that is switched on makes it fall. Both are looked
for against what the curve itself did just before, and only where the clocks do not explain the change: a board that
throttles cools, one that is given back its clock heats. All times are board seconds, temperatures in degrees Celsius.
Pure functions; meant to keep silent when in doubt, since an alarm takes a run out.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

SIDE_S = 120.0
"""How much of the curve before a moment, and how much after it, is compared."""
SETTLE_S = 180.0
"""The first minutes of a load: the chip itself jumps, and nothing can be told from it."""
DELAY_S = 60.0
"""Between the two sides: a fan needs a while to show."""
MIN_ROWS = 4
RISE_CELSIUS = 5.0
"""More than this above the straight on of the last two minutes is a second heating up."""
FALL_CELSIUS = 5.0
CLOCK_SHARE = 0.03
"""Clocks that differ by less are the same."""


@dataclass(frozen=True)
class Point:
    """One row of the log inside the load: board seconds since the load began; `khz` is the sum of the CPU clocks."""

    at_s: float
    celsius: float
    khz: float | None


@dataclass(frozen=True)
class Break:
    """Where the curve breaks: board seconds after the load's start, and by how much it left its way (+ hotter)."""

    at_s: float
    off_celsius: float

    def __str__(self) -> str:
        how = "a second heating up" if self.off_celsius > 0 else "a fall"
        return f"{how} by {abs(self.off_celsius):.1f} degC at a constant load, {self.at_s:.0f} s after its start"


def find_break(points: Sequence[Point]) -> Break | None:
    """The largest break of a curve under constant load, or None (also when it is too short or too thin to tell)."""
    found: list[Break] = []
    times = [point.at_s for point in points]

    def between(start_s: float, end_s: float) -> Sequence[Point]:
        return points[bisect_left(times, start_s) : bisect_left(times, end_s)]

    for middle in points:
        if middle.at_s - SIDE_S < SETTLE_S:
            continue
        if times[-1] < middle.at_s + DELAY_S + SIDE_S / 2:
            break
        before = between(middle.at_s - SIDE_S, middle.at_s)
        after = between(middle.at_s + DELAY_S, middle.at_s + DELAY_S + SIDE_S)
        if min(len(before), len(after)) < MIN_ROWS:
            continue
        off = _off(before, after)
        if off is not None:
            found.append(Break(middle.at_s, off))
    return max(found, key=lambda one: abs(one.off_celsius), default=None)


def _off(before: Sequence[Point], after: Sequence[Point]) -> float | None:
    """By how much the second side is off what the first one promises, when no clock explains it; None: it is not."""
    slope, level, at_s = _line(before)
    later_s = fmean(p.at_s for p in after)
    now = fmean(p.celsius for p in after)
    clocks = _clock_change(before, after)
    # Heating slows down, so straight on is the most that an undisturbed board reaches; falling it does not go on with.
    most = level + max(0.0, slope) * (later_s - at_s)
    if now - most > RISE_CELSIUS and clocks <= CLOCK_SHARE:
        return now - most
    if level - now > FALL_CELSIUS and clocks >= -CLOCK_SHARE:
        return now - level
    return None


def _line(points: Sequence[Point]) -> tuple[float, float, float]:
    """Slope, and mean temperature at the mean time, of the line of least squares."""
    at_s, level = fmean(p.at_s for p in points), fmean(p.celsius for p in points)
    spread = sum((p.at_s - at_s) ** 2 for p in points)
    slope = sum((p.at_s - at_s) * (p.celsius - level) for p in points) / spread if spread else 0.0
    return slope, level, at_s


def _clock_change(before: Sequence[Point], after: Sequence[Point]) -> float:
    """How much faster the second side is clocked, as a share; 0 when the clocks are not known."""
    first = [p.khz for p in before if p.khz is not None]
    second = [p.khz for p in after if p.khz is not None]
    if not first or not second or fmean(first) <= 0:
        return 0.0
    return fmean(second) / fmean(first) - 1.0


def rise(points: Sequence[Point], over_s: float) -> float | None:
    """By how much the board has heated up at the end of the first `over_s`: mean of the last quarter of them, less the
    last reading before the load (or the first in it). None when the load did not last so long."""
    inside = [p for p in points if p.at_s > 0]
    if not inside or inside[-1].at_s < over_s * 0.95:
        return None
    start = next((p for p in reversed(points) if p.at_s <= 0), inside[0])
    late = [p.celsius for p in inside if over_s * 0.75 <= p.at_s <= over_s]
    return fmean(late) - start.celsius if late else None


def against_expected(
    seen_celsius: float | None, above_celsius: float | None, below_celsius: float | None, over_s: float, phase: str
) -> str:
    """Why a rise is not what the phase must show; empty when it is, or when nothing can be said."""
    if seen_celsius is None or not math.isfinite(seen_celsius):
        return ""
    said = f"in the first {over_s:.0f} s the board heats up by {seen_celsius:.1f} degC"
    if above_celsius is not None and seen_celsius <= above_celsius:
        return f"{said}; phase {phase} must show more than {above_celsius:g}"
    if below_celsius is not None and seen_celsius >= below_celsius:
        return f"{said}; phase {phase} must show less than {below_celsius:g}"
    return ""
