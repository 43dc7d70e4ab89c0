"""Does the campaign hang together? What no single run can show: fans that were not switched, arms without effect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from boardbench.results import armeffect, loadcurve
from boardbench.results.doubt import Doubt
from boardbench.results.raw import read_thermal
from boardbench.results.sampled import Sampled


def doubts(
    campaign: Path, plan: Mapping[str, Any], runs: Sequence[Mapping[str, Any]], sampled: Sequence[Sampled]
) -> list[Doubt]:
    """All findings over the campaign's valid runs: their run.json objects, and what their workloads say."""
    return [*_fans(campaign, plan, runs), *armeffect.doubts(plan, sampled), *loadcurve.doubts(plan, sampled)]


def _fans(campaign: Path, plan: Mapping[str, Any], runs: Sequence[Mapping[str, Any]]) -> list[Doubt]:
    """Boards whose fanless runs are not hotter than their actively cooled ones: perhaps a fan was not switched.

    A board that has not both phases cannot be judged and is not named.
    """
    hottest: dict[str, dict[str, list[float]]] = {}
    for run in runs:
        found = _hottest(campaign / "cells" / run["cell"] / f"attempt-{run['attempt']}" / "thermal.csv", run)
        if found is not None and run["phase"] is not None:
            hottest.setdefault(run["boards"][0], {}).setdefault(run["phase"], []).append(found)
    arms = tuple(arm["name"] for arm in plan["arms"] if arm["phase"] is not None)
    said: list[Doubt] = []
    for board, phases in sorted(hottest.items()):
        if {"active", "fanless"} <= set(phases) and min(phases["fanless"]) <= max(phases["active"]):
            what = (
                f"a fanless run got no hotter ({min(phases['fanless']):.1f} degC) than an actively cooled one "
                f"({max(phases['active']):.1f} degC): was the fan switched?"
            )
            said.append(Doubt(board, arms, "cooling-not-as-planned", what))
    return said


def _hottest(path: Path, run: Mapping[str, Any]) -> float | None:
    """The highest temperature of any zone inside the load window, in degrees Celsius."""
    window = run["load_window_monotonic_s"]
    log, _ = read_thermal(path) if path.is_file() else (None, [])
    if log is None or not isinstance(window, list):
        return None
    inside = [index for index, at_s in enumerate(log.clock("monotonic_s")) if window[0] <= at_s <= window[1]]
    values: list[float] = []
    for name in log.temperatures():
        column = log.column(name)
        values += [value for index in inside if (value := column[index]) is not None]
    return max(values, default=None)
