"""Arms against each other: A/A is not a difference, a real one is, and order or noise do not pass for it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from boardbench.analysis.aa import NoiseFloor, noise_floor, twins
from boardbench.analysis.arms import (
    ALIKE,
    HIGHER,
    LOWER,
    UNDECIDED,
    Comparison,
    compare_many,
    compare_paired,
    compare_unpaired,
)
from boardbench.analysis.estimates import Estimate, Unknown, known
from boardbench.analysis.order_effects import Ordered, drift, first_mover

TRIALS = 1000
AT_MOST = int(stats.binom.ppf(0.999, TRIALS, 0.05))
"""What 1,000 A/A comparisons with 5 % false differences exceed but once in 1,000."""

Pairs = list[tuple[float | None, float | None]]


def boards(rng: np.random.Generator, n: int, kind: str, effect: float = 1.0) -> Pairs:
    """n cells on boards that differ by 10 %, each arm with 1 % of its own noise."""
    own = rng.normal(100, 10, n)
    draw = {
        "normal": lambda: rng.normal(0, 0.01, n),
        "skewed": lambda: 0.01 * (rng.lognormal(0, 0.7, n) - 1.28),
        "heavy tails": lambda: 0.005 * rng.standard_t(3, n),
    }[kind]
    return list(zip((own * (1 + draw()) * effect).tolist(), (own * (1 + draw())).tolist(), strict=True))


def false_differences(found: list[Comparison]) -> int:
    return sum(comparison.verdict in (HIGHER, LOWER) for comparison in found)


@pytest.mark.parametrize(("n", "kind"), [(3, "normal"), (4, "skewed"), (6, "normal"), (10, "heavy tails")])
def test_a_a_comparisons_of_pairs_raise_a_false_difference_in_at_most_5_percent(n: int, kind: str) -> None:
    rng = np.random.default_rng(100 + n)
    # Without any minimum effect: the interval alone has to hold.
    found = [compare_paired(boards(rng, n, kind), "a", "a again", minimum_effect=0.0) for _ in range(TRIALS)]
    assert 0 < false_differences(found) <= AT_MOST


@pytest.mark.parametrize(("n", "kind"), [(3, "normal"), (5, "skewed"), (10, "normal")])
def test_a_a_comparisons_without_pairs_raise_a_false_difference_in_at_most_5_percent(n: int, kind: str) -> None:
    rng = np.random.default_rng(200 + n)
    found = []
    for _ in range(TRIALS):
        one, two = ([a for a, _ in boards(rng, n, kind)] for _ in range(2))
        found.append(compare_unpaired(one, two, "a", "a again", minimum_effect=0.0))
    assert 0 < false_differences(found) <= AT_MOST


def test_several_a_a_comparisons_together_raise_any_false_difference_in_at_most_5_percent() -> None:
    rng = np.random.default_rng(300)
    families = 0
    for _ in range(TRIALS):
        arms = {name: boards(rng, 4, "normal") for name in "abcdef"}
        families += false_differences(list(compare_many(arms, "baseline", minimum_effect=0.0))) > 0
    assert families <= AT_MOST


def test_intervals_hold_the_true_ratio_as_often_as_they_say() -> None:
    rng = np.random.default_rng(400)
    held = 0
    for _ in range(TRIALS):
        ratio = compare_paired(boards(rng, 6, "normal", 1.2), "b", "a").ratio
        assert isinstance(ratio, Estimate)
        held += ratio.interval.holds(1.2)
    assert held >= stats.binom.ppf(0.001, TRIALS, 0.95)


def test_a_real_difference_is_found_with_its_direction() -> None:
    rng = np.random.default_rng(1)
    up = compare_paired(boards(rng, 5, "normal", 1.24), "floor", "governor")
    assert up.verdict == HIGHER
    assert up.text.startswith("floor / governor: ratio 1.2")
    down = compare_unpaired([169.0, 170.5, 171.0, 168.4], [380.0, 386.0, 384.0, 385.0], "least-queue", "round-robin")
    assert down.verdict == LOWER
    assert down.ratio.value == pytest.approx(0.442, abs=0.001)


def test_pairing_by_board_finds_what_the_spread_of_boards_hides() -> None:
    pairs = boards(np.random.default_rng(2), 6, "normal", 1.04)
    assert compare_paired(pairs, "b", "a").verdict == HIGHER
    one, two = zip(*pairs, strict=True)
    assert compare_unpaired(one, two, "b", "a").verdict == UNDECIDED


def test_an_effect_under_the_minimum_or_the_noise_floor_ranks_nothing() -> None:
    pairs: Pairs = [(100.8, 100.0), (100.9, 100.1), (100.7, 99.9), (100.8, 100.0)]
    assert "minimum effect" in compare_paired(pairs, "b", "a", minimum_effect=0.02).why
    assert compare_paired(pairs, "b", "a", minimum_effect=0.02).verdict == UNDECIDED
    noisy = compare_paired(pairs, "b", "a", minimum_effect=0.001, noise_floor=0.03)
    assert noisy.verdict == UNDECIDED
    assert "A/A noise floor" in noisy.why
    assert compare_paired(pairs, "b", "a", minimum_effect=0.001).verdict == HIGHER


def test_no_difference_is_only_claimed_where_the_whole_interval_lies_within_the_minimum_effect() -> None:
    tight: Pairs = [(100.1, 100.0), (99.9, 100.0), (100.0, 100.1), (100.05, 100.0)]
    assert compare_paired(tight, "b", "a", minimum_effect=0.01).verdict == ALIKE
    loose: Pairs = [(104.0, 100.0), (97.0, 100.0), (101.0, 100.0)]
    assert compare_paired(loose, "b", "a", minimum_effect=0.01).verdict == UNDECIDED


def test_missing_halves_are_counted_and_too_few_pairs_give_no_ratio() -> None:
    found = compare_paired([(1.0, 1.1), (None, 1.0), (1.2, None), (1.0, 1.0)], "b", "a")
    assert found.ratio == Unknown("2 pairs, 3 are needed")
    assert (found.pairs, found.missing, found.verdict) == (2, 2, UNDECIDED)
    assert isinstance(compare_paired([(1.0, 0.0)] * 4, "b", "a").ratio, Unknown)
    assert isinstance(compare_unpaired([1.0, 2.0], [1.0, 2.0, 3.0], "b", "a").ratio, Unknown)


def test_the_same_data_give_the_same_interval() -> None:
    pairs = boards(np.random.default_rng(5), 12, "skewed")
    assert compare_paired(pairs, "b", "a") == compare_paired(pairs, "b", "a")


def test_simultaneous_intervals_are_wider_than_single_ones() -> None:
    rng = np.random.default_rng(6)
    arms = {name: boards(rng, 5, "normal") for name in "abc"}
    together = compare_many(arms, "baseline")
    alone = compare_paired(arms["a"], "a", "baseline")
    assert together[0].ratio.interval.low < alone.ratio.interval.low
    assert together[0].ratio.interval.level == pytest.approx(1 - 0.05 / 3)


def test_the_noise_floor_holds_the_next_a_a_comparison_in_95_percent() -> None:
    rng = np.random.default_rng(7)
    for n in (1, 3, 8):
        inside = 0
        for _ in range(TRIALS):
            drawn = np.exp(rng.normal(0, 0.01, (n + 1, 2)))
            floor = noise_floor([tuple(pair) for pair in drawn[:-1].tolist()])
            assert isinstance(floor, NoiseFloor)
            a, b = drawn[-1]
            inside += 1 / (1 + floor.share) <= a / b <= 1 + floor.share
        assert inside >= stats.binom.ppf(0.001, TRIALS, 0.95), n


def test_a_noise_floor_needs_a_pair() -> None:
    assert noise_floor([(1.0, None)]) == Unknown("there is no A/A pair")
    assert isinstance(noise_floor([(1.0, 0.0)]), Unknown)
    found = noise_floor([(100.0, 101.0), (100.0, 99.0)])
    assert isinstance(found, NoiseFloor)
    assert found.worst == pytest.approx(0.01)
    assert "2 A/A pairs" in found.text


def test_arms_that_are_equal_to_the_last_digit_are_twins() -> None:
    assert twins([1.25, 3.5], [1.25, 3.5])
    assert not twins([1.25, 3.5], [1.25, 3.6])
    assert not twins([1.25], [1.25])
    assert not twins([None, None], [None, None])


def rotated(values: np.ndarray, arms: str) -> list[Ordered]:
    """Arms in an order that turns by one place each round."""
    order = [arms[(i + i // len(arms)) % len(arms)] for i in range(len(values))]
    return [Ordered(i, arm, float(value)) for i, (arm, value) in enumerate(zip(order, values, strict=True))]


def test_a_drift_is_found_over_all_arms_and_not_in_a_level_campaign() -> None:
    rng = np.random.default_rng(8)
    places = np.arange(15)
    falling = 380 * (1 - 0.08 * places / 14)
    drifts = [drift(rotated(falling * (1 + rng.normal(0, 0.004, 15)), "abc")) for _ in range(300)]
    assert all(found.material for found in drifts)
    assert sum(found.figure.interval.holds(-8.0) for found in drifts) >= stats.binom.ppf(0.001, 300, 0.95)
    false = sum(drift(rotated(380 * (1 + rng.normal(0, 0.01, 15)), "abc")).shown for _ in range(TRIALS))
    assert false <= AT_MOST


def test_a_drift_cannot_be_told_from_arms_that_were_run_as_blocks() -> None:
    blocks = [Ordered(i, "a" if i < 6 else "b", 100.0 + i) for i in range(12)]
    found = drift(blocks)
    # Inside each block the order still varies, but four fifths of it is the arm.
    assert not found.shown or found.figure.interval is not None
    wide = [Ordered(100 * (i >= 3) + i, "a" if i < 3 else "b", 100.0 + i) for i in range(6)]
    assert "blocks" in drift(wide).why
    assert isinstance(drift(wide).figure, Unknown)
    assert isinstance(drift([Ordered(0, "a", 1.0), Ordered(1, "b", 1.0)]).figure, Unknown)
    assert isinstance(drift([Ordered(i, "a", 0.0) for i in range(9)]).figure, Unknown)


def test_who_ran_first_is_told_in_percent() -> None:
    first = [("b", 105.0, 100.0), ("b", 105.4, 100.2), ("b", 104.9, 100.1)]
    second = [("a", 100.1, 100.0), ("a", 100.2, 100.0), ("a", 99.9, 100.1)]
    found = first_mover([*first, *second], "b")
    assert found.material
    assert found.figure.value == pytest.approx(5.0, abs=0.3)
    assert isinstance(first_mover(first, "b").figure, Unknown)
    rng = np.random.default_rng(9)
    false = 0
    for _ in range(TRIALS):
        pairs = [("ab"[i % 2], *(100 * np.exp(rng.normal(0, 0.01, 2))).tolist()) for i in range(8)]
        false += first_mover(pairs, "a").shown
    assert false <= AT_MOST


@settings(deadline=None)
@given(st.lists(st.tuples(st.none() | st.floats(1e-6, 1e6), st.none() | st.floats(1e-6, 1e6)), max_size=9))
def test_any_pairs_give_an_interval_around_the_ratio_or_a_reason(pairs: Pairs) -> None:
    found = compare_paired(pairs, "b", "a")
    if known(found.ratio):
        inside = found.ratio.interval
        assert inside.low <= found.ratio.value * (1 + 1e-9)
        assert inside.high >= found.ratio.value * (1 - 1e-9)
    else:
        assert found.verdict == UNDECIDED
        assert found.why
