"""The verdict: certain reasons first, then measurements, then the miss rate with its field bounds."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from boardbench.errors import InputError
from boardbench.moe.advice import MIB, AtBudget, Machine, Outlook, Simulation, simulate
from boardbench.moe.expert_layout import ExpertTensor, MoeModel
from boardbench.moe.miss_curve import Curve
from boardbench.moe.verdict import Judged, Verdict, best, judge

from .made_traces import builder_for, text_trace

GIB = 1024 * MIB


def a_model(layers: int, experts: int, used: int, unit_mib: float, other_gib: float) -> MoeModel:
    """A model by its sizes alone."""
    path = Path("m.gguf")
    slice_bytes = int(unit_mib * MIB) // 3
    kinds = {kind: ExpertTensor(kind, path, "MXFP4", 0, slice_bytes) for kind in ("gate", "up", "down")}
    total = layers * experts * 3 * slice_bytes + int(other_gib * GIB)
    return MoeModel(
        path,
        (path,),
        "made",
        "made",
        layers,
        experts,
        used,
        used,
        dict.fromkeys(range(layers), kinds),
        total,
        1,
        32,
        (),
    )


def figures(model: MoeModel, budget: int, miss_rate: float, page_cache: float | None = None) -> Simulation:
    """What a trace would have given, made by hand."""
    token = model.token_bytes
    outlook = Outlook(
        token_bytes=token,
        token_slot_bytes=token,
        expert_bytes=model.expert_bytes,
        expert_slot_bytes=model.expert_bytes,
        units=len(model.layers) * model.experts,
        units_used=1,
        mean_unit_bytes=float(model.unit_bytes()[0]),
        slice_bytes=(1, 1),
        heat_bits=1.0,
        heat_bits_most=2.0,
        next_layer_guess=None,
        next_layer_shuffled=None,
        next_layer_heat=None,
        page_cache_bytes=None if page_cache is None else 1,
        page_cache_bytes_per_token=page_cache,
        decode_tokens=100,
        prefill_tokens=10,
    )
    held = budget * outlook.units // outlook.expert_slot_bytes
    lookups = 1_000_000
    at = AtBudget(
        budget_bytes=budget,
        units_held=held,
        working_sets=budget / token,
        lookups=lookups,
        misses=int(lookups * miss_rate),
        decode_lookups=lookups,
        decode_misses=int(lookups * miss_rate),
        decode_bytes_per_token=token * miss_rate,
        prefill_bytes=0,
        lru_late_bytes_per_token=None,
        pinned_late_bytes_per_token=None,
    )
    nothing = Curve(*([None] * 3), 0)  # type: ignore[arg-type]
    return Simulation(outlook, (at,), nothing, nothing)


def verdict_of(model: MoeModel, simulation: Simulation, machine: Machine) -> Judged:
    (judged,) = judge(model, simulation, machine)
    return judged


# Sizes and miss rates as the field saw them on a board of 7.4 GiB with a cache of 2 GiB.
MANY_SMALL = a_model(layers=40, experts=256, used=8, unit_mib=1.77, other_gib=2.3)
FEW_LARGE = a_model(layers=24, experts=32, used=4, unit_mib=12.6, other_gib=1.85)
BOARD = Machine(memory_bytes=int(7.4 * GIB))


def test_many_small_experts_that_miss_a_third_are_used() -> None:
    judged = verdict_of(MANY_SMALL, figures(MANY_SMALL, 2 * GIB, 0.34), BOARD)
    assert judged.verdict is Verdict.USE
    assert "34% of decode's look-ups miss, 193 MiB a token" in judged.reasons[0]
    assert "1,157 of 10,240 units (11%)" in judged.reasons[1]
    assert "3.6 x one token's working set (566 MiB)" in judged.reasons[1]


def test_few_large_experts_that_miss_half_are_not() -> None:
    judged = verdict_of(FEW_LARGE, figures(FEW_LARGE, 2 * GIB, 0.51), BOARD)
    assert judged.verdict is Verdict.DO_NOT
    assert "51% of decode's look-ups miss, 617 MiB a token: in the field 51 % was slower" in judged.reasons[0]
    assert "162 of 768 units (21%)" in judged.reasons[1]


def test_between_the_two_the_advice_is_to_measure() -> None:
    assert verdict_of(MANY_SMALL, figures(MANY_SMALL, 2 * GIB, 0.42), BOARD).verdict is Verdict.MEASURE


def test_a_budget_below_one_token_is_refused_whatever_else_is_known() -> None:
    machine = dataclasses.replace(BOARD, stock_read_bytes_per_token=1e12)
    judged = verdict_of(MANY_SMALL, figures(MANY_SMALL, GIB // 2, 0.1), machine)
    assert judged.verdict is Verdict.DO_NOT
    assert "the budget (512 MiB) is below one token's working set (566 MiB)" in judged.reasons[0]


def test_a_model_that_fits_into_memory_needs_no_cache() -> None:
    judged = verdict_of(FEW_LARGE, figures(FEW_LARGE, 2 * GIB, 0.1), Machine(memory_bytes=16 * GIB))
    assert judged.verdict is Verdict.DO_NOT
    assert "fits into memory (16.0 GiB)" in judged.reasons[0]


def test_a_cache_that_does_not_fit_beside_the_other_weights_is_refused() -> None:
    judged = verdict_of(MANY_SMALL, figures(MANY_SMALL, 6 * GIB, 0.1), BOARD)
    assert judged.verdict is Verdict.DO_NOT
    assert "do not fit into 7.4 GiB" in judged.reasons[0]


@pytest.mark.parametrize(
    ("stock_mib", "verdict"), [(300.0, Verdict.USE), (200.0, Verdict.MEASURE), (100.0, Verdict.DO_NOT)]
)
def test_what_stock_was_measured_to_read_decides_before_the_miss_rate(stock_mib: float, verdict: Verdict) -> None:
    machine = dataclasses.replace(BOARD, stock_read_bytes_per_token=stock_mib * MIB)
    judged = verdict_of(MANY_SMALL, figures(MANY_SMALL, 2 * GIB, 0.34), machine)
    assert judged.verdict is verdict
    assert "was measured to read" in judged.reasons[0]


def test_rates_turn_bytes_into_times() -> None:
    machine = dataclasses.replace(
        BOARD,
        stock_read_bytes_per_token=150 * MIB,
        direct_bytes_per_s=3000 * MIB,
        fault_bytes_per_s=1000 * MIB,
        compute_s_per_token=0.193,
    )
    judged = verdict_of(MANY_SMALL, figures(MANY_SMALL, 2 * GIB, 0.34), machine)
    assert judged.verdict is Verdict.USE
    assert "take 64 ms with the cache (193 MiB) and 150 ms without" in judged.reasons[0]
    assert "between 3.9 tokens/s" in judged.reasons[-1]
    assert "5.2 (each layer's reads known in time" in judged.reasons[-1]


def test_a_bound_on_what_stock_reads_can_show_a_gain_but_no_loss() -> None:
    machine = dataclasses.replace(BOARD, direct_bytes_per_s=1000.0 * MIB, fault_bytes_per_s=1000.0 * MIB)
    gain = figures(MANY_SMALL, 2 * GIB, 0.34, page_cache=400.0 * MIB)
    loss = figures(MANY_SMALL, 2 * GIB, 0.34, page_cache=50.0 * MIB)
    assert verdict_of(MANY_SMALL, gain, machine).verdict is Verdict.USE
    assert verdict_of(MANY_SMALL, loss, machine).verdict is Verdict.MEASURE


def test_the_smallest_budget_that_is_nearly_as_good_is_followed(model: MoeModel) -> None:
    trace = text_trace(model, requests=4, skew=1.5)
    whole = 64 * 9 * 4096
    simulation = simulate(model, trace, [whole // 8, whole // 2, whole, 2 * whole], Machine(), "t")
    followed = best(judge(model, simulation, Machine()))
    assert followed.verdict is Verdict.USE
    assert followed.at.budget_bytes == whole


def test_a_trace_without_decode_gives_no_advice(model: MoeModel) -> None:
    trace = text_trace(model, requests=1, decoded=0)
    with pytest.raises(InputError, match="no decoded token"):
        simulate(model, trace, [], Machine(), "t")
    with pytest.raises(InputError, match="holds no pass"):
        builder_for(model).trace(0)
