"""Stack distances and curves against caches that are simulated one access at a time."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boardbench.errors import InputError
from boardbench.moe import stack_distance
from boardbench.moe.miss_curve import Curve, lru_curve, pinned_curve
from boardbench.moe.stack_distance import COLD, stack_distances


def brute_misses(units: Sequence[int], sizes: Sequence[int], budget: int) -> list[bool]:
    """A least recently used cache, the plain way: evict until the new unit fits."""
    held: OrderedDict[int, int] = OrderedDict()
    missed = []
    for unit in units:
        missed.append(unit not in held)
        if unit in held:
            held.move_to_end(unit)
            continue
        while held and sum(held.values()) + sizes[unit] > budget:
            held.popitem(last=False)
        if sizes[unit] <= budget:
            held[unit] = sizes[unit]
    return missed


traces = st.integers(1, 12).flatmap(
    lambda count: st.tuples(
        st.lists(st.integers(0, count - 1), max_size=120), st.lists(st.integers(1, 9), min_size=count, max_size=count)
    )
)


@pytest.fixture(params=[1, 2, 7, 32, 1 << 14])
def chunk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Small chunks, so that short traces cross many of their bounds."""
    monkeypatch.setattr(stack_distance, "_CHUNK", request.param)
    return int(request.param)


@settings(max_examples=60, deadline=None)
@given(case=traces)
def test_an_access_hits_exactly_at_budgets_from_its_distance_on(
    case: tuple[list[int], list[int]],
) -> None:
    units, sizes = case
    for size in (1, 5, 1 << 14):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(stack_distance, "_CHUNK", size)
            distances = stack_distances(units, sizes)
        # A unit larger than the whole cache is a question of its own: no budget here is that small.
        for budget in range(max(sizes), sum(sizes) + 2):
            missed = (distances == COLD) | (distances > budget)
            assert missed.tolist() == brute_misses(units, sizes, budget), budget


def test_a_long_trace_equals_the_plain_cache(chunk: int) -> None:
    rng = np.random.default_rng(chunk)
    units, sizes = rng.zipf(1.3, 3000) % 97, rng.integers(1, 50, 97)
    distances = stack_distances(units, sizes)
    for budget in (60, 400, 1500, 2400):
        missed = (distances == COLD) | (distances > budget)
        assert missed.tolist() == brute_misses(units.tolist(), sizes.tolist(), budget)


def test_sums_that_do_not_fit_into_32_bits_are_exact() -> None:
    units = [0, 1, 2, 0, 2, 1]
    distances = stack_distances(units, [1 << 40, 1 << 41, 3])
    assert distances.tolist() == [-1, -1, -1, (1 << 40) + (1 << 41) + 3, (1 << 40) + 3, (1 << 41) + (1 << 40) + 3]


def test_more_units_than_16_bits_hold() -> None:
    units = np.concatenate((np.arange(70_000), np.arange(70_000)[::-1]))
    distances = stack_distances(units, np.ones(70_000))
    assert (distances[:70_000] == COLD).all()
    assert distances[70_000:].tolist() == list(range(1, 70_001))


@pytest.mark.parametrize(("units", "sizes"), [([2], [1, 1]), ([-1], [1]), ([0], [0])])
def test_units_without_a_size_are_refused(units: list[int], sizes: list[int]) -> None:
    with pytest.raises(InputError, match="unit"):
        stack_distances(units, sizes)


def test_nothing_gives_nothing() -> None:
    assert stack_distances([], []).tolist() == []
    curve = lru_curve(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))
    assert curve.at(5) == (0, 0)


@settings(max_examples=60, deadline=None)
@given(case=traces, reads=st.lists(st.integers(1, 100), min_size=12, max_size=12))
def test_the_curve_counts_what_the_plain_cache_counts_at_every_budget(
    case: tuple[list[int], list[int]], reads: list[int]
) -> None:
    units, sizes = case
    read = np.array(reads)[np.array(units, dtype=np.int64)]
    curve = lru_curve(stack_distances(units, sizes), read)
    for budget in range(max(sizes), sum(sizes) + 2):
        missed = np.array(brute_misses(units, sizes, budget), dtype=bool)
        assert curve.at(budget) == (int(missed.sum()), int(read[missed].sum()))
    assert curve.at(0) == (len(units), int(read.sum()))
    assert (np.diff(curve.misses) <= 0).all()


@settings(max_examples=100, deadline=None)
@given(uses=st.lists(st.integers(0, 7), min_size=1, max_size=60), held=st.integers(0, 8))
def test_pinning_of_equal_units_is_the_best_fixed_choice(uses: list[int], held: int) -> None:
    ones = np.ones(8, dtype=np.int64)
    curve: Curve = pinned_curve(np.array(uses), np.array(uses), ones, ones)
    counts = sorted(np.bincount(uses, minlength=8).tolist(), reverse=True)
    assert curve.at(held) == (len(uses) - sum(counts[:held]),) * 2


def test_pinning_chosen_from_other_accesses_pays_for_being_wrong() -> None:
    ones = np.ones(4, dtype=np.int64)
    curve = pinned_curve(np.array([0, 0, 1]), np.array([2, 2, 1]), ones, ones * 10)
    assert [curve.at(budget) for budget in (0, 1, 2, 9)] == [(3, 30), (3, 30), (2, 20), (2, 20)]
