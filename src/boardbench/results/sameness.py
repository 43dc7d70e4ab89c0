"""Do all arms give the same answers? Compared over a campaign: an arm that says something else measures something else.

Runs of one family (same model, prompts and length, see `Outputs`) are compared with the first valid run of that
family's baseline on the same board: the first named baseline in it, else its first arm.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from boardbench.results.problems import Reason
from boardbench.results.sampled import Sampled
from boardbench.workloads.base import Outputs

PERPLEXITY_SHARE = 1e-4
"""Both programs print four digits after the point; a real difference is larger than this share."""
SHOWN = 3


def differing(plan: Mapping[str, Any], runs: Sequence[Sampled]) -> dict[str, tuple[Reason, ...]]:
    """Name of a run -> why its answers are not those of its baseline. Only runs that differ are in it."""
    return {run.run: found for run, _, found in _compared(plan, runs) if found}


def baselines(plan: Mapping[str, Any], runs: Sequence[Sampled]) -> dict[str, Sampled]:
    """Name of a run -> the run that its answers are compared with (itself for that one)."""
    return {run.run: base for run, base, _ in _compared(plan, runs)}


def _compared(
    plan: Mapping[str, Any], runs: Sequence[Sampled]
) -> Iterator[tuple[Sampled, Sampled, tuple[Reason, ...]]]:
    order = [entry["arm"] for entry in plan["baselines"]] + [arm["name"] for arm in plan["arms"]]
    for run in runs:
        if run.samples.outputs is None:
            continue
        base = _baseline(run.board, run.samples.outputs.family, order, runs)
        yield run, base, tuple(_differences(run.samples.outputs, base))


def _baseline(board: str, family: str, order: Sequence[str], runs: Sequence[Sampled]) -> Sampled:
    kin = [run for run in runs if run.board == board and run.samples.outputs and run.samples.outputs.family == family]
    return min(kin, key=lambda run: order.index(run.arm))


def _differences(mine: Outputs, base: Sampled) -> Iterator[Reason]:
    theirs = base.samples.outputs
    assert theirs is not None
    other = [name for name in {**theirs.texts, **mine.texts} if mine.texts.get(name) != theirs.texts.get(name)]
    if other:
        names = ", ".join(other[:SHOWN]) + (", ..." if len(other) > SHOWN else "")
        what = f"{len(other)} of {len(theirs.texts)} answers are not those of {base.arm} ({base.run}): {names}"
        yield Reason("text-differs", what)
    if mine.perplexity is None or theirs.perplexity is None or mine.perplexity_of != theirs.perplexity_of:
        return
    if abs(mine.perplexity - theirs.perplexity) > PERPLEXITY_SHARE * theirs.perplexity:
        what = f"perplexity {mine.perplexity:.4f}, that of {base.arm} ({base.run}) is {theirs.perplexity:.4f}"
        yield Reason("perplexity-differs", what)
