"""The operating point of a loaded system, and which of its numbers may be quoted for a decision.

Past the operating point more load gives longer queues and no more work: the tails there compare queues, not systems.
Such rows are kept and labelled, and no decision rests on them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

SHARE_OF_PEAK = 0.98
"""The operating point is the lowest load that gives this share of the peak rate."""


class Regime(StrEnum):
    """Where a row stands in its configuration's curve."""

    BELOW = "below"
    OPERATING_POINT = "operating-point"
    OVERLOAD = "overload"


@dataclass(frozen=True)
class LoadPoint:
    """One row of a load curve: a configuration, the requests in flight, and the work done per second."""

    configuration: str
    concurrency: int
    rate_per_s: float


@dataclass(frozen=True)
class Quote:
    """A number that a decision wants to use, and the row that it was measured in."""

    what: str
    configuration: str
    concurrency: int


def operating_point(points: Iterable[LoadPoint]) -> int:
    """The concurrency of the operating point of one configuration. Raises ValueError without points."""
    rates: dict[int, list[float]] = {}
    for point in points:
        rates.setdefault(point.concurrency, []).append(point.rate_per_s)
    if not rates:
        raise ValueError("a load curve without points has no operating point")
    means = {concurrency: sum(found) / len(found) for concurrency, found in rates.items()}
    peak = max(means.values())
    return min(concurrency for concurrency, rate in means.items() if rate >= SHARE_OF_PEAK * peak)


def regimes(points: Sequence[LoadPoint]) -> Mapping[tuple[str, int], Regime]:
    """The regime of each row, each configuration by its own curve."""
    found: dict[tuple[str, int], Regime] = {}
    for name in sorted({point.configuration for point in points}):
        mine = [point for point in points if point.configuration == name]
        best = operating_point(mine)
        for point in mine:
            found[name, point.concurrency] = _regime(point.concurrency, best)
    return found


def _regime(concurrency: int, operating: int) -> Regime:
    if concurrency == operating:
        return Regime.OPERATING_POINT
    return Regime.BELOW if concurrency < operating else Regime.OVERLOAD


def barred(points: Sequence[LoadPoint], quotes: Sequence[Quote]) -> tuple[str, ...]:
    """Why these numbers may not be quoted together for a decision, each as `overload-quoted: ...`; none: they may.

    A number from a row past its operating point, or from a row that was never measured, is barred.
    """
    labels = regimes(points)
    said: list[str] = []
    for quote in quotes:
        label = labels.get((quote.configuration, quote.concurrency))
        at = f"{quote.what} of {quote.configuration} at concurrency {quote.concurrency}"
        if label is None:
            said.append(f"overload-quoted: {at} was not measured, so it cannot be told from overload")
        elif label is Regime.OVERLOAD:
            mine = [point for point in points if point.configuration == quote.configuration]
            said.append(f"overload-quoted: {at} is overload; its operating point is {operating_point(mine)}")
    return tuple(said)
