"""What was meant to be measured, and what was expected: the locked plan on the page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from boardbench.analysis.rules import Prediction, Rule
from boardbench.report.campaign_report import CampaignReport
from boardbench.report.page.model import Cell, Section, Table


def plan_section(plan: Mapping[str, Any], report: CampaignReport) -> Section:
    """Arms, order, conditions, rules and prediction as they were locked."""
    lines = [*_design(plan), *_conditions(plan)]
    lines += [f"Rule {rule.name}: {rule.text}." for rule in map(Rule.of, plan["rules"])]
    if not plan["rules"]:
        lines.append("No rule was set beforehand: figures are shown and nothing is decided.")
    if plan["prediction"] is not None:
        told = Prediction.of(plan["prediction"])
        word = report.decisions["prediction"]["verdict"]
        was = {"hit": "It came true.", "missed": "It was missed."}.get(word, f"It is {word}.")
        lines.append(f"Prediction: {told.says} (rule {told.rule}; refuted if {told.refuted_op} "
                     f"{told.refuted_threshold:g}). {was}")  # fmt: skip
    else:
        lines.append("Nothing was predicted.")
    return Section("plan", "Plan and prediction", tuple(lines), (_arms(plan), _metrics(plan)))


def _design(plan: Mapping[str, Any]) -> list[str]:
    workload, times = plan["workload"], plan["board_time"]
    options = ", ".join(f"{name} {value}" for name, value in workload["options"].items())
    lines = [
        f"{len(plan['cells'])} cells: {len(plan['arms'])} arms, {plan['repeats']} x each on "
        f"{', '.join(plan['boards'])}; order {plan['order']['kind']} (seed {plan['order']['seed']}), "
        f"up to {plan['attempts']} attempts.",
        f"Load: {workload['name']}{f' ({options})' if options else ''} for {times['duration_s']:g} s, "
        f"in intervals of {times['interval_s']:g} s.",
    ]
    if plan["restricted_to"]:
        chosen = "; ".join(f"{name}={','.join(levels)}" for name, levels in plan["restricted_to"].items())
        lines.append(f"Restricted to {chosen}.")
    return lines


def _conditions(plan: Mapping[str, Any]) -> list[str]:
    cool = plan["cool"]
    lines = []
    if cool is not None:
        lines.append(f"Every run starts below {cool['below_celsius']:g} °C ({' or '.join(cool['zone_types'])}), "
                     f"within {cool['timeout_s']:g} s.")  # fmt: skip
    if plan["settings"]:
        told = [
            f"{one['resource']} {' '.join(str(value) for value in one['args'].values())}" for one in plan["settings"]
        ]
        lines.append(f"Settings on every board, read back: {', '.join(told)}.")
    lines.append(f"Gates: {', '.join(sorted(plan['gates']))}.")
    return lines


def _arms(plan: Mapping[str, Any]) -> Table:
    baselines = {entry["arm"]: entry["is"] for entry in plan["baselines"]}
    rows: list[tuple[Cell, ...]] = []
    for arm in plan["arms"]:
        levels = ", ".join(f"{name}={level}" for name, level in arm["levels"].items())
        role = f"A/A control of {arm['control_of']}" if arm["control_of"] else ""
        if arm["name"] in baselines:
            role = f"baseline: {baselines[arm['name']]}"
        rows.append((arm["name"], levels, role or None))
    return Table(("arm", "levels", "is"), tuple(rows))


def _metrics(plan: Mapping[str, Any]) -> Table:
    rows = tuple((one["name"], one["unit"], one["direction"]) for one in plan["metrics"])
    return Table(("metric", "unit", "which way is better"), rows, caption="Metrics", folded=True)
