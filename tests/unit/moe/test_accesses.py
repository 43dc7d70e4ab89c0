"""From traces to look-ups: what a pass asks the cache for, and how much room a unit takes."""

from __future__ import annotations

import numpy as np

from boardbench.moe.accesses import accesses, slot_bytes
from boardbench.moe.expert_layout import MoeModel
from boardbench.moe.miss_curve import next_layer_overlap
from boardbench.moe.trace import DECODE, PREFILL

from .made_traces import builder_for, one_pass, text_trace


def test_a_pass_asks_for_each_expert_once_by_rising_number(model: MoeModel) -> None:
    builder = builder_for(model)
    ids = np.array([[[3, 1, 2, 0], [9, 3, 8, 1]], [[15, 14, 13, 12], [12, 13, 14, 15]]])
    builder.add_pass(one_pass(ids, [1, 3], 0, PREFILL))
    builder.add_pass(one_pass(ids[:, :1], [1, 3], 1, DECODE))
    used = accesses(builder.trace(0))
    first = [0, 1, 2, 3, 8, 9, 28, 29, 30, 31]
    assert used.unit.tolist() == [*first, 0, 1, 2, 3, 28, 29, 30, 31]
    assert used.layers == (1, 3)
    assert used.lookup_layer.tolist() == [0, 1, 0, 1]
    assert used.lookup_decode.tolist() == [False, False, True, True]
    assert used.pass_decode_tokens.tolist() == [0, 1]
    assert used.by_unit({1: 5, 3: 7}).tolist() == [5] * 16 + [7] * 16


def test_a_pass_of_prompt_and_decode_is_no_decode(model: MoeModel) -> None:
    builder = builder_for(model)
    mixed = one_pass(np.arange(8).reshape(1, 2, 4), [0], 0, DECODE)
    mixed.phases[0] = PREFILL
    builder.add_pass(mixed)
    builder.add_pass(one_pass(np.arange(8).reshape(1, 2, 4), [0], 1, DECODE))
    used = accesses(builder.trace(0))
    assert used.lookup_decode.tolist() == [False, True]
    assert used.decode_tokens == 2


def test_a_warm_up_with_all_experts_does_not_reach_the_cache_and_a_small_trial_does(model: MoeModel) -> None:
    builder = builder_for(model)
    builder.add_pass(one_pass(np.arange(16).reshape(1, 1, 16), [0], 0, PREFILL, warm_up=True))
    builder.add_pass(one_pass(np.array([[[1, 2, 3, 4]]]), [0], 1, PREFILL, warm_up=True))
    builder.add_pass(one_pass(np.array([[[5, 6, 7, 8]]]), [0], 2, DECODE))
    used = accesses(builder.trace(0))
    assert used.unit.tolist() == [1, 2, 3, 4, 5, 6, 7, 8]
    assert used.decode.tolist() == [False] * 4 + [True] * 4


def test_a_slot_has_room_for_a_slice_that_starts_anywhere_in_a_page(model: MoeModel) -> None:
    # 6,912 bytes: two pages, and a third where the slice starts late in its first.
    assert set(slot_bytes(model).values()) == {3 * 3 * 4096}


def test_a_guess_of_the_next_layer_is_only_good_where_layers_hang_together(model: MoeModel) -> None:
    rng = np.random.default_rng(5)
    tied, loose = builder_for(model), builder_for(model)
    layers = [0, 1, 2, 3]
    for call in range(600):
        group = rng.integers(0, 4)
        tied.add_pass(one_pass(np.tile(np.arange(4) + 4 * group, (4, 1, 1)), layers, call, DECODE))
        ids = np.stack([rng.permutation(16)[:4] for _ in layers])[:, None]
        loose.add_pass(one_pass(ids, layers, call, DECODE))
    guess, shuffled, heat = next_layer_overlap(accesses(tied.trace(0)), 300)
    assert guess > 0.99
    assert shuffled < 0.4
    assert heat < 0.4
    guess, shuffled, _ = next_layer_overlap(accesses(loose.trace(0)), 300)
    assert abs(guess - shuffled) < 0.06


def test_no_decode_gives_no_guess(model: MoeModel) -> None:
    trace = text_trace(model, requests=1, decoded=1)
    assert all(np.isnan(next_layer_overlap(accesses(trace), 1)))
