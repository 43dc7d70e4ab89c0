"""Percentiles of requests, pooled over runs, and those of runs, which are another thing and named so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from statistics import fmean, stdev

from scipy import stats

from boardbench.analysis.estimates import LEVEL, Estimate, Figure, Interval, Unknown, present


@dataclass(frozen=True)
class RunLevel:
    """A percentile that each run told for itself, over runs. It is *not* the percentile of the pooled requests.

    Averages of run-level percentiles read low in the tail. `stdev`: sample, None with one run.
    """

    percentile: float
    mean: float
    stdev: float | None
    least: float
    greatest: float
    runs: int
    missing: int

    @property
    def name(self) -> str:
        """What to call it beside the number."""
        return f"mean of {self.runs} run-level p{self.percentile:g}, not pooled"


def nearest_rank(ordered: Sequence[float], percentile: float) -> float:
    """The value at rank ceil(p/100 n) of ordered values: always one that was measured, nothing is interpolated.

    Raises ValueError for no values or a percentile outside 0 (excluded) to 100.
    """
    if not ordered or not 0 < percentile <= 100:
        raise ValueError(f"no p{percentile:g} of {len(ordered)} values")
    return ordered[max(1, ceil(percentile * len(ordered) / 100.0)) - 1]


def pooled_percentile(
    samples: Sequence[float | None], percentile: float, unit: str = "ms", level: float = LEVEL
) -> Figure:
    """The percentile of all requests of all runs together, nearest rank, with an order-statistics interval.

    The interval holds for independent requests of one distribution; queues make neighbours alike, so it is a floor.
    An end that no sample bounds is infinite. Not determinable: fewer than 100 / (100 - p) samples (p99 needs 100), for
    then it would just be the maximum under another name.
    """
    found = sorted(present(samples))
    # Rounded, for 100 - 99.9 is a little less than 0.1.
    needed = ceil(round(100.0 / (100.0 - percentile), 9)) if percentile < 100 else 1
    if not 0 < percentile <= 100:
        raise ValueError(f"there is no p{percentile:g}")
    if len(found) < max(needed, 1):
        return Unknown(f"p{percentile:g} needs {max(needed, 1)} samples, there are {len(found)}")
    value = nearest_rank(found, percentile)
    method = f"nearest-rank p{percentile:g} of pooled samples"
    if percentile == 100:
        return Estimate(value, unit, len(found), "greatest of pooled samples")
    share, n = percentile / 100.0, len(found)
    low = int(stats.binom.ppf((1 - level) / 2, n, share))
    high = int(stats.binom.ppf((1 + level) / 2, n, share)) + 1
    ends = Interval(
        found[low - 1] if low >= 1 else float("-inf"), found[high - 1] if high <= n else float("inf"),
        level, "order statistics",
    )  # fmt: skip
    return Estimate(value, unit, n, method, ends)


def run_level(values: Sequence[float | None], percentile: float) -> RunLevel | Unknown:
    """Mean and spread of a percentile that each run told, for data without samples. No run: not determinable."""
    found = present(values)
    if not found:
        return Unknown(f"no run has a p{percentile:g}")
    deviation = stdev(found) if len(found) > 1 else None
    return RunLevel(percentile, fmean(found), deviation, min(found), max(found), len(found), len(values) - len(found))
