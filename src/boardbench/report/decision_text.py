"""Verdicts for people: the prediction, then each rule with its word, its numbers and the domain it holds in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.markup import escape

STYLES = {
    "supported": "bold green",
    "refuted": "bold red",
    "null": "bold yellow",
    "undecided": "yellow",
    "invalid": "bold red",
    "hit": "bold green",
    "missed": "bold red",
}
_NOISE = {
    "controls": "by A/A controls",
    "repetitions": "by repetitions",
    "couples": "within repetitions",
    "assumed": "assumed",
    "unknown": "",
}


def decision_lines(decisions: Mapping[str, Any]) -> Iterator[str]:
    """Lines with markup. Nothing when the matrix has no rule."""
    if not decisions["rules"]:
        return
    told = decisions["prediction"]
    if told is not None:
        limit = told["refuted_if"]
        word = "was missed" if told["verdict"] == "missed" else told["verdict"]
        tail = f": {told['why']}" if told["why"] else ""
        yield (
            f"prediction [{STYLES[told['verdict']]}]{word}[/]: {escape(told['says'])} "
            f"\\[rule {escape(told['rule'])}, refuted if {limit['op']} {limit['threshold']:g}]{escape(tail)}"
        )
    for rule in decisions["rules"]:
        yield f"[{STYLES[rule['verdict']]}]{rule['verdict']}[/] {escape(rule['rule'])}: {escape(rule['text'])}"
        if rule["why"]:
            yield f"  {escape(rule['why'])}"
        for board in rule["boards"]:
            yield f"  {escape(numbers_text(rule, board))}"
        if rule["baseline"] is not None:
            yield f"  baseline {escape(rule['baseline']['arm'])}: {escape(rule['baseline']['is'])}"
    yield f"these hold for: {escape(decisions['domain'])}"


def curve_lines(decisions: Mapping[str, Any]) -> Iterator[str]:
    """The points of the load curves, those of overload marked: no decision rests on them. Nothing without a curve."""
    for point in decisions.get("load_curve", ()):
        word = str(point["regime"])
        shown = f"[bold yellow]{word}[/]" if word == "overload" else word
        yield (
            f"load {escape(point['board'])}, {escape(point['arm'])}: {_figure(point['rate_per_s'])} per s "
            f"with {point['concurrency']} under way: {shown}"
        )


def numbers_text(rule: Mapping[str, Any], board: Mapping[str, Any]) -> str:
    """`king: supported, ratio 0.912 = 4,512 (n 3) / 4,948 (n 3) operations/s, noise 0.004 by A/A controls`."""
    if board["effect"] is None:
        return f"{board['board']}: {board['verdict']}, {board['why']}"
    unit = rule["unit"].rpartition(" in ")[2]
    arm = f"{_figure(board['arm_value'])} (n {board['arm_n']})"
    if rule["baseline"] is None:
        said = f"{arm} {unit}"
    else:
        sign = "/" if rule["compare"] == "ratio" else "-"
        base = f"{_figure(board['baseline_value'])} (n {board['baseline_n']})"
        said = f"{rule['compare']} {_figure(board['effect'])} = {arm} {sign} {base} {unit}"
    noise = board["noise"]
    known = "noise unknown" if noise["value"] is None else f"noise {noise['value']:.3g} {_NOISE[noise['source']]}"
    why = f"; {board['why']}" if board["why"] else ""
    return f"{board['board']}: {board['verdict']}, {said}, {known}{why}"


def _figure(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
