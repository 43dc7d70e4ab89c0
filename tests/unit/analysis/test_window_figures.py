"""Readings inside the load window: what lies outside or is missing never becomes a number."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boardbench.analysis.clocks import (
    CURRENT,
    Residency,
    Throttling,
    busy_share,
    regulation_band,
    residency,
    rig_plateau,
    throttling,
)
from boardbench.analysis.cooldown import CoolDown, cool_down
from boardbench.analysis.estimates import Estimate, Unknown
from boardbench.analysis.power import energy, mean_power
from boardbench.analysis.series import Series, Summary, WindowFigures, over_window, summarise


def each_second(*values: float | None, start: float = 0.0) -> Series:
    return Series.of([start + i for i in range(len(values))], values)


def test_only_readings_inside_the_window_count() -> None:
    found = over_window(each_second(99.0, 50.0, 60.0, 86.8, 98.0), 1.0, 3.0)
    assert isinstance(found, WindowFigures)
    assert (found.summary.maximum, found.summary.n, found.first) == (86.8, 3, 50.0)
    assert found.covered_share == 1.0
    assert found.time_weighted_mean == pytest.approx((55.0 + 73.4) / 2)


def test_missing_readings_are_counted_and_never_filled() -> None:
    found = over_window(each_second(10.0, None, 20.0, 30.0), 0.0, 3.0)
    assert isinstance(found, WindowFigures)
    assert (found.summary.missing, found.summary.mean) == (1, 20.0)
    assert found.covered_share == pytest.approx(1 / 3)
    assert isinstance(over_window(each_second(None, None), 0.0, 1.0), Unknown)
    assert isinstance(over_window(each_second(1.0, 2.0), 5.0, 6.0), Unknown)
    assert isinstance(over_window(each_second(1.0, 2.0), 1.0, 1.0), Unknown)


def test_failed_columns_are_recognised() -> None:
    assert each_second(None, None).blank
    assert each_second(0.0, None, 0.0).all_zero
    assert not each_second(0.0, 1.0).all_zero
    assert not each_second(None).all_zero
    assert not Series((), ()).blank


def test_a_series_refuses_what_is_no_reading() -> None:
    with pytest.raises(ValueError, match="monotonic"):
        Series.of([1.0, 1.0], [1.0, 1.0])
    with pytest.raises(ValueError, match="a missing one is None"):
        Series.of([1.0], [float("nan")])
    with pytest.raises(ValueError, match="no series"):
        Series.of([1.0], [])
    with pytest.raises(ValueError, match="ends before it starts"):
        each_second(1.0).inside(2.0, 1.0)


def test_a_summary_names_its_parts() -> None:
    found = summarise([355.7, 385.1, None, 387.2])
    assert isinstance(found, Summary)
    assert (found.n, found.missing, found.median) == (3, 1, 385.1)
    assert summarise([]) == Unknown("there is no reading")
    assert summarise([None, None]) == Unknown("none of 2 readings is there")
    assert summarise([5.0]).stdev is None


def test_energy_uses_the_real_time_between_readings() -> None:
    late = Series.of([0.0, 1.0, 2.2, 4.0, 5.0], [10.0, 10.0, 10.0, 10.0, 10.0])
    assert energy(late, 0.0, 5.0).value == pytest.approx(50.0)
    ramp = Series.of([0.0, 1.0, 3.0], [0.0, 10.0, 30.0])
    assert energy(ramp, 0.0, 3.0).value == pytest.approx(45.0)
    assert energy(ramp, 0.5, 2.0).value == pytest.approx((5 + 20) / 2 * 1.5)
    assert mean_power(ramp, 0.0, 3.0).value == pytest.approx(15.0)
    assert (energy(ramp, 0.0, 3.0).unit, mean_power(ramp, 0.0, 3.0).unit) == ("J", "W")


def test_a_gap_is_not_integrated_over() -> None:
    values: list[float | None] = [10.0] * 100
    hole = [None if i == 50 else value for i, value in enumerate(values)]
    found = energy(each_second(*hole), 0.0, 99.0)
    assert isinstance(found, Estimate)
    assert found.value == pytest.approx(990.0)
    assert "filled with the mean power" in found.note
    wide = [None if 40 <= i < 60 else value for i, value in enumerate(values)]
    assert energy(each_second(*wide), 0.0, 99.0) == Unknown("power was read for 79 % of the window, 95 % are needed")
    jump = Series.of([0.0, 1.0, 2.0, 30.0, 31.0, 32.0], [5.0] * 6)
    assert isinstance(energy(jump, 0.0, 32.0), Unknown)
    assert isinstance(energy(Series((), ()), 0.0, 1.0), Unknown)


@settings(deadline=None)
@given(st.lists(st.floats(0.1, 3.0), min_size=3, max_size=40), st.floats(0.5, 30.0))
def test_constant_power_gives_power_times_time_however_the_log_ticks(steps: list[float], watts: float) -> None:
    at = np.cumsum([0.0, *steps])
    found = energy(Series.of(at.tolist(), [watts] * len(at)), 0.0, float(at[-1]))
    if isinstance(found, Estimate):
        assert found.value == pytest.approx(watts * at[-1])


def test_residency_is_by_time_and_by_samples() -> None:
    clock = Series.of([0.0, 1.0, 2.0, 4.0, 5.0], [306.0, 306.0, 1020.0, 1020.0, None])
    found = residency(clock, 0.0, 5.0)
    assert isinstance(found, Residency)
    assert found.by_time == pytest.approx({306.0: 0.4, 1020.0: 0.6})
    assert found.sample_share(306.0) == 0.5
    assert (found.samples, found.missing) == (4, 1)
    assert found.sample_share(999.0) == 0.0
    assert isinstance(residency(each_second(None, None), 0.0, 1.0), Unknown)


def test_a_clock_is_not_taken_to_stand_still_through_a_gap_of_the_log() -> None:
    clock = Series.of([0.0, 1.0, 2.0, 30.0, 31.0], [816.0, 816.0, 816.0, 2208.0, 2208.0])
    found = residency(clock, 0.0, 40.0)
    assert isinstance(found, Residency)
    assert found.covered_s == pytest.approx(5.0)
    assert found.by_time == pytest.approx({816.0: 0.6, 2208.0: 0.4})
    assert throttling(clock, 0.0, 40.0).below_s == pytest.approx(3.0)


def test_throttling_has_onset_depth_time_below_and_first_times() -> None:
    clock = each_second(*[2208.0] * 10, *[1800.0] * 5, *[816.0] * 5, 2208.0)
    found = throttling(clock, 5.0, 20.0)
    assert isinstance(found, Throttling)
    assert found.throttled
    assert (found.onset_s, found.below_s, found.episodes) == (5.0, 10.0, 1)
    assert found.depth == pytest.approx(1 - 816 / 2208)
    assert found.first_at == {1800.0: 5.0, 816.0: 10.0}
    assert found.below_share == pytest.approx(10 / 15)
    assert found.capacity == pytest.approx((5 * 2208 + 5 * 1800 + 5 * 816) / 15 / 2208)


def test_a_clock_that_was_down_from_the_start_needs_the_boards_highest_clock() -> None:
    held = each_second(816.0, 816.0, 816.0)
    assert not throttling(held, 0.0, 2.0).throttled
    assert throttling(held, 0.0, 2.0, top=2208.0, source=CURRENT).onset_s == 0.0
    assert isinstance(throttling(each_second(None), 0.0, 2.0), Unknown)
    assert throttling(each_second(*[950.0] * 5), 0.0, 4.0).onset_s is None


def test_the_regulation_band_is_of_the_time_after_the_onset() -> None:
    clock = each_second(*[2208.0] * 30, *[1800.0] * 70)
    heat = each_second(*[float(40 + i) for i in range(30)], *[85.0, 86.0] * 35)
    band = regulation_band(heat, throttling(clock, 0.0, 99.0), 0.0, 99.0)
    assert (band.low, band.high, band.n) == (85.0, 86.0, 70)
    never = throttling(each_second(*[2208.0] * 100), 0.0, 99.0)
    assert regulation_band(heat, never, 0.0, 99.0) == Unknown("the clock was never held down")
    late = throttling(each_second(*[2208.0] * 95, *[1800.0] * 5), 0.0, 99.0)
    assert isinstance(regulation_band(heat, late, 0.0, 99.0), Unknown)


def test_the_rigs_plateau_ends_before_the_fall() -> None:
    npu = each_second(*[40.0 + 0.12 * i for i in range(380)], *[87.0] * 100, 71.0, 60.0)
    assert rig_plateau(npu) == (300.0, 479.0)
    assert isinstance(rig_plateau(each_second(1.0, 2.0)), Unknown)
    assert isinstance(rig_plateau(each_second(None)), Unknown)


def test_mean_utilisation_is_weighted_by_time() -> None:
    load = Series.of([0.0, 1.0, 2.0, 4.0], [100.0, 0.0, 50.0, 50.0])
    assert busy_share(load, 0.0, 4.0).value == pytest.approx((100 + 0 + 100) / 4)
    assert isinstance(busy_share(each_second(None, None), 0.0, 1.0), Unknown)


def lattice(values: np.ndarray) -> np.ndarray:
    """A sensor with steps of 0.923 degC, as the field's boards have."""
    return np.round(values / 0.923) * 0.923


