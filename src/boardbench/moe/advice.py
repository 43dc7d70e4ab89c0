"""Would the expert cache pay for this model, on this machine, for these texts? Predicted from a router trace.

Everything is counted from the trace by exact simulation; what a machine can do (memory, rates) is given by the
caller, and what is not known is None.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from .accesses import Accesses, accesses, slot_bytes
from .expert_layout import MoeModel
from .miss_curve import Curve, lru_curve, next_layer_overlap, pinned_curve, unit_distances
from .trace import Trace

MIB = 1 << 20


@dataclass(frozen=True)
class Machine:
    """What is known of the machine: memory that the server may use, how fast it reads and computes. None: not known.

    `direct_bytes_per_s`: reads of 128 KiB around the page cache, several at once. `fault_bytes_per_s`: page faults of a
    mapped file. `stock_read_bytes_per_token`: what the stock server was measured to read on the same prompts.
    `compute_s_per_token`: time of a token that reads nothing.
    """

    memory_bytes: int | None = None
    direct_bytes_per_s: float | None = None
    fault_bytes_per_s: float | None = None
    stock_read_bytes_per_token: float | None = None
    compute_s_per_token: float | None = None


@dataclass(frozen=True)
class AtBudget:
    """Figures at one budget. Rates are shares of look-ups; bytes per token are of decode alone, as in the file.

    `units_held`: units of mean slot size that fit. `pinned_*` and `lru_late_*` count the later half of the decoded
    passes; pinning chose from the earlier half, LRU came through it.
    """

    budget_bytes: int
    units_held: int
    working_sets: float
    lookups: int
    misses: int
    decode_lookups: int
    decode_misses: int
    decode_bytes_per_token: float
    prefill_bytes: int
    lru_late_bytes_per_token: float | None
    pinned_late_bytes_per_token: float | None

    @property
    def decode_miss_rate(self) -> float:
        """Share of decode's look-ups that miss."""
        return self.decode_misses / self.decode_lookups


@dataclass(frozen=True)
class Outlook:
    """What the trace says of the model's use of experts, whatever the budget.

    `token_bytes`: working set of a token, as in the file; `token_slot_bytes`: in slots. `heat_bits`: mean over layers
    of the entropy of decode's use of experts, of `heat_bits_most`. `next_layer_*`: share of a layer's experts that a
    guess from the layer before names, with another token's layer, and by heat alone (None: too little decode).
    `page_cache_bytes`: memory left beside the weights that are no experts; `page_cache_bytes_per_token`: what a perfect
    LRU page cache of that size would still read, the least that the stock server reads.
    """

    token_bytes: int
    token_slot_bytes: int
    expert_bytes: int
    expert_slot_bytes: int
    units: int
    units_used: int
    mean_unit_bytes: float
    slice_bytes: tuple[int, int]
    heat_bits: float
    heat_bits_most: float
    next_layer_guess: float | None
    next_layer_shuffled: float | None
    next_layer_heat: float | None
    page_cache_bytes: int | None
    page_cache_bytes_per_token: float | None
    decode_tokens: int
    prefill_tokens: int


@dataclass(frozen=True)
class Simulation:
    """All of it: the outlook, the figures by budget, and the exact curves for any other budget."""

    outlook: Outlook
    budgets: tuple[AtBudget, ...]
    all_lookups: Curve
    decode: Curve


def simulate(model: MoeModel, trace: Trace, budgets: Sequence[int], machine: Machine, where: str) -> Simulation:
    """Simulate the cache at `budgets` (bytes; none: at multiples of a token's working set).

    Errors: `InputError` if the trace is not of this model or holds no decode.
    """
    trace.check_model(model, where)
    used = accesses(trace)
    if not used.decode_tokens:
        raise InputError(
            "the trace holds no decoded token", where=where, advice="let the traced server generate some text"
        )
    slots, reads = used.by_unit(slot_bytes(model)), used.by_unit(model.unit_bytes())
    distances = unit_distances(used, slots)
    read_by_access = reads[used.unit]
    decode = lru_curve(distances[used.decode], read_by_access[used.decode])
    every = lru_curve(distances, read_by_access)
    late = _Late(used, distances, slots, reads)
    outlook = _outlook(model, trace, used, machine, (distances, slots, reads))
    chosen = sorted(set(budgets)) or _default_budgets(outlook)
    rows = tuple(_at(budget, outlook, every, decode, late) for budget in chosen)
    return Simulation(outlook, rows, every, decode)


