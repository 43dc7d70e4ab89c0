"""A plan for people: arms, cells in order, gates, rules, prediction, and what it will cost."""

from __future__ import annotations

from rich.markup import escape
from rich.table import Table

from boardbench.matrix.arms import Arm
from boardbench.matrix.guard import Guard
from boardbench.matrix.plan import Plan
from boardbench.report.progress import clock
from boardbench.report.tables import plain_console, plain_table
from boardbench.workloads.chains import label


def print_plan(plan: Plan, payload_bytes: int, program_bytes: int) -> None:
    """The whole plan on stdout.

    `payload_bytes`, `program_bytes`: of all payload files and of the board's side, for all boards together.
    """
    console = plain_console()
    matrix = plan.matrix
    console.print(f"[bold]{escape(matrix.name)}[/] plan {plan.sha256[:8]}")
    console.print(escape(matrix.question))
    for line in _head(plan):
        console.print(escape(line))
    console.print(_arms(plan))
    console.print(_waves(plan))
    for rule in matrix.rules:
        console.print(f"rule [bold]{escape(rule.name)}[/]: {escape(rule.text)}")
    for baseline in matrix.baselines:
        console.print(f"baseline {escape(baseline.arm)}: {escape(baseline.describes)}")
    if matrix.prediction is not None:
        told = matrix.prediction
        limit = f"{told.refuted_op} {told.refuted_threshold:g}"
        console.print(f"prediction: {escape(told.says)} (rule {escape(told.rule)}; refuted if {limit})")
    if not matrix.rules:
        console.print("[yellow]no decision rule[/]: figures will be reported, nothing will be decided")
    metrics = ", ".join(f"{metric.name} ({metric.unit}, {metric.direction})" for metric in matrix.metrics)
    console.print(f"metrics: {escape(metrics)}")
    console.print(f"gates: {', '.join(sorted(matrix.gates))}")
    console.print(
        f"{'at most' if plan.traits.ends_by_work else 'about'} {clock(plan.estimated_s)} for {len(plan.cells)} cells "
        f"in {len(plan.waves)} waves, without retries; "
        f"at most {payload_bytes + program_bytes:,} bytes to push (payloads {payload_bytes:,}, "
        f"the board's side {program_bytes:,}; what a board has already is not pushed)"
    )


def _head(plan: Plan) -> list[str]:
    matrix = plan.matrix
    scale = f", physics {plan.time_scale:g} x real time" if plan.time_scale != 1 else ""
    lines = [f"boards: {', '.join(plan.boards)}{scale}"]
    lines.append(
        f"{matrix.workload} for {matrix.duration_s:g} s, {matrix.repeats} x each arm, order {matrix.order} "
        f"(seed {matrix.seed}), up to {matrix.attempts} attempts"
    )
    if chained := label(matrix.workload_options):
        lines.append(chained)
    if matrix.choice.only:
        chosen = "; ".join(f"{name}={','.join(levels)}" for name, levels in matrix.choice.only.items())
        lines.append(f"restricted to {chosen}")
    lines += _guards(plan)
    if matrix.domain:
        lines.append(f"holds for: {matrix.domain}")
    if plan.caveat:
        lines.append(f"note: {plan.caveat}")
    return lines


def _guards(plan: Plan) -> list[str]:
    """Which boards end their load by themselves, and when; boards with the same guard on one line."""
    by_guard: dict[Guard | None, list[str]] = {}
    for board in plan.boards:
        by_guard.setdefault(plan.guards.get(board), []).append(board)
    return [
        f"guard of {', '.join(boards)}: "
        + (
            "none, nothing on the board ends a load that gets too hot ('guard' in the matrix)"
            if guard is None
            else f"the board ends its load above {guard.above_celsius:g} degC ({', '.join(guard.zone_types)})"
        )
        for guard, boards in by_guard.items()
    ]


def _arms(plan: Plan) -> Table:
    table = plain_table("arms", "arm", "levels", "is")
    names = {baseline.arm for baseline in plan.matrix.baselines}
    for arm in plan.arms:
        levels = ", ".join(f"{name}={level}" for name, level in arm.levels.items())
        table.add_row(escape(arm.name), escape(levels), _role(arm, names))
    return table


def _role(arm: Arm, baselines: set[str]) -> str:
    if arm.control_of is not None:
        return f"A/A control of {escape(arm.control_of)}"
    return "baseline" if arm.name in baselines else ""


def _waves(plan: Plan) -> Table:
    table = plain_table("cells, in order", "wave", "arm", "rep", "cells that start together", numeric=("wave", "rep"))
    for cells in plan.waves:
        first = cells[0]
        names = ", ".join(f"{cell.number:03d} {'+'.join(cell.boards)}" for cell in cells)
        table.add_row(str(first.wave), escape(first.arm), str(first.repetition), escape(names))
    return table
