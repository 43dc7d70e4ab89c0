"""Gate `littles-law`: three numbers of one closed loop that must fit together."""

from __future__ import annotations

from boardbench.analysis import littles_law
from boardbench.matrix.gates.evidence import Evidence, failed, passed
from boardbench.workloads.base import ClosedLoop


def evidence(loop: ClosedLoop | None) -> tuple[Evidence, ...]:
    """None of it for a workload that is no closed loop."""
    if loop is None:
        return ()
    saw = {"concurrency": loop.concurrency, "rate_per_s": loop.rate_per_s, "mean_latency_s": loop.mean_latency_s}
    try:
        off = littles_law.departure(loop.concurrency, loop.rate_per_s, loop.mean_latency_s)
    except ValueError as error:
        return (failed("littles-law", saw, str(error)),)
    saw |= {"departure": round(off, 6), "tolerance": littles_law.TOLERANCE}
    if abs(off) <= littles_law.TOLERANCE:
        return (passed("littles-law", saw),)
    why = f"rate x latency is {loop.rate_per_s * loop.mean_latency_s:.3g}, {loop.concurrency:g} requests were under way"
    return (failed("littles-law", saw, why),)
