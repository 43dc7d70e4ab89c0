"""Did each arm take effect? Arms that differ never count exactly the same; a control counts as its original does."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from boardbench.errors import InputError
from boardbench.results import store

CODE = "arm-did-not-take-effect"
MIN_COUNTERS = 4
"""Fewer equal numbers can be chance."""
CONTROL_RATIO = 1.5
"""A control is its own original: a rate off by more than this, either way, is an instrument's fault, not noise."""


@dataclass(frozen=True)
class Counted:
    """A valid run's counters, in order, and the time in seconds that they were counted in."""

    board: str
    arm: str
    run: str
    counters: tuple[float, ...]
    seconds: float

    @property
    def rate(self) -> float:
        """Counts per second."""
        return sum(self.counters) / self.seconds


def equal_counters(runs: Sequence[Counted], control_of: Mapping[str, str]) -> Iterator[dict[str, str]]:
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
            yield {"board": one.board, "code": CODE, "what": what}


def impossible_controls(runs: Sequence[Counted], control_of: Mapping[str, str]) -> Iterator[dict[str, str]]:
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
            yield {"board": board, "code": CODE, "what": what}


def counted(folder: Path, run: Mapping[str, Any], arm: str) -> Counted | None:
    """The counters of a run that lies in `folder`; None for a workload that leaves none of this form."""
    path = folder / "workload" / "burn.jsonl"
    if not path.is_file():
        return None
    try:
        lines = [line for _, line in store.read_lines(path) if isinstance(line, dict) and line["event"] == "interval"]
        counters = tuple(float(line["operations"]) for line in lines)
        seconds = sum(line["end_monotonic_s"] - line["start_monotonic_s"] for line in lines)
    except (InputError, KeyError, TypeError, ValueError):
        return None  # a run with such a file is not valid, and says why itself
    return Counted(run["boards"][0], arm, run["run"], counters, seconds) if seconds > 0 else None


def warnings(campaign: Path, runs: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """All such findings among the campaign's valid runs."""
    plan: Mapping[str, Any] = store.read_object(campaign / "plan.json")
    arm_of = {cell["name"]: cell["arm"] for cell in plan["cells"]}
    control_of = {arm["name"]: arm["control_of"] for arm in plan["arms"] if arm.get("control_of")}
    found: list[Counted] = []
    for run in runs:
        folder = campaign / "cells" / run["cell"] / f"attempt-{run['attempt']}"
        one = counted(folder, run, arm_of[run["cell"]])
        if one is not None:
            found.append(one)
    return [*equal_counters(found, control_of), *impossible_controls(found, control_of)]
