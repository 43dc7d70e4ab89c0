"""Little's law: in a closed loop the mean number of requests under way is rate times latency. Always."""

from __future__ import annotations

import math

TOLERANCE = 0.05
"""Starting and ending a run costs a share of one latency at each end; more than this is a wrong number."""


def departure(concurrency: float, rate_per_s: float, mean_latency_s: float) -> float:
    """How far rate x latency is off the concurrency, as a share of it (0: exactly equal).

    Raises ValueError for a concurrency that is not above 0 or a value that is not finite.
    """
    values = (concurrency, rate_per_s, mean_latency_s)
    if not all(math.isfinite(value) for value in values) or concurrency <= 0:
        raise ValueError(f"no closed loop: concurrency {concurrency}, {rate_per_s} per s, {mean_latency_s} s")
    return rate_per_s * mean_latency_s / concurrency - 1.0


def holds(concurrency: float, rate_per_s: float, mean_latency_s: float, tolerance: float = TOLERANCE) -> bool:
    """Whether the three numbers can have been measured in one closed loop over one window."""
    return abs(departure(concurrency, rate_per_s, mean_latency_s)) <= tolerance
