"""A mergeable sketch of positive values (latencies): percentiles of 100 million samples in a few kilobytes.

DDSketch (Masson, Rim, Lee, VLDB 2019) without collapsing: bucket k holds the values in (g^(k-1), g^k] with
g = (1 + a) / (1 - a), so every percentile is within the relative error `a` of the exact nearest-rank percentile, in any
order of adding and merging. Counts are exact integers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import ceil, log
from typing import Any

import numpy as np

from boardbench.analysis.estimates import Estimate, Figure, Interval, Unknown

RELATIVE_ERROR = 0.005
_SMALLEST, _GREATEST = 1e-9, 1e12
"""Values outside are refused: with 0.5 % error the whole range is under 5,000 buckets."""


@dataclass
class Sketch:
    """Counts by bucket. `zeros`: values that are exactly 0. `minimum`, `maximum`: exact; None while empty."""

    relative_error: float = RELATIVE_ERROR
    buckets: dict[int, int] = field(default_factory=dict)
    zeros: int = 0
    minimum: float | None = None
    maximum: float | None = None

    def __post_init__(self) -> None:
        if not 1e-5 <= self.relative_error <= 0.2:
            raise ValueError(f"a relative error of {self.relative_error} is not within 0.00001 to 0.2")

    @property
    def count(self) -> int:
        """How many values are in it."""
        return self.zeros + sum(self.buckets.values())

    @property
    def _log_gamma(self) -> float:
        return log((1 + self.relative_error) / (1 - self.relative_error))

    def add(self, values: Iterable[float]) -> None:
        """Adds values, in their own unit. Raises ValueError for one that is negative, not finite or out of range."""
        found = np.asarray(values if isinstance(values, np.ndarray) else list(values), dtype=float).ravel()
        if not len(found):
            return
        positive = found[found != 0]
        if not np.all(np.isfinite(found)) or np.any((positive < _SMALLEST) | (positive > _GREATEST)):
            raise ValueError(f"a sketch holds 0 and values from {_SMALLEST:g} to {_GREATEST:g}; a failed read is none")
        keys, counts = np.unique(np.ceil(np.log(positive) / self._log_gamma).astype(np.int64), return_counts=True)
        for key, count in zip(keys.tolist(), counts.tolist(), strict=True):
            self.buckets[key] = self.buckets.get(key, 0) + count
        self.zeros += len(found) - len(positive)
        self._stretch(float(found.min()), float(found.max()))

    def merge(self, other: Sketch) -> None:
        """Adds all that another sketch holds. Raises ValueError where the relative errors differ."""
        if other.relative_error != self.relative_error:
            raise ValueError(f"sketches of {self.relative_error} and {other.relative_error} do not merge")
        for key, count in other.buckets.items():
            self.buckets[key] = self.buckets.get(key, 0) + count
        self.zeros += other.zeros
        if other.minimum is not None and other.maximum is not None:
            self._stretch(other.minimum, other.maximum)

    def percentile(self, percentile: float, unit: str = "ms") -> Figure:
        """Nearest-rank percentile of all that was added; the interval is the bound of the sketch, not of sampling.

        Not determinable: fewer than 100 / (100 - p) values. Raises ValueError for p outside 0 (excluded) to 100.
        """
        if not 0 < percentile <= 100:
            raise ValueError(f"there is no p{percentile:g}")
        needed = ceil(round(100.0 / (100.0 - percentile), 9)) if percentile < 100 else 1
        total = self.count
        if total < needed or self.minimum is None or self.maximum is None:
            return Unknown(f"p{percentile:g} needs {max(needed, 1)} samples, there are {total}")
        rank = max(1, ceil(percentile * total / 100.0))
        low, value, high = self._at(rank)
        bound = Interval(low, high, 1.0, f"sketch, relative error {self.relative_error:g}")
        return Estimate(value, unit, total, f"nearest-rank p{percentile:g} of pooled samples, by sketch", bound)

    def as_json(self) -> dict[str, object]:
        """For files: keys in order, counts exact."""
        return {
            "kind": "ddsketch", "relative_error": self.relative_error, "zeros": self.zeros,
            "minimum": self.minimum, "maximum": self.maximum,
            "keys": sorted(self.buckets), "counts": [self.buckets[key] for key in sorted(self.buckets)],
        }  # fmt: skip

    @staticmethod
    def of(data: Mapping[str, Any]) -> Sketch:
        """The sketch of `as_json`. Raises ValueError for anything else."""
        zeros: Any = data.get("zeros")
        keys, counts = data.get("keys"), data.get("counts")
        error, ends = data.get("relative_error"), (data.get("minimum"), data.get("maximum"))
        if data.get("kind") != "ddsketch" or not isinstance(keys, list) or not isinstance(counts, list):
            raise ValueError("this is no sketch")
        if not all(type(number) is int for number in (*keys, *counts, zeros)) or type(error) is not float:
            raise ValueError("the sketch's keys, counts or relative error are not numbers of their kind")
        total = zeros + sum(counts)
        if len(keys) != len(counts) or len(set(keys)) != len(keys) or any(n < 1 for n in counts) or zeros < 0:
            raise ValueError("the sketch's keys and counts do not fit")
        if any((end is not None) != (total > 0) or not isinstance(end, float | None) for end in ends):
            raise ValueError("the sketch's minimum and maximum do not fit its counts")
        return Sketch(error, dict(zip(keys, counts, strict=True)), zeros, *ends)

    def _stretch(self, low: float, high: float) -> None:
        self.minimum = low if self.minimum is None else min(self.minimum, low)
        self.maximum = high if self.maximum is None else max(self.maximum, high)

    def _at(self, rank: int) -> tuple[float, float, float]:
        """Lower bound, value, upper bound of the reading with this rank."""
        low_limit, high_limit = self.minimum or 0.0, self.maximum or 0.0
        if rank <= self.zeros:
            return 0.0, 0.0, 0.0
        seen = self.zeros
        for key in sorted(self.buckets):
            seen += self.buckets[key]
            if seen >= rank:
                upper = float(np.exp(key * self._log_gamma))
                lower = float(np.exp((key - 1) * self._log_gamma))
                low, high = max(lower, low_limit), min(upper, high_limit)
                # Harmonic middle: equal relative error to both ends.
                value = min(max(2 * lower * upper / (lower + upper), low), high)
                return low, value, high
        return high_limit, high_limit, high_limit
