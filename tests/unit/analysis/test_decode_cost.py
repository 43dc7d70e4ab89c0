"""Time of a token = fixed + per MiB: the split finds the truth, and its intervals hold it as often as they say."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from boardbench.analysis.decode import (
    DecodePoint,
    busy_per_token,
    coefficient_of_variation,
    decode_bound,
    decompose,
    energy_per_token,
    energy_per_token_at,
)
from boardbench.analysis.estimates import Estimate, Interval, Unknown, known
from boardbench.analysis.line import Line, robust_line

FIXED_MS, PER_MIB_MS = 193.0, 0.64
TRIALS = 1000
FEWEST = int(stats.binom.ppf(0.001, TRIALS, 0.95))
MOST = int(stats.binom.ppf(0.9995, TRIALS, 0.965))
"""What 1,000 trials of a 95 % interval give but once in 1,000; upwards a slightly cautious one is allowed."""


def requests(rng: np.random.Generator, scatter: str) -> tuple[np.ndarray, np.ndarray]:
    """12 prompts with all experts and 12 with half of them, as in the field: about 270 and 100 MiB a token.

    The scatter of the token time is about 6 %, so that decode varies by about 10 % over requests of one setting.
    """
    mib = np.concatenate([rng.normal(270, 25, 12), rng.normal(100, 12, 12)])
    true = FIXED_MS + PER_MIB_MS * mib
    noise = {
        "even": lambda: rng.normal(0, 18, 24),
        "proportional": lambda: true * rng.normal(0, 0.06, 24),
        "heavy tails": lambda: 12 * rng.standard_t(3, 24),
        "outliers": lambda: rng.normal(0, 18, 24) + (rng.random(24) < 0.06) * rng.normal(0, 150, 24),
    }[scatter]()
    return mib, true + noise


def points(mib: np.ndarray, ms: np.ndarray) -> list[DecodePoint]:
    return [DecodePoint(float(x), float(y)) for x, y in zip(mib, ms, strict=True)]


@pytest.mark.parametrize("scatter", ["even", "proportional", "heavy tails", "outliers"])
def test_intervals_hold_the_truth_in_95_percent_of_1000_trials(scatter: str) -> None:
    rng = np.random.default_rng(20_261_130)
    held = {"fixed": 0, "per MiB": 0}
    values = []
    for _ in range(TRIALS):
        found = decompose(points(*requests(rng, scatter)))
        assert isinstance(found.fixed, Estimate)
        assert isinstance(found.per_mib, Estimate)
        held["fixed"] += found.fixed.interval.holds(FIXED_MS)
        held["per MiB"] += found.per_mib.interval.holds(PER_MIB_MS)
        values.append((found.fixed.value, found.per_mib.value))
    assert all(FEWEST <= count <= MOST for count in held.values()), held
    middle = np.mean(values, axis=0)
    assert middle[0] == pytest.approx(FIXED_MS, rel=0.01)
    assert middle[1] == pytest.approx(PER_MIB_MS, rel=0.02)


def test_points_on_a_line_give_it_back_with_the_bound_on_decode() -> None:
    found = decompose([DecodePoint(x, FIXED_MS + PER_MIB_MS * x) for x in (90, 110, 130, 250, 270, 290)])
    assert isinstance(found.fixed, Estimate)
    assert found.fixed.value == pytest.approx(193.0)
    assert found.per_mib.value == pytest.approx(0.64)
    assert found.bound.value == pytest.approx(5.18, abs=0.01)
    assert (found.bound.unit, found.per_mib.unit) == ("token/s", "ms/MiB")


def test_a_gross_outlier_does_not_bend_the_line_and_is_named() -> None:
    rng = np.random.default_rng(3)
    mib, ms = requests(rng, "even")
    clean = decompose(points(mib, ms))
    ms[5] += 900
    bent = decompose(points(mib, ms))
    assert 5 in bent.outliers
    assert bent.fixed.value == pytest.approx(clean.fixed.value, abs=12)


def test_a_point_with_a_missing_half_is_left_out_and_counted() -> None:
    rng = np.random.default_rng(4)
    whole = points(*requests(rng, "even"))
    found = decompose([DecodePoint(None, 300.0), *whole, DecodePoint(200.0, None)])
    assert (found.points, found.missing) == (24, 2)
    assert found.fixed == decompose(whole).fixed


def test_too_few_points_or_one_amount_of_reading_give_no_number() -> None:
    few = decompose([DecodePoint(x, 200.0 + x) for x in range(5)])
    assert few.fixed == Unknown("a line with intervals needs 6 points, there are 5")
    assert few.bound == few.fixed
    same = decompose([DecodePoint(100.0, 250.0 + i) for i in range(12)])
    assert isinstance(same.per_mib, Unknown)
    assert "cannot be told apart" in same.per_mib.why


def test_a_majority_on_the_line_does_not_make_the_rest_invisible() -> None:
    x = [float(i) for i in range(20)]
    y = [2 * v + 1 for v in x]
    y[3] += 40
    line = robust_line(x, y)
    assert isinstance(line, Line)
    assert line.slope_interval.high > line.slope_interval.low
    assert line.slope_interval.holds(2.0)


def test_the_band_is_narrowest_in_the_middle_of_the_points() -> None:
    line = robust_line(*[v.tolist() for v in requests(np.random.default_rng(5), "even")])
    assert isinstance(line, Line)
    widths = [line.band(x)[1] - line.band(x)[0] for x in (0.0, 185.0, 400.0)]
    assert widths[1] < min(widths[0], widths[2])


def test_a_fixed_part_that_may_be_nothing_bounds_nothing_from_above() -> None:
    loose = decode_bound(Estimate(20.0, "ms", 24, "", Interval(-5.0, 45.0)))
    assert isinstance(loose, Estimate)
    assert loose.interval.high == float("inf")
    assert json.dumps(loose.as_json(), allow_nan=False)
    assert isinstance(decode_bound(Estimate(-3.0, "ms", 24, "")), Unknown)


def test_published_busy_time_and_energy_come_out() -> None:
    assert busy_per_token(36.0, 385.0).value == pytest.approx(139, abs=0.5)
    assert busy_per_token(19.8, 296.0).value == pytest.approx(59, abs=0.5)
    assert energy_per_token_at(8.05, 2.73).value == pytest.approx(2.95, abs=0.005)
    assert energy_per_token_at(9.63, 3.37).value == pytest.approx(2.86, abs=0.005)


def test_missing_or_impossible_readings_have_no_cost() -> None:
    assert isinstance(busy_per_token(None, 300.0), Unknown)
    assert isinstance(busy_per_token(130.0, 300.0), Unknown)
    assert isinstance(energy_per_token_at(8.0, 0.0), Unknown)
    assert isinstance(energy_per_token(Unknown("no rail"), 10), Unknown)
    assert isinstance(energy_per_token(Estimate(10.0, "J", 5, ""), 0), Unknown)
    assert energy_per_token(Estimate(10.0, "J", 5, ""), 4).value == 2.5


def test_the_interval_of_a_coefficient_of_variation_holds_the_truth() -> None:
    rng = np.random.default_rng(6)
    held = 0
    for _ in range(TRIALS):
        found = coefficient_of_variation(rng.normal(100, 10, 12).tolist())
        assert isinstance(found, Estimate)
        held += found.interval.holds(10.0)
    assert FEWEST <= held <= MOST


def test_a_coefficient_of_variation_needs_three_values_and_a_mean_above_0() -> None:
    assert isinstance(coefficient_of_variation([1.0, None, 2.0]), Unknown)
    assert isinstance(coefficient_of_variation([-1.0, 0.0, 1.0]), Unknown)
    assert coefficient_of_variation([1.0, 2.0, 9.0]).interval is None


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(0, 1e4), st.floats(0.1, 1e5)), min_size=0, max_size=30))
def test_any_points_give_finite_numbers_or_a_reason(raw: list[tuple[float, float]]) -> None:
    found = decompose([DecodePoint(x, y) for x, y in raw])
    for figure in (found.fixed, found.per_mib, found.bound):
        assert known(figure) or figure.why
        assert json.dumps(figure.as_json(), allow_nan=False)


def test_a_reading_that_is_not_finite_is_refused() -> None:
    with pytest.raises(ValueError, match="a missing one is None"):
        decompose([DecodePoint(float("nan"), 1.0)])
