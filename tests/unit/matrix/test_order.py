"""Orders of waves: whole, repeatable, and balanced where they say so."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boardbench.matrix.order import ORDERS, caveat, design, order_waves, williams

COUNTS = st.integers(1, 9)
SEEDS = st.integers(0, 1 << 32)


@st.composite
def grouped(draw: st.DrawFn) -> list[list[int]]:
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    arms = draw(st.permutations(range(sum(sizes))))
    ends = list(itertools.accumulate(sizes, initial=0))
    return [list(arms[a:b]) for a, b in itertools.pairwise(ends)]


def neighbours(rows: tuple[tuple[int, ...], ...]) -> Counter[tuple[int, int]]:
    return Counter(pair for row in rows for pair in itertools.pairwise(row))


@given(COUNTS, SEEDS)
def test_in_a_design_each_arm_precedes_each_other_equally_often(count: int, seed: int) -> None:
    for rows in (williams(count), design(count, random.Random(seed))):
        follows = neighbours(rows)
        assert set(follows) == set(itertools.permutations(range(count), 2))
        assert len(set(follows.values())) <= 1


@given(COUNTS, SEEDS)
def test_in_a_design_each_arm_stands_in_each_place_equally_often(count: int, seed: int) -> None:
    rows = design(count, random.Random(seed))
    for square in range(0, len(rows), count):  # already the first rows alone are a Latin square
        for place in range(count):
            assert sorted(row[place] for row in rows[square : square + count]) == list(range(count))


@given(grouped(), st.integers(1, 9), st.sampled_from(ORDERS), SEEDS)
def test_every_order_holds_each_wave_once_and_is_repeatable(
    blocks: list[list[int]], repeats: int, kind: str, seed: int
) -> None:
    arms = sum(len(block) for block in blocks)
    waves = order_waves(arms, repeats, kind, seed, blocks)
    assert sorted(waves) == [(arm, rep) for arm in range(arms) for rep in range(1, repeats + 1)]
    assert waves == order_waves(arms, repeats, kind, seed, blocks)


@given(grouped(), st.integers(1, 9), st.sampled_from(ORDERS), SEEDS)
def test_arms_of_a_block_stay_together_within_a_repetition(
    blocks: list[list[int]], repeats: int, kind: str, seed: int
) -> None:
    of = {arm: index for index, block in enumerate(blocks) for arm in block}
    waves = order_waves(len(of), repeats, kind, seed, blocks)
    if kind == "blocked":
        runs = [key for key, _ in itertools.groupby(waves, key=lambda wave: of[wave[0]])]
        assert len(runs) == len(blocks)
        return
    for rep in range(1, repeats + 1):
        inside = [of[arm] for arm, repetition in waves if repetition == rep]
        assert len([key for key, _ in itertools.groupby(inside)]) == len(blocks)


@given(grouped(), st.sampled_from([kind for kind in ORDERS if kind != "blocked"]), SEEDS)
def test_the_order_of_blocks_is_balanced_over_the_repetitions(blocks: list[list[int]], kind: str, seed: int) -> None:
    of = {arm: index for index, block in enumerate(blocks) for arm in block}
    repeats = len(williams(len(blocks)))
    waves = order_waves(len(of), repeats, kind, seed, blocks)
    rows = tuple(
        tuple(key for key, _ in itertools.groupby(of[arm] for arm, repetition in waves if repetition == rep))
        for rep in range(1, repeats + 1)
    )
    assert len(set(neighbours(rows).values())) <= 1


@given(st.integers(2, 7), SEEDS)
def test_a_balanced_order_is_a_whole_design_when_repeats_allow(arms: int, seed: int) -> None:
    repeats = len(williams(arms))
    waves = order_waves(arms, repeats, "balanced", seed)
    rows = tuple(tuple(arm for arm, repetition in waves if repetition == rep) for rep in range(1, repeats + 1))
    assert len(set(neighbours(rows).values())) == 1
    assert caveat(repeats, "balanced", [list(range(arms))]) == ""
    assert str(repeats) in caveat(repeats + 1, "balanced", [list(range(arms))])


def test_seeds_give_different_orders() -> None:
    assert len({order_waves(5, 3, "random", seed) for seed in range(20)}) > 15
    assert len({order_waves(5, 3, "balanced", seed) for seed in range(20)}) > 15


def test_blocked_keeps_an_arm_together_and_interleaved_turns_round() -> None:
    assert order_waves(2, 2, "blocked", 0) == ((0, 1), (0, 2), (1, 1), (1, 2))
    assert order_waves(2, 2, "interleaved", 0) == ((0, 1), (1, 1), (1, 2), (0, 2))


@pytest.mark.parametrize(("kind", "arms", "said"), [("blocked", 2, "drift"), ("blocked", 1, ""), ("random", 3, "")])
def test_what_an_order_leaves_open_is_said(kind: str, arms: int, said: str) -> None:
    assert said in caveat(1, kind, [list(range(arms))])
    assert bool(caveat(1, kind, [list(range(arms))])) == bool(said)