def test_one_time_constant_is_found_and_its_interval_holds_it() -> None:
    rng = np.random.default_rng(1)
    at = np.arange(0.0, 120.0)
    held = 0
    for _ in range(100):
        found = cool_down(
            Series.of(at.tolist(), (38 + 45 * np.exp(-at / 25) + rng.normal(0, 0.5, 120)).tolist()), 0, 120
        )
        assert isinstance(found, CoolDown)
        if isinstance(found.fast, Unknown):
            held += found.slow.interval.holds(25.0)
            assert found.settles_at == pytest.approx(38.0, abs=1.0)
    assert held >= 84


def test_two_time_constants_are_told_apart_with_the_time_until_cool() -> None:
    rng = np.random.default_rng(2)
    at = np.arange(0.0, 180.0)
    true = 38 + 20 * np.exp(-at / 3) + 18 * np.exp(-at / 30)
    held = 0
    for _ in range(40):
        found = cool_down(Series.of(at.tolist(), lattice(true + rng.normal(0, 0.4, 180)).tolist()), 0.0, 180.0)
        assert isinstance(found, CoolDown)
        assert isinstance(found.fast, Estimate)
        held += found.fast.interval.holds(3.0) and found.slow.interval.holds(30.0)
        assert found.at(0.0) == pytest.approx(76.0, abs=1.5)
        assert found.time_to(45.0).value == pytest.approx(28.4, abs=3.0)
    assert held >= 33


def test_what_a_cool_down_cannot_tell() -> None:
    at = np.arange(0.0, 60.0)
    assert isinstance(cool_down(each_second(*[50.0] * 60), 0.0, 60.0), Unknown)
    assert isinstance(cool_down(each_second(80.0, 70.0, 65.0), 0.0, 60.0), Unknown)
    rising = cool_down(each_second(*(40 + 0.5 * at).tolist()), 0.0, 60.0)
    assert rising == Unknown("the temperature does not fall after the load")
    short = cool_down(each_second(*(80 - 0.1 * at[:20]).tolist()), 0.0, 60.0)
    assert isinstance(short, Unknown)
    found = cool_down(each_second(*(38 + 45 * np.exp(-at / 8)).tolist()), 0.0, 60.0)
    assert isinstance(found, CoolDown)
    assert isinstance(found.time_to(30.0), Unknown)
    assert found.time_to(90.0).value == 0.0
    assert cool_down(each_second(1.0), 5.0, 5.0) == Unknown("there is no time after the load")
