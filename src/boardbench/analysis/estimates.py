"""What a statistic comes to: a number with its unit, interval, count and method, or why there is none."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TypeGuard

LEVEL = 0.95
"""The confidence of an interval where nothing else is said."""


@dataclass(frozen=True)
class Interval:
    """From `low` to `high`, in the unit of its estimate. `level`: the share of repeated experiments that it covers."""

    low: float
    high: float
    level: float = LEVEL
    method: str = ""

    def holds(self, value: float) -> bool:
        """Whether `value` lies inside; both ends belong to it."""
        return self.low <= value <= self.high


@dataclass(frozen=True)
class Estimate:
    """One figure. `n`: how many independent readings it stands on; `method`: the definition and aggregation, in words.

    `interval` is None where the figure is plain arithmetic on what was given; `note` says what else a reader must know.
    """

    value: float
    unit: str
    n: int
    method: str
    interval: Interval | None = None
    note: str = ""

    @property
    def text(self) -> str:
        """For people: `193 ms [185, 201]`."""
        unit = f" {self.unit}" if self.unit else ""
        if self.interval is None:
            return f"{self.value:.4g}{unit}"
        return f"{self.value:.4g}{unit} [{self.interval.low:.4g}, {self.interval.high:.4g}]"

    def as_json(self) -> dict[str, object]:
        """All of it; an interval end that is not finite is `{"missing": why}`."""
        found: dict[str, object] = {"value": self.value, "unit": self.unit, "n": self.n, "method": self.method}
        if self.interval is not None:
            found["interval"] = {
                "low": _end(self.interval.low),
                "high": _end(self.interval.high),
                "level": self.interval.level,
                "method": self.interval.method,
            }
        return {**found, "note": self.note} if self.note else found


@dataclass(frozen=True)
class Unknown:
    """No figure. `why` completes the sentence `not determinable: ...`."""

    why: str

    @property
    def text(self) -> str:
        """For people."""
        return f"not determinable: {self.why}"

    def as_json(self) -> dict[str, object]:
        """As every missing reading."""
        return {"missing": self.text}


Figure = Estimate | Unknown


def known(figure: Figure) -> TypeGuard[Estimate]:
    """Whether there is a number."""
    return isinstance(figure, Estimate)


def mapped(figure: Figure, factor: float, unit: str) -> Figure:
    """The figure in another unit; `factor` must be above 0 (else ValueError)."""
    if not factor > 0:
        raise ValueError(f"a unit is not changed by the factor {factor}")
    if isinstance(figure, Unknown):
        return figure
    inside = figure.interval
    if inside is not None:
        inside = replace(inside, low=inside.low * factor, high=inside.high * factor)
    return replace(figure, value=figure.value * factor, unit=unit, interval=inside)


def present(values: Iterable[float | None]) -> list[float]:
    """The readings that are there. Raises ValueError for one that is not finite: a failed read is None, never NaN."""
    found = [float(value) for value in values if value is not None]
    for value in found:
        if not math.isfinite(value):
            raise ValueError(f"{value} is no reading; a missing one is None")
    return found


def _end(value: float) -> object:
    return value if math.isfinite(value) else {"missing": "this end is not bounded by the data"}