class _Late:
    """The later half of decode, for LRU and for pinning that chose from the earlier half."""

    def __init__(
        self,
        used: Accesses,
        distances: NDArray[np.int64],
        slots: NDArray[np.int64],
        reads: NDArray[np.int64],
    ) -> None:
        decoding = np.flatnonzero(used.pass_decode_tokens)
        self.half = int(decoding[len(decoding) // 2])
        late = used.decode & (used.access_pass >= self.half)
        early = used.decode & (used.access_pass < self.half)
        self.tokens = int(used.pass_decode_tokens[self.half :].sum())
        self.lru = lru_curve(distances[late], reads[used.unit[late]])
        self.pinned = pinned_curve(used.unit[early], used.unit[late], slots, reads) if early.any() else None


def _outlook(
    model: MoeModel,
    trace: Trace,
    used: Accesses,
    machine: Machine,
    arrays: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]],
) -> Outlook:
    _, slots, reads = arrays
    slot_by_layer = slot_bytes(model)
    page_cache, page_cache_reads = _page_cache(model, used, machine, reads)
    slices = [one.slice_bytes for kinds in model.layers.values() for one in kinds.values()]
    decoding = np.flatnonzero(used.pass_decode_tokens)
    guess, shuffled, heat = next_layer_overlap(used, int(decoding[len(decoding) // 2]))
    known = guess == guess
    return Outlook(
        token_bytes=sum(model.unit_bytes()[layer] for layer in used.layers) * model.used,
        token_slot_bytes=sum(slot_by_layer[layer] for layer in used.layers) * model.used,
        expert_bytes=model.expert_bytes,
        expert_slot_bytes=int(slots.sum()),
        units=used.units,
        units_used=int(np.count_nonzero(np.bincount(used.unit))),
        mean_unit_bytes=float(reads.mean()),
        slice_bytes=(min(slices), max(slices)),
        heat_bits=_heat_bits(used),
        heat_bits_most=float(np.log2(model.experts)),
        next_layer_guess=guess if known else None,
        next_layer_shuffled=shuffled if known else None,
        next_layer_heat=heat if known else None,
        page_cache_bytes=page_cache,
        page_cache_bytes_per_token=page_cache_reads,
        decode_tokens=used.decode_tokens,
        prefill_tokens=trace.prefill_tokens,
    )


def _page_cache(
    model: MoeModel, used: Accesses, machine: Machine, reads: NDArray[np.int64]
) -> tuple[int | None, float | None]:
    if machine.memory_bytes is None or model.tensor_bytes is None:
        return None, None
    left = max(0, machine.memory_bytes - (model.tensor_bytes - model.expert_bytes))
    distances = unit_distances(used, reads)
    curve = lru_curve(distances[used.decode], reads[used.unit[used.decode]])
    return left, curve.at(left)[1] / used.decode_tokens


def _heat_bits(used: Accesses) -> float:
    decode = used.unit[used.decode]
    uses = np.bincount(decode, minlength=used.units).reshape(-1, used.experts)
    bits = []
    for layer in uses:
        share = layer[layer > 0] / max(1, layer.sum())
        bits.append(float(-(share * np.log2(share)).sum()))
    return float(np.mean(bits))


def _default_budgets(outlook: Outlook) -> list[int]:
    whole = -(-outlook.expert_slot_bytes // MIB) * MIB
    steps = [int(factor * outlook.token_slot_bytes) // MIB * MIB for factor in (0.5, 1, 1.5, 2, 3, 4, 6, 8, 12, 16)]
    return sorted({step for step in steps if 0 < step < whole} | {whole})


def _at(budget: int, outlook: Outlook, every: Curve, decode: Curve, late: _Late) -> AtBudget:
    misses, read_bytes = every.at(budget)
    decode_misses, decode_bytes = decode.at(budget)
    tokens = late.tokens or None
    pinned = None if late.pinned is None or tokens is None else late.pinned.at(budget)[1] / tokens
    return AtBudget(
        budget_bytes=budget,
        units_held=min(outlook.units, budget * outlook.units // outlook.expert_slot_bytes),
        working_sets=budget / outlook.token_slot_bytes,
        lookups=every.lookups,
        misses=misses,
        decode_lookups=decode.lookups,
        decode_misses=decode_misses,
        decode_bytes_per_token=decode_bytes / outlook.decode_tokens,
        prefill_bytes=read_bytes - decode_bytes,
        lru_late_bytes_per_token=None if tokens is None else late.lru.at(budget)[1] / tokens,
        pinned_late_bytes_per_token=pinned,
    )
