"""Has a rate settled: steps, slopes, and saying that it still falls or that nobody can tell."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy import stats

from boardbench.analysis.changepoint import change_points
from boardbench.analysis.estimates import Estimate, Unknown
from boardbench.analysis.rig_definition import RigFigures, rig_figures
from boardbench.analysis.steady import (
    NOT_SHOWN,
    STEADY,
    STILL_FALLING,
    STILL_RISING,
    SteadyState,
    steady_state,
)
from boardbench.analysis.trend import FALLING, NO_TREND, RISING, Trend, noise_lag1, trend


def correlated(rng: np.random.Generator, n: int, lag1: float, deviation: float) -> np.ndarray:
    noise = rng.normal(size=n)
    for i in range(1, n):
        noise[i] = lag1 * noise[i - 1] + (1 - lag1**2) ** 0.5 * noise[i]
    return deviation * noise


def settled(rates: np.ndarray, **options: float) -> SteadyState:
    return steady_state(np.arange(len(rates)) * 60.0, rates.tolist(), "inf/s", **options)


SHAPES = {
    "level": lambda x: 390.0 + 0 * x,
    "even fall": lambda x: 390.0 - 45 * x,
    "slow approach": lambda x: 330.0 + 60 * np.exp(-x / 0.5),
    "quick approach": lambda x: 345.0 + 45 * np.exp(-x / 0.1),
    "step": lambda x: np.where(x < 1 / 3, 390.0, 345.0),
    "even rise": lambda x: 345.0 + 45 * x,
}


def shaped(shape: str, n: int, noise: np.ndarray | float = 0.0) -> np.ndarray:
    return SHAPES[shape](np.arange(n) / (n - 1)) + noise


def test_the_rigs_own_definition_is_the_mean_of_the_last_third_against_the_best_run() -> None:
    found = rig_figures([100.0, 101.0, 99.0, 95.0, 93.0, 92.0, 91.0, 90.0, 89.0])
    assert isinstance(found, RigFigures)
    assert (found.peak, found.steady, found.runs, found.steady_runs) == (101.0, 90.0, 9, 3)
    assert found.text == "peak 101.0, steady 90.0 +- 1.0, -10.9 %"
    assert found.word == "marked"
    assert rig_figures([100.0, 98.0, 98.0]).word == "none"
    assert rig_figures([None, None]) == Unknown("there is no rate")
    assert rig_figures([0.0, 0.0]).loss_percent is None


@pytest.mark.parametrize(("shape", "lag1"), [("even fall", 0.0), ("even fall", 0.3), ("slow approach", 0.0)])
def test_a_run_that_still_falls_is_said_to_fall_and_has_no_steady_rate(shape: str, lag1: float) -> None:
    rng = np.random.default_rng(1)
    verdicts = []
    for _ in range(60):
        found = settled(shaped(shape, 60, correlated(rng, 60, lag1, 1.8)))
        verdicts.append(found.verdict)
        assert found.verdict != STEADY
        assert isinstance(found.steady, Unknown)
        assert isinstance(found.tail, Estimate)
        if found.verdict == STILL_FALLING:
            assert found.at_least
            assert "percent" in found.why
    assert verdicts.count(STILL_FALLING) >= 54


def test_thirty_runs_of_a_fanless_board_still_fall() -> None:
    # Made by hand in the form of a field campaign: 31 minutes, one figure a minute, a fall that slows down.
    rng = np.random.default_rng(2)
    rates = 338 + 52 * np.exp(-np.arange(30) / 13) + rng.normal(0, 1.5, 30)
    found = settled(rates)
    assert found.verdict == STILL_FALLING
    assert isinstance(rig_figures(rates.tolist()), RigFigures)
    assert 8 < found.degradation.value < 13


def test_a_level_run_is_steady_at_its_mean() -> None:
    rng = np.random.default_rng(3)
    held = told = 0
    for _ in range(200):
        found = settled(shaped("level", 60, rng.normal(0, 1.5, 60)))
        assert found.verdict not in (STILL_FALLING, STILL_RISING)
        if found.verdict == STEADY:
            told += 1
            held += found.steady.interval.holds(390.0)
    assert told >= 190
    assert held >= stats.binom.ppf(0.001, told, 0.94)


def test_what_is_settled_after_a_step_or_a_quick_approach_is_steady_there() -> None:
    rng = np.random.default_rng(4)
    for shape in ("step", "quick approach"):
        told = 0
        for _ in range(60):
            found = settled(shaped(shape, 180, rng.normal(0, 1.5, 180)))
            if found.verdict != STEADY:
                continue
            told += 1
            assert found.steady.value == pytest.approx(345.0, rel=0.01)
            # The tail may hold the end of the approach, as long as it changes by no more than 1 %.
            assert found.degradation.value == pytest.approx(11.5, abs=1.6)
        assert told >= 54, shape


def test_a_rising_run_is_not_called_steady() -> None:
    rng = np.random.default_rng(5)
    assert settled(shaped("even rise", 60, rng.normal(0, 1.5, 60))).verdict == STILL_RISING


def test_a_step_near_the_end_leaves_nothing_to_settle() -> None:
    rates = np.where(np.arange(60) < 52, 390.0, 345.0) + np.random.default_rng(6).normal(0, 1, 60)
    found = settled(rates)
    assert found.verdict == NOT_SHOWN
    assert "stepped 8 readings before the end" in found.why
    assert len(found.steps) == 1
    assert found.steps_at == (52 * 60.0,)


def test_noise_that_hides_one_percent_is_said_and_no_number_is_given() -> None:
    found = settled(shaped("level", 30, np.random.default_rng(7).normal(0, 12, 30)))
    assert found.verdict == NOT_SHOWN
    assert "neither flat within 1 %" in found.why
    assert isinstance(found.steady, Unknown)


def test_too_few_readings_have_a_first_and_a_peak_and_nothing_else() -> None:
    found = steady_state([1.0, 2.0, 3.0], [10.0, None, 12.0])
    assert (found.first.value, found.peak.value, found.peak_at, found.missing) == (10.0, 12.0, 3.0, 1)
    assert found.steady == Unknown("a steady state needs 8 readings, there are 2")
    assert found.degradation == found.steady
    assert steady_state([], []).first == Unknown("a steady state needs 8 readings, there are 0")


def test_a_rate_of_0_is_no_steady_state() -> None:
    assert "errors of the load" in settled(np.array([5.0] * 10 + [0.0] * 10)).why


@pytest.mark.parametrize("shape", ["level", "even fall", "step"])
def test_the_interval_of_the_degradation_holds_the_truth(shape: str) -> None:
    rng = np.random.default_rng(8)
    true, held, trials = shaped(shape, 60), 0, 150
    peak = np.median(np.lib.stride_tricks.sliding_window_view(true, 3), axis=1).max()
    for _ in range(trials):
        found = settled(true + rng.normal(0, 3.0, 60))
        start = round(found.tail_from / 60.0)
        held += found.degradation.interval.holds(100 * (1 - true[start:].mean() / peak))
    assert held >= stats.binom.ppf(0.001, trials, 0.95)


def test_a_long_record_is_told_in_blocks_and_quickly() -> None:
    rng = np.random.default_rng(9)
    rates = shaped("quick approach", 18_000, rng.normal(0, 20, 18_000))
    found = settled(rates)
    assert found.verdict == STEADY
    assert found.n == 18_000
    assert found.peak.value == rates.max()
    assert json.dumps(found.steady.as_json(), allow_nan=False)


def test_time_that_goes_back_is_refused() -> None:
    with pytest.raises(ValueError, match="monotonic"):
        steady_state([2.0, 1.0], [1.0, 1.0])


def test_a_trend_that_is_not_there_is_shown_in_at_most_5_percent() -> None:
    rng = np.random.default_rng(10)
    for n in (12, 30, 60):
        shown = sum(trend(range(n), rng.normal(size=n).tolist()).word != NO_TREND for _ in range(400))
        assert shown <= stats.binom.ppf(0.999, 400, 0.05), n


def test_neighbours_that_resemble_each_other_count_as_fewer() -> None:
    rng = np.random.default_rng(11)
    false = {True: 0, False: 0}
    for _ in range(300):
        series = correlated(rng, 60, 0.5, 1.0)
        for corrected in false:
            found = trend(range(60), series.tolist(), lag1=None if corrected else 0.0)
            false[corrected] += found.word != NO_TREND
    assert false[False] > 45
    assert false[True] <= 30


def test_a_slope_is_found_with_its_sign_and_its_length() -> None:
    rng = np.random.default_rng(12)
    at = np.arange(40) * 2.0
    found = trend(at.tolist(), (5 - 0.3 * at + rng.normal(0, 1, 40)).tolist())
    assert isinstance(found, Trend)
    assert found.word == FALLING
    assert found.slope_interval.holds(-0.3)
    assert found.change == pytest.approx(found.slope * 78.0)
    assert trend(at.tolist(), at.tolist()).word == RISING
    assert trend([1.0, 2.0], [1.0, 2.0]) == Unknown("a trend needs 6 readings, there are 2")


def test_curvature_does_not_pass_for_correlation() -> None:
    rng = np.random.default_rng(13)
    curved = 100 + 20 * np.exp(-np.arange(60) / 15)
    found = [noise_lag1(curved + rng.normal(0, 1, 60)) for _ in range(200)]
    assert np.mean(found) < 0.2


def test_steps_are_found_where_they_are_and_not_in_noise_or_slopes() -> None:
    rng = np.random.default_rng(14)
    false = sum(bool(change_points(rng.normal(100, 1, 60).tolist())) for _ in range(300))
    assert false <= stats.binom.ppf(0.999, 300, 0.02)
    (step,) = change_points([*rng.normal(100, 1, 40), *rng.normal(95, 1, 30)])
    assert abs(step.index - 40) <= 1
    assert step.relative == pytest.approx(-0.05, abs=0.01)
    assert change_points((100 - 0.1 * np.arange(60) + rng.normal(0, 0.5, 60)).tolist()) == ()
    assert change_points([5.0] * 30) == ()
    (exact,) = change_points([5.0] * 10 + [4.0] * 10)
    assert (exact.index, exact.score) == (10, float("inf"))
    assert change_points([1.0, 9.0]) == ()


def test_neighbours_that_resemble_each_other_are_no_steps() -> None:
    rng = np.random.default_rng(15)
    false = sum(bool(change_points(correlated(rng, 120, 0.5, 1.0).tolist())) for _ in range(200))
    # Without the long-run variance about a quarter of them have one.
    assert false <= 20
