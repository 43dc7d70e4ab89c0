"""Figures of a sustained run: cut by the load's own window, missing is not zero."""

from __future__ import annotations

import pytest

from boardbench.analysis.thermal import RateInterval, ThermalSample, heat, load_window, spread, throughput


def intervals(*rates: float) -> list[RateInterval]:
    return [RateInterval(10.0 + i, 11.0 + i, rate) for i, rate in enumerate(rates)]


def sample(
    at: float, soc: float | None = 60.0, cur: float | None = 2_208_000, cap: float | None = 2_208_000
) -> ThermalSample:
    return ThermalSample(at, soc, cur, cap, 950e6)


def test_steady_is_the_mean_of_the_last_third_and_the_loss_is_from_the_best_median_of_three() -> None:
    figures = throughput(intervals(95, 100, 98, 90, 81, 79))
    assert figures is not None
    assert (figures.first_per_s, figures.peak_per_s, figures.steady_per_s) == (95, 100, 80)
    assert figures.degradation_percent == pytest.approx(100 * (1 - 80 / 98))
    assert figures.steady_stdev_per_s == pytest.approx(2**0.5)


def test_without_a_rate_above_zero_there_is_no_loss_rather_than_none_lost() -> None:
    figures = throughput(intervals(0, 0, 0, 0))
    assert figures is not None
    assert figures.degradation_percent is None


def test_no_interval_is_no_figure_rather_than_zero() -> None:
    assert throughput([]) is None
    assert load_window([]) is None


def test_a_peak_before_or_after_the_load_does_not_count() -> None:
    samples = [sample(9.0, soc=99.0), sample(10.5, soc=70.0), sample(11.5, soc=86.8), sample(13.5, soc=95.0)]
    figures = heat(samples, (10.0, 12.0))
    assert figures.soc_max_celsius == 86.8
    assert figures.samples == 2


def test_throttling_starts_where_the_allowed_clock_falls_and_is_told_in_board_seconds() -> None:
    samples = [sample(10.0), sample(11.0), sample(12.0, cur=1_800_000, cap=1_800_000), sample(13.0)]
    figures = heat(samples, (10.0, 14.0), time_scale=60.0)
    assert figures.throttled is True
    assert figures.throttle_onset_s == pytest.approx(120.0)
    assert figures.cpu_min_mhz == 1800


def test_an_idle_dip_of_the_current_clock_is_not_throttling() -> None:
    figures = heat([sample(10.0), sample(11.0, cur=408_000)], (10.0, 12.0))
    assert figures.throttled is False
    assert figures.throttle_onset_s is None


def test_without_the_allowed_clock_the_current_one_decides() -> None:
    samples = [sample(9.0, cap=None), sample(10.0, cap=None), sample(11.0, cur=1_416_000, cap=None)]
    assert heat(samples, (10.0, 12.0)).throttled is True


def test_missing_readings_are_left_out_and_named() -> None:
    figures = heat([ThermalSample(10.5, None, None, None, None)], (10.0, 11.0))
    assert figures.soc_max_celsius is None
    assert figures.throttled is None
    assert figures.notes == (
        "no SoC temperature inside the load window",
        "no CPU clock inside the load window",
        "no NPU clock inside the load window",
    )


def test_spread_needs_two_values_above_zero() -> None:
    assert spread([300.0, 150.0, 200.0]) == 2.0
    assert spread([300.0]) is None
    assert spread([300.0, 0.0]) is None


def test_the_highest_power_is_taken_inside_the_load_window_only() -> None:
    rows = [
        ThermalSample(at, 50.0, None, None, None, watts)
        for at, watts in ((9, 30.0), (10, 12.5), (11, None), (12, 14.0))
    ]
    assert heat(rows, (10.0, 12.0)).power_max_watts == 14.0
    assert heat(rows, (10.5, 11.5)).power_max_watts is None
