"""Advice about an expert cache for people: model and trace, a row for each budget, the verdict with its reasons."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.markup import escape

from boardbench.moe.advice import AtBudget, Machine, Outlook, Simulation
from boardbench.moe.expert_layout import MoeModel
from boardbench.moe.trace import Trace
from boardbench.moe.verdict import Judged, Verdict, best, mib
from boardbench.report.tables import plain_console, plain_table

STYLES = {Verdict.USE: "bold green", Verdict.DO_NOT: "bold red", Verdict.MEASURE: "bold yellow"}


def print_advice(
    model: MoeModel, trace: Trace, simulation: Simulation, machine: Machine, judged: Sequence[Judged]
) -> None:
    """Everything on stdout, the verdict last."""
    console = plain_console()
    for line in _model_lines(model, trace, simulation.outlook, machine):
        console.print(line, soft_wrap=True)
    console.print(_table(judged))
    followed = best(tuple(judged))
    style = STYLES[followed.verdict]
    console.print(f"[{style}]{followed.verdict}[/] the expert cache here, at {mib(followed.at.budget_bytes)}:")
    for reason in followed.reasons:
        console.print(f"  {escape(reason)}", soft_wrap=True)


def _model_lines(model: MoeModel, trace: Trace, outlook: Outlook, machine: Machine) -> Iterator[str]:
    name = escape(model.name or model.path.name)
    smallest, largest = outlook.slice_bytes
    slices = mib(smallest) if smallest == largest else f"{mib(smallest)} to {mib(largest)}"
    override = "" if model.used == model.used_in_file else f" (the file says {model.used_in_file})"
    yield (
        f"{name}: {escape(model.architecture)}, {len(model.layers)} layers of {model.experts} experts, "
        f"{model.used} a token{override}; experts {mib(outlook.expert_bytes)}, slices {slices}"
    )
    yield (
        f"trace: {outlook.prefill_tokens:,} tokens of prompts, {outlook.decode_tokens:,} decoded; "
        f"{outlook.units_used:,} of {outlook.units:,} units used; heat {outlook.heat_bits:.2f} of "
        f"{outlook.heat_bits_most:.0f} bits"
    )
    if outlook.next_layer_guess is not None:
        yield (
            f"next layer's experts, guessed from this layer's: {outlook.next_layer_guess:.0%} right, "
            f"{outlook.next_layer_shuffled:.0%} with another token's layer, {outlook.next_layer_heat:.0%} by heat alone"
        )
    if machine.memory_bytes is not None:
        yield f"memory for the server: {mib(machine.memory_bytes)}"
    for problem in trace.problems():
        yield f"[yellow]note[/] {escape(problem)}"


def _table(judged: Sequence[Judged]) -> Any:
    columns = ("budget", "units", "x token", "misses", "read/token", "later half: LRU", "pinned", "verdict")
    table = plain_table("decode at each budget", *columns, numeric=columns[:-1])
    for one in judged:
        at = one.at
        table.add_row(
            mib(at.budget_bytes),
            f"{at.units_held:,}",
            f"{at.working_sets:.1f}",
            f"{at.decode_miss_rate:.1%}",
            mib(at.decode_bytes_per_token),
            "-" if at.lru_late_bytes_per_token is None else mib(at.lru_late_bytes_per_token),
            "-" if at.pinned_late_bytes_per_token is None else mib(at.pinned_late_bytes_per_token),
            f"[{STYLES[one.verdict]}]{one.verdict}[/]",
        )
    return table


def advice_document(
    model: MoeModel, trace: Trace, simulation: Simulation, machine: Machine, judged: Sequence[Judged]
) -> dict[str, Any]:
    """The same as one JSON object; what is not known is null."""
    followed = best(tuple(judged))
    return {
        "model": {
            "path": str(model.path),
            "architecture": model.architecture,
            "name": model.name,
            "layers": len(model.layers),
            "experts": model.experts,
            "used": model.used,
            "used_in_file": model.used_in_file,
            "tensor_bytes": model.tensor_bytes,
        },
        "trace": {"runs": list(trace.runs), "problems": list(trace.problems())},
        "machine": vars(machine),
        "outlook": {**vars(simulation.outlook), "slice_bytes": list(simulation.outlook.slice_bytes)},
        "budgets": [_budget(one) for one in judged],
        "verdict": {"word": followed.verdict.value, **_why(followed)},
    }


def _budget(one: Judged) -> Mapping[str, Any]:
    at: AtBudget = one.at
    return {**vars(at), "decode_miss_rate": at.decode_miss_rate, "verdict": one.verdict.value}


def _why(followed: Judged) -> dict[str, Any]:
    return {"budget_bytes": followed.at.budget_bytes, "reasons": list(followed.reasons)}
