"""Percentiles of a list, by the nearest rank: always a value that was seen, never one between two."""

import math

PERCENTS = (50, 90, 95, 99)


def nearest_rank(ordered, percent):
    """The percentile of an ascending list that is not empty."""
    return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)]


def summary(values_us):
    """count, min, p50, p90, p95, p99, max and mean in whole microseconds; None of an empty list (missing is not 0)."""
    ordered = sorted(values_us)
    if not ordered:
        return None
    found = {"count": len(ordered), "min": ordered[0]}
    found.update({f"p{percent}": nearest_rank(ordered, percent) for percent in PERCENTS})
    found["max"] = ordered[-1]
    found["mean"] = round(sum(ordered) / len(ordered))
    return found
