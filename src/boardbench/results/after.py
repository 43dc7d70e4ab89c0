"""The gates after a run: pure functions over its files and its evidence."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from boardbench.results.problems import Reason
from boardbench.results.raw import ThermalLog
from boardbench.workloads.base import Samples

DRIFT = 1e-3
"""A clock that is slewed gains or loses less than this, seconds per second, unless it is being set."""
CLOCK_SLACK_S = 0.1
INSTRUMENTS_CELSIUS = 2.0
ROWS_BESIDE = 2
"""So many rows on either side of a reading bound what it can have been: one period's drift, and lateness."""
EDGE_S = 1e-5
LOOK_EDGE_S = 0.05
"""The load registers a moment before its first interval, and may be gone a moment after its last."""
SHARE = 1e-3


def clock_moved(evidence: Sequence[Mapping[str, Any]], *, one_boot: bool) -> Iterator[Reason]:
    """The board's offset from the controller is the same before and after the run, within both errors.

    It sees what the log cannot: a clock that was set between the log's rows, or all of the time slowly.
    """
    found = [
        (float(saw["offset_s"]), float(saw["error_s"]), float(saw["stamp"]["monotonic_s"]))
        for entry in evidence
        if entry.get("gate") == "clock" and _measured(saw := entry.get("saw", {}))
    ]
    if len(found) < 2 or not one_boot:
        return
    (before_s, error_before_s, start_s), (after_s, error_after_s, end_s) = found[0], found[-1]
    allowed_s = error_before_s + error_after_s + CLOCK_SLACK_S + DRIFT * max(0.0, end_s - start_s)
    if abs(after_s - before_s) > allowed_s:
        what = (
            f"the board's clock moved {after_s - before_s:+.3f} s against the controller's in {end_s - start_s:.0f} s"
        )
        yield Reason("clock-jump", f"{what}, {allowed_s:.3f} s are allowed")


def _measured(saw: object) -> bool:
    return isinstance(saw, Mapping) and all(_is_number(saw.get(key)) for key in ("offset_s", "error_s"))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def load_paused(evidence: Sequence[Mapping[str, Any]], window: tuple[float, float] | None) -> Iterator[Reason]:
    """The supervisor never found the board without its registered load inside the window that the workload claims."""
    if window is None:
        return
    start, end = window[0] + LOOK_EDGE_S, window[1] - LOOK_EDGE_S
    for entry in evidence:
        idle = entry.get("saw", {}).get("idle_at_monotonic_s") if entry.get("gate") == "load-runs" else None
        inside = [at_s for at_s in idle or () if _is_number(at_s) and start <= at_s <= end]
        if inside:
            what = f"{len(inside)} looks found no load, the first {inside[0] - window[0]:.3f} s after it began"
            yield Reason("load-not-running", what)


def instruments(log: ThermalLog, evidence: Sequence[Mapping[str, Any]], zone_types: Sequence[str]) -> Iterator[Reason]:
    """What the run's own supervisor read at the end of the load lies where the log's rows of that moment are."""
    for entry in evidence:
        saw = entry.get("saw", {})
        celsius = saw.get("celsius") if entry.get("gate") == "instruments" else None
        if not isinstance(celsius, Mapping) or not _is_number(saw.get("monotonic_s")):
            continue
        read = {zone: value for zone, value in celsius.items() if _is_number(value)}
        wanted = [zone for zone in zone_types if zone in read] or sorted(read)
        for zone in wanted:
            why = _disagreement(log, zone, float(read[zone]), float(saw["monotonic_s"]))
            if why:
                yield Reason("instruments-disagree", why)


def _disagreement(log: ThermalLog, zone: str, celsius: float, at_s: float) -> str:
    name = f"{zone}_celsius"
    if name not in log.columns:
        return ""
    clock, column = log.clock("monotonic_s"), log.column(name)
    after = next((index for index, row_s in enumerate(clock) if row_s >= at_s), None)
    if after is None or after == 0:
        return ""  # whether the log reaches so far is another gate's matter
    near = [value for value in column[max(0, after - ROWS_BESIDE) : after + ROWS_BESIDE] if value is not None]
    if not near:
        return ""
    low, high = min(near) - INSTRUMENTS_CELSIUS, max(near) + INSTRUMENTS_CELSIUS
    if low <= celsius <= high:
        return ""
    logged = f"the log's rows say {min(near):.1f} to {max(near):.1f}"
    return f"{zone} was read as {celsius:.1f} degC at the end of the load, {logged}"


def counts(samples: Samples, *, joined: bool = True) -> Iterator[Reason]:
    """Intervals join, each rate is its amount over its time, and together they are the workload's own total.

    `joined` is false for a load that pauses between its intervals.
    """
    code, intervals = "counts-do-not-add-up", samples.intervals
    for number, (early, late) in enumerate(itertools.pairwise(intervals), start=1):
        hole_s = late.start_monotonic_s - early.end_monotonic_s
        joins = joined and not samples.separate
        if (hole_s < -EDGE_S or (joins and hole_s > EDGE_S)) or late.index != early.index + 1:
            yield Reason(code, f"interval {number} does not begin where the one before it ends ({hole_s:+.6f} s)")
            return
    for entry in intervals:
        expected = entry.rate_per_s * (entry.end_monotonic_s - entry.start_monotonic_s)
        if abs(entry.amount - expected) > SHARE * max(1.0, abs(expected)):
            what = f"{entry.amount:g} {samples.unit}, its rate and time say {expected:g}"
            yield Reason(code, f"interval {entry.index} holds {what}")
            return
    if samples.planned is not None and samples.planned != len(intervals):
        yield Reason(code, f"{len(intervals)} of {samples.planned} planned intervals are there")
    counted, total = sum(entry.amount for entry in intervals), samples.total
    if total is not None and abs(counted - total) > SHARE * max(1.0, abs(total)):
        yield Reason(code, f"the intervals hold {counted:g} {samples.unit}, the workload counted {total:g}")
