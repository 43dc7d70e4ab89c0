"""One definition of loss: a lucky reading does not make it, and every place that shows it shows the same."""

from __future__ import annotations

import pytest

from boardbench.analysis.estimates import Estimate
from boardbench.analysis.loss import best_level, loss_percent
from boardbench.analysis.metrics import value_of
from boardbench.analysis.steady import steady_state
from boardbench.analysis.thermal import RateInterval, throughput


def test_one_lucky_reading_is_the_peak_and_no_loss() -> None:
    rates = [100.0, 100.0, 100.0, 130.0, 100.0, 100.0, 100.0, 100.0, 100.0]
    found = throughput([RateInterval(at, at + 1, rate) for at, rate in enumerate(rates)])
    assert found is not None
    assert found.peak_per_s == 130.0
    assert found.degradation_percent == 0.0


@pytest.mark.parametrize(
    ("rates", "best"),
    [
        ([7.0], 7.0),
        ([7.0, 9.0], 9.0),
        ([7.0, 9.0, 8.0], 8.0),
        ([7.0, 9.0, 8.0, 9.0], 9.0),
        ([5.0, 6.0, 1.0, 1.0, 1.0], 5.0),
        ([1.0, 1.0, 1.0, 6.0, 5.0], 5.0),
    ],
)
def test_the_best_level_is_the_best_median_of_three_neighbours(rates: list[float], best: float) -> None:
    assert best_level(rates) == best


def test_fewer_than_three_rates_have_no_median_of_three_and_the_peak_stands_in() -> None:
    found = throughput([RateInterval(0, 1, 100.0), RateInterval(1, 2, 90.0)])
    assert found is not None
    assert found.degradation_percent == pytest.approx(10.0)


def test_what_never_ran_has_no_loss() -> None:
    assert loss_percent(0.0, 0.0) is None


def test_a_rate_above_its_best_level_has_a_loss_below_zero() -> None:
    assert loss_percent(101.0, 100.0) == pytest.approx(-1.0)


def test_the_metric_and_the_search_for_a_plateau_lose_from_the_same_level() -> None:
    rates = [100.0, 99.0, 120.0, 101.0, 98.0, 90.0, 82.0, 80.0, 80.0, 80.0, 80.0, 80.0, 80.0, 80.0, 80.0, 80.0]
    settled = steady_state([float(at) for at in range(len(rates))], rates)
    rate = throughput([RateInterval(at, at + 1, value) for at, value in enumerate(rates)])
    metric, why = value_of("loss", "percent", rate, None)
    assert isinstance(settled.peak_level, Estimate)
    assert settled.peak_level.value == best_level(rates) == 101.0
    assert isinstance(settled.degradation, Estimate)
    assert settled.degradation.value == pytest.approx(loss_percent(settled.tail.value, 101.0))  # type: ignore[union-attr]
    assert (metric, why) == (pytest.approx(100 * (1 - 80 / 101)), "")
