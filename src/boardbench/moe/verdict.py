"""Use the expert cache here, or not: the reasons with their numbers, in the order in which they count.

A budget below one token's working set, a model that fits into memory, and a cache that does not are certain. Then
measurements decide (times, or bytes that the stock server was measured to read). Without any, the miss rate does,
with the two ends that were measured in the field on one board with 2 GiB: at 34 % of look-ups the cache made decode
faster, at 51 % slower. Between the ends, and where a comparison is close, the advice is to measure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from .advice import MIB, AtBudget, Machine, Outlook, Simulation
from .expert_layout import MoeModel

FIELD_USED_UP_TO = 0.35
FIELD_SLOWER_FROM = 0.50
# Figures of a trace and of another day's texts differ; a gain must be larger than that to be promised.
CLOSE = 0.1


class Verdict(StrEnum):
    """What to do at a budget."""

    USE = "use"
    DO_NOT = "do not use"
    MEASURE = "measure"


@dataclass(frozen=True)
class Judged:
    """The verdict at one budget, and why; the first reason decided."""

    at: AtBudget
    verdict: Verdict
    reasons: tuple[str, ...]


def judge(model: MoeModel, simulation: Simulation, machine: Machine) -> tuple[Judged, ...]:
    """A verdict for every budget of the simulation."""
    return tuple(_judge(model, simulation.outlook, at, machine) for at in simulation.budgets)


def best(judged: tuple[Judged, ...]) -> Judged:
    """The one to follow: the smallest budget to use whose reads no larger one cuts by a tenth."""
    for wanted in (Verdict.USE, Verdict.MEASURE):
        there = [one for one in judged if one.verdict is wanted]
        if there:
            least = min(one.at.decode_bytes_per_token for one in there)
            return next(one for one in there if one.at.decode_bytes_per_token <= least * (1 + CLOSE) + MIB / 16)
    return judged[-1]


def _judge(model: MoeModel, outlook: Outlook, at: AtBudget, machine: Machine) -> Judged:
    verdict, why = next(iter(_decide(model, outlook, at, machine)))
    return Judged(at, verdict, (why, *_background(outlook, at, machine)))


def _decide(model: MoeModel, outlook: Outlook, at: AtBudget, machine: Machine) -> Iterator[tuple[Verdict, str]]:
    """What decides, first come first."""
    if machine.memory_bytes is not None and model.tensor_bytes is not None:
        memory, rest = machine.memory_bytes, model.tensor_bytes - model.expert_bytes
        if model.tensor_bytes <= memory:
            yield (
                Verdict.DO_NOT,
                f"the whole model ({mib(model.tensor_bytes)}) fits into memory ({mib(memory)}): "
                "stock reads it once and then nothing",
            )
        if at.budget_bytes + rest > memory:
            yield (
                Verdict.DO_NOT,
                f"a cache of {mib(at.budget_bytes)} and the other weights ({mib(rest)}) do not fit into {mib(memory)}",
            )
    if at.budget_bytes < outlook.token_slot_bytes:
        yield (
            Verdict.DO_NOT,
            f"the budget ({mib(at.budget_bytes)}) is below one token's working set ({mib(outlook.token_slot_bytes)}): "
            f"units are evicted before they are used again, {at.decode_miss_rate:.0%} of look-ups miss",
        )
    yield from _by_measurement(outlook, at, machine)
    yield _by_miss_rate(at)


def _by_measurement(outlook: Outlook, at: AtBudget, machine: Machine) -> Iterator[tuple[Verdict, str]]:
    measured = machine.stock_read_bytes_per_token
    stock = measured if measured is not None else outlook.page_cache_bytes_per_token
    if stock is None:
        return
    cache = at.decode_bytes_per_token
    what = "was measured to read" if measured is not None else "reads at least"
    if machine.direct_bytes_per_s and machine.fault_bytes_per_s:
        mine, theirs = cache / machine.direct_bytes_per_s, stock / machine.fault_bytes_per_s
        why = (
            f"reads of a token take {mine * 1e3:.0f} ms with the cache ({mib(cache)}) and {theirs * 1e3:.0f} ms "
            f"without: stock {what} {mib(stock)}, by page faults"
        )
        # The least that stock reads is no measurement: it can show a gain, but never a loss.
        loses = Verdict.DO_NOT if measured is not None else Verdict.MEASURE
        yield _compare(mine, theirs, loses), why
        return
    if measured is not None or cache <= stock * (1 - CLOSE):
        why = f"the cache reads {mib(cache)} a token, stock {what} {mib(stock)}"
        yield _compare(cache, stock, Verdict.DO_NOT), why


def _compare(mine: float, theirs: float, loses: Verdict) -> Verdict:
    if mine <= theirs * (1 - CLOSE):
        return Verdict.USE
    return loses if mine >= theirs * (1 + CLOSE) else Verdict.MEASURE


def _by_miss_rate(at: AtBudget) -> tuple[Verdict, str]:
    rate = at.decode_miss_rate
    why = f"{rate:.0%} of decode's look-ups miss, {mib(at.decode_bytes_per_token)} a token"
    if rate <= FIELD_USED_UP_TO:
        return Verdict.USE, f"{why}: in the field 34 % was faster than stock"
    if rate >= FIELD_SLOWER_FROM:
        return Verdict.DO_NOT, f"{why}: in the field 51 % was slower than stock"
    return Verdict.MEASURE, f"{why}: between the 34 % that was faster in the field and the 51 % that was slower"


def _background(outlook: Outlook, at: AtBudget, machine: Machine) -> Iterator[str]:
    share = at.units_held / outlook.units
    yield (
        f"{at.units_held:,} of {outlook.units:,} units ({share:.0%}) fit, {at.working_sets:.1f} x one token's "
        f"working set ({mib(outlook.token_slot_bytes)}); a unit is {mib(outlook.mean_unit_bytes)}"
    )
    least = outlook.page_cache_bytes_per_token
    if least is not None and outlook.page_cache_bytes is not None:
        yield (
            f"a perfect page cache of the {mib(outlook.page_cache_bytes)} beside the other weights would read "
            f"{mib(least)} a token; this cache reads {mib(at.decode_bytes_per_token)}"
        )
    late, pinned = at.lru_late_bytes_per_token, at.pinned_late_bytes_per_token
    if late is not None and pinned is not None:
        better = "less" if late <= pinned else "more"
        yield f"least recently used reads {better} than pinning: {mib(late)} against {mib(pinned)} a token, later half"
    yield from _speed(at, machine)


def _speed(at: AtBudget, machine: Machine) -> Iterator[str]:
    if not machine.direct_bytes_per_s:
        return
    reading = at.decode_bytes_per_token / machine.direct_bytes_per_s
    if machine.compute_s_per_token is None:
        if reading > 0:
            yield f"reads alone bound decode at {1 / reading:.1f} tokens/s"
        return
    compute = machine.compute_s_per_token
    yield (
        f"decode between {1 / (compute + reading):.1f} tokens/s (no read overlaps) and "
        f"{1 / max(compute, reading):.1f} (each layer's reads known in time: what perfect prediction could do)"
    )


def mib(count: float) -> str:
    """Bytes for people: `6.8 KiB`, `186 MiB`, `7.4 GiB`."""
    if count >= 4096 * MIB:
        return f"{count / MIB / 1024:.1f} GiB"
    if 0 < count < MIB / 10:
        return f"{count / 1024:,.1f} KiB"
    value = count / MIB
    return f"{value:,.0f} MiB" if value >= 100 else f"{value:,.1f} MiB"
