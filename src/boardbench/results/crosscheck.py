"""One quantity, counted twice: a number that a parser took from a tool must agree with a count of another kind.

The figure that a wrong column gives is as neat as the right one, so nothing in one file can show the mistake. It shows
against a second source: a rate against an amount and a time, calls against the total time and the time of one call,
what clients sent against what nodes answered.
"""

from __future__ import annotations

from collections.abc import Sequence

from boardbench.results.problems import Reason
from boardbench.workloads.base import Pair

CODE = "instruments-disagree"
TOLERANCE = 0.02
"""Relative. Rounding and the edges of an interval stay below it; a wrong column is off by more."""


def disagreements(pairs: Sequence[Pair], tolerance: float = TOLERANCE) -> tuple[Reason, ...]:
    """A reason a pair that is further apart than `tolerance` (relative to the larger one), or has two units."""
    return tuple(Reason(CODE, text) for pair in pairs if (text := _apart(pair, tolerance)))


def _apart(pair: Pair, tolerance: float) -> str:
    one, other = pair.parsed, pair.independent
    said = f"{pair.what}: {one.source} says {one.value:g} {one.unit}, {other.source} says {other.value:g} {other.unit}"
    if one.unit != other.unit:
        return f"{said}; these cannot be compared"
    largest = max(abs(one.value), abs(other.value))
    return said if abs(one.value - other.value) > tolerance * largest else ""
