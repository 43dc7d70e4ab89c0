"""No decision rests on a number of overload: each arm of a load curve against its curve's operating point.

Arms that differ only in how many requests are under way are one curve. A run past the operating point is kept, and
labelled; a rule that quotes it is told so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from boardbench.analysis import operating_point
from boardbench.analysis.operating_point import LoadPoint, Quote
from boardbench.results.doubt import Doubt
from boardbench.results.sampled import Sampled
from boardbench.workloads.registry import workload

CODE = "overload-quoted"


@dataclass(frozen=True)
class _Point:
    board: str
    arm: str
    point: LoadPoint


def doubts(plan: Mapping[str, Any], runs: Sequence[Sampled]) -> list[Doubt]:
    """Arms that a rule of the plan quotes, and that were measured in overload."""
    points = _points(plan, runs)
    quoted = {arm: rule["metric"] for rule in plan["rules"] for arm in rule["arms"]}
    found: list[Doubt] = []
    seen: set[tuple[str, str]] = set()
    for entry in points:
        if entry.arm not in quoted or (entry.board, entry.arm) in seen:
            continue
        seen.add((entry.board, entry.arm))
        curve = [other.point for other in points if other.board == entry.board]
        quote = Quote(f"{quoted[entry.arm]} ({entry.arm})", entry.point.configuration, entry.point.concurrency)
        for why in operating_point.barred(curve, [quote]):
            found.append(Doubt(entry.board, (entry.arm,), CODE, why.removeprefix(f"{CODE}: ")))
    return found


def labels(plan: Mapping[str, Any], runs: Sequence[Sampled]) -> list[dict[str, object]]:
    """Every point of every load curve with its regime, as verdict.json holds them; none without a closed loop."""
    points = _points(plan, runs)
    regimes = {
        board: operating_point.regimes([entry.point for entry in points if entry.board == board])
        for board in {entry.board for entry in points}
    }
    return [
        {
            "board": entry.board,
            "arm": entry.arm,
            "configuration": entry.point.configuration,
            "concurrency": entry.point.concurrency,
            "rate_per_s": entry.point.rate_per_s,
            "regime": str(regimes[entry.board][entry.point.configuration, entry.point.concurrency]),
        }
        for entry in points
    ]


def _points(plan: Mapping[str, Any], runs: Sequence[Sampled]) -> list[_Point]:
    varies = _concurrency_factors(plan)
    levels = {arm["name"]: arm["levels"] for arm in plan["arms"]}
    found: list[_Point] = []
    for run in runs:
        loop = run.samples.closed_loop
        if loop is None:
            continue
        rest = [f"{name}={level}" for name, level in levels[run.arm].items() if name not in varies]
        point = LoadPoint(", ".join(rest) or "the only configuration", round(loop.concurrency), loop.rate_per_s)
        found.append(_Point(run.board, run.arm, point))
    return found


def _concurrency_factors(plan: Mapping[str, Any]) -> frozenset[str]:
    option = workload(plan["workload"]["name"]).concurrency_option
    return frozenset(factor["name"] for factor in plan["factors"] if option is not None and factor["option"] == option)
