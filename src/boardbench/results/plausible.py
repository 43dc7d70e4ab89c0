"""Does the campaign hang together? What no single run can show: fans that were not switched, arms without effect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from boardbench.results import armeffect
from boardbench.results.raw import read_thermal


def warnings(campaign: Path, runs: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """All findings over the campaign's valid runs (`runs`: their run.json objects): board, code and what was seen."""
    return [*_fans(campaign, runs), *armeffect.warnings(campaign, runs)]


def _fans(campaign: Path, runs: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Boards whose fanless runs are not hotter than their actively cooled ones: perhaps a fan was not switched.

    A board that has not both phases cannot be judged and is not named.
    """
    hottest: dict[str, dict[str, list[float]]] = {}
    for run in runs:
        found = _hottest(campaign / "cells" / run["cell"] / f"attempt-{run['attempt']}" / "thermal.csv", run)
        if found is not None and run["phase"] is not None:
            hottest.setdefault(run["boards"][0], {}).setdefault(run["phase"], []).append(found)
    said: list[dict[str, str]] = []
    for board, phases in sorted(hottest.items()):
        if {"active", "fanless"} <= set(phases) and min(phases["fanless"]) <= max(phases["active"]):
            what = (
                f"a fanless run got no hotter ({min(phases['fanless']):.1f} degC) than an actively cooled one "
                f"({max(phases['active']):.1f} degC): was the fan switched?"
            )
            said.append({"board": board, "code": "cooling-not-as-planned", "what": what})
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
