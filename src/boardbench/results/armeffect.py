"""Did each arm take effect? Arms that differ never count exactly the same; a control counts as its original does."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from boardbench.results.doubt import Doubt
from boardbench.results.sampled import Sampled

CODE = "arm-did-not-take-effect"
MIN_COUNTERS = 4
"""Fewer equal numbers can be chance."""
CONTROL_RATIO = 1.5
"""A control is its own original: a rate off by more than this, either way, is an instrument's fault, not noise."""


@dataclass(frozen=True)
class Counted:
    """A valid run's counters, in order, what it did in all, and the time in seconds that it took for it."""

    board: str
    arm: str
    run: str
    counters: tuple[float, ...]
    seconds: float
    done: float | None = None

    @property
    def rate(self) -> float:
        """What was done per second; the counters themselves where nothing else was counted."""
        return (sum(self.counters) if self.done is None else self.done) / self.seconds


def equal_counters(runs: Sequence[Counted], control_of: Mapping[str, str]) -> Iterator[Doubt]:
    """Pairs of runs of different arms whose counters are the same, number by number."""
    for one, other in itertools.combinations(runs, 2):
        original = control_of.get(one.arm, one.arm), control_of.get(other.arm, other.arm)
        if one.board != other.board or original[0] == original[1] or len(one.counters) < MIN_COUNTERS:
            continue
        if one.counters == other.counters and any(one.counters):
            what = (
                f"all {len(one.counters)} counters of arm {one.arm} ({one.run}) and arm {other.arm} ({other.run}) "
                "are equal: the arm's setting did not reach the workload"
            )
            yield Doubt(one.board, (one.arm, other.arm), CODE, what)


def impossible_controls(runs: Sequence[Counted], control_of: Mapping[str, str]) -> Iterator[Doubt]:
    """Controls whose mean rate is nowhere near that of the arm that they repeat, on the same board."""
    rates: dict[tuple[str, str], list[float]] = {}
    for run in runs:
        rates.setdefault((run.board, run.arm), []).append(run.rate)
    for (board, arm), mine in sorted(rates.items()):
        theirs = rates.get((board, control_of.get(arm, "")))
        if not theirs or not sum(theirs):
            continue
        ratio = (sum(mine) / len(mine)) / (sum(theirs) / len(theirs))
        if not 1 / CONTROL_RATIO <= ratio <= CONTROL_RATIO:
            what = f"control {arm} has {ratio:.2f} x the rate of {control_of[arm]}, which it repeats: not one condition"
            yield Doubt(board, (arm, control_of[arm]), CODE, what)


def doubts(plan: Mapping[str, Any], runs: Sequence[Sampled]) -> list[Doubt]:
    """All such findings among a campaign's valid runs."""
    control_of = {arm["name"]: arm["control_of"] for arm in plan["arms"] if arm.get("control_of")}
    found = [one for one in map(_counted, runs) if one.seconds > 0]
    return [*equal_counters(found, control_of), *impossible_controls(found, control_of)]


def _counted(run: Sampled) -> Counted:
    intervals = run.samples.intervals
    seconds = sum(interval.end_monotonic_s - interval.start_monotonic_s for interval in intervals)
    amounts = tuple(interval.amount for interval in intervals)
    return Counted(run.board, run.arm, run.run, run.samples.counters or amounts, seconds, sum(amounts))
