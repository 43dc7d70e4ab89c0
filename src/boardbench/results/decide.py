"""`decisions` of verdict.json: the locked rules, judged by the runs that lie in the campaign's folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from boardbench.analysis.decisions import NOT_SELECTED, VALID, Decision, Effect, Reading, decide, foretold
from boardbench.analysis.rules import Prediction, Rule
from boardbench.results.doubt import Doubt, by_arm
from boardbench.results.figures import Figures, figures_of
from boardbench.workloads.cluster import NODE

Counted = Mapping[str, tuple[Path, Mapping[str, Any]]]
"""Name of a cell -> folder and run.json of the attempt that counts."""


def decisions(
    plan: Mapping[str, Any],
    states: Mapping[str, str],
    counted: Counted,
    doubts: Sequence[Doubt] = (),
    *,
    virtual: bool,
) -> dict[str, Any]:
    """Every rule's verdict and the prediction's, with the numbers, the rule and the domain they hold in.

    `states`: name of a cell -> valid, invalid, missing or not-selected. `doubts`: what the runs together show against
    arms; a rule that uses one of them is invalid. Pure but for reading the attempts' files.
    """
    rules = [Rule.of(data) for data in plan["rules"]]
    used = {rule.metric for rule in rules}
    figures: dict[str, Figures] = {}
    if rules:
        scale = float(plan["time_scale"])
        figures = {cell: figures_of(folder, run, scale) for cell, (folder, run) in counted.items()}
    readings = {
        metric["name"]: _readings(plan, states, figures, metric) for metric in plan["metrics"] if metric["name"] in used
    }
    controls = {arm["name"]: arm["control_of"] for arm in plan["arms"] if arm["control_of"] is not None}
    doubted = by_arm(doubts)
    made = {rule.name: decide(rule, readings[rule.metric], controls, doubted) for rule in rules}
    baselines = {entry["arm"]: entry["is"] for entry in plan["baselines"]}
    units = {metric["name"]: metric["unit"] for metric in plan["metrics"]}
    prediction = None if plan["prediction"] is None else Prediction.of(plan["prediction"])
    return {
        "question": plan["question"],
        "domain": _domain(plan, virtual),
        "virtual": virtual,
        "rules": [_as_json(decision, baselines, units[decision.rule.metric]) for decision in made.values()],
        "prediction": None if prediction is None else _prediction(prediction, made[prediction.rule]),
    }


def _readings(
    plan: Mapping[str, Any], states: Mapping[str, str], figures: Mapping[str, Figures], metric: Mapping[str, Any]
) -> list[Reading]:
    found: list[Reading] = []
    workload = str(plan["workload"]["name"])
    for cell in plan["cells"]:
        if cell.get("role") == NODE:
            continue  # a rule is about what the cluster did, and that is told by the load's board
        state = states[cell["name"]]
        value, why = None, state
        if state == VALID and cell["name"] in figures:
            value, why = figures[cell["name"]].value_of(workload, metric["from"], metric["unit"])
        found.append(Reading("+".join(cell["boards"]), cell["arm"], cell["repetition"], state, value, why))
    return found


def _domain(plan: Mapping[str, Any], virtual: bool) -> str:
    """Where the verdicts hold: what the matrix says of itself, and what the plan shows anyway."""
    said = [plan["domain"]] if plan["domain"] else []
    said.append(f"boards {', '.join(plan['boards'])}")
    said.append(f"workload {plan['workload']['name']} for {plan['board_time']['duration_s']:g} s")
    said.append(f"{plan['repeats']} repetition{'s' if plan['repeats'] != 1 else ''} of each arm")
    if virtual:
        said.append(f"virtual boards (a thermal model, {plan['time_scale']:g} x real time), not hardware")
    return "; ".join(said)


def _as_json(decision: Decision, baselines: Mapping[str, str], unit: str) -> dict[str, Any]:
    rule = decision.rule
    baseline = None if rule.baseline is None else {"arm": rule.baseline, "is": baselines[rule.baseline]}
    whole = _effect(decision.whole)
    whole.pop("board")
    return {
        "rule": rule.name,
        "text": rule.text,
        "unit": f"{rule.metric} in {unit}",
        "arm": rule.arm,
        "baseline": baseline,
        "compare": rule.compare,
        **whole,
        "boards": [_effect(board) for board in decision.boards],
    }


def _effect(effect: Effect) -> dict[str, Any]:
    return {**asdict(effect), "noise": asdict(effect.noise)}


def _prediction(prediction: Prediction, decision: Decision) -> dict[str, Any]:
    found = foretold(prediction, decision)
    return {**prediction.body(), "verdict": found.verdict, "why": found.why}


__all__ = ["NOT_SELECTED", "decisions"]
