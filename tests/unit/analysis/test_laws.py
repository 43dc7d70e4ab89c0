"""The slice-size law against the published rows, predictions against measurements, load curves and scaling."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boardbench.analysis.decisions import HIT, MISSED, UNDECIDED
from boardbench.analysis.estimates import Estimate, Interval, Unknown, mapped, present
from boardbench.analysis.forecast import against
from boardbench.analysis.load_curve import OperatingPoint, find_operating_point, scaling_efficiency
from boardbench.analysis.operating_point import LoadPoint
from boardbench.analysis.slice_law import Device, ReadBaseline, exact, io_gain, share_for, speed_up

MIB = 1024 * 1024
ASSUMED = Device(exact(100e-6), exact(6e9), queue_depth=1)


def scattered(reads: float) -> ReadBaseline:
    return ReadBaseline("engine", f"{reads:g} scattered reads an expert", reads)


@pytest.mark.parametrize(
    ("reads", "after", "unit_bytes", "gain"),
    [
        (9, 1, 3.19 * MIB, 2.43),
        (6, 1, 12.6 * MIB, 1.23),
        (9, 1, 12.6 * MIB, 1.36),
        (9, 3, 3 * 3_538_944, 1.339),
    ],
)
def test_published_gains_of_the_law_come_out(reads: int, after: int, unit_bytes: float, gain: float) -> None:
    assert io_gain(scattered(reads), after, unit_bytes, ASSUMED).value == pytest.approx(gain, abs=0.006)


def test_reads_that_overlap_need_the_latency_under_load() -> None:
    deep = Device(exact(122e-6), exact(13e9), queue_depth=8)
    assert "at queue depth 8" in io_gain(scattered(4), 1, 18.9e6, deep).why
    loaded = Device(exact(122e-6), exact(13e9), 8, exact(6.84e-3))
    assert io_gain(scattered(4), 1, 18.9e6, loaded).value == pytest.approx(1.053, abs=0.001)


def test_the_two_term_speed_up_and_its_inverse_agree_with_published_rows() -> None:
    baseline = scattered(9)
    gain = Estimate(1.33, "", 1, "given")
    assert speed_up(baseline, exact(0.96), gain).value == pytest.approx(1.313, abs=0.001)
    assert share_for(1.143, 2.34).value == pytest.approx(0.218, abs=0.001)
    assert share_for(1.097, 1.29).value == pytest.approx(0.393, abs=0.001)
    assert isinstance(share_for(2.0, 1.3), Unknown)
    assert isinstance(share_for(1.1, 1.0), Unknown)


def test_the_interval_spans_what_the_inputs_span() -> None:
    device = Device((60e-6, 100e-6, 120e-6), (5e9, 6e9, 8.2e9), 1)
    gain = io_gain(scattered(9), 1, 3.19 * MIB, device)
    assert isinstance(gain, Estimate)
    assert gain.interval.low == pytest.approx(1 + 8 * 60e-6 * 5e9 / (3.19 * MIB))
    assert gain.interval.high == pytest.approx(1 + 8 * 120e-6 * 8.2e9 / (3.19 * MIB))
    whole = speed_up(scattered(9), (0.2, 0.25, 0.3), gain)
    assert whole.interval.low < whole.value < whole.interval.high
    assert "against engine, 9 scattered reads an expert" in whole.method


def test_without_a_named_baseline_there_is_no_gain() -> None:
    for nameless in (ReadBaseline("", "9 reads", 9), ReadBaseline("engine", " ", 9)):
        assert "without a named baseline" in io_gain(nameless, 1, MIB, ASSUMED).why
        assert "without a named baseline" in speed_up(nameless, exact(0.5), Estimate(2.0, "", 1, "")).why


def test_impossible_inputs_have_no_gain() -> None:
    assert isinstance(io_gain(scattered(1), 3, MIB, ASSUMED), Unknown)
    assert isinstance(io_gain(scattered(3), 1, 0, ASSUMED), Unknown)
    assert isinstance(io_gain(scattered(3), 1, MIB, Device(exact(0.0), exact(6e9), 1)), Unknown)
    assert isinstance(speed_up(scattered(3), (0.3, 0.2, 0.4), Estimate(2.0, "", 1, "")), Unknown)
    assert isinstance(speed_up(scattered(3), exact(0.5), Unknown("no device curve")), Unknown)


@settings(deadline=None)
@given(st.floats(0, 1), st.floats(1, 10))
def test_a_speed_up_never_passes_the_gain(share: float, gain: float) -> None:
    found = speed_up(scattered(9), exact(share), Estimate(gain, "", 1, ""))
    assert 1 - 1e-9 <= found.value <= gain + 1e-9


def percent(value: float, low: float, high: float) -> Estimate:
    return Estimate(value, "percent", 5, "", Interval(low, high))


def test_a_missed_prediction_is_reported_as_it_is() -> None:
    found = against(percent(20.0, 15.0, 25.0), percent(9.7, 8.0, 11.4), bar=15.0)
    assert (found.verdict, found.inside) == (MISSED, False)
    assert found.miss.value == pytest.approx(-10.3)
    assert found.miss.interval.high == pytest.approx(-8.6)
    assert "bar 15" in found.why


def test_a_bar_inside_the_interval_decides_nothing() -> None:
    assert against(percent(20.0, 15.0, 25.0), percent(15.5, 14.0, 17.0), bar=15.0).verdict == UNDECIDED
    assert against(percent(20.0, 15.0, 25.0), percent(18.0, 16.0, 20.0), bar=15.0).verdict == HIT
    lower = against(percent(-5.0, -8.0, -2.0), percent(-6.0, -7.0, -5.0), bar=-4.0, higher_is_hit=False)
    assert lower.verdict == HIT


def test_what_was_not_measured_or_not_predicted_is_said() -> None:
    assert against(percent(1.0, 0.0, 2.0), Unknown("no run"), 1.0).verdict == UNDECIDED
    found = against(Unknown("no device curve"), Estimate(9.7, "percent", 1, ""), 5.0)
    assert (found.verdict, found.inside) == (HIT, None)
    assert "without an interval" in found.why
    with pytest.raises(ValueError, match="a measurement in 's'"):
        against(percent(1.0, 0.0, 2.0), Estimate(1.0, "s", 1, ""), 1.0)


def curve(name: str, rows: dict[int, list[float]]) -> list[LoadPoint]:
    return [LoadPoint(name, load, rate) for load, rates in rows.items() for rate in rates]


CLEAR = {8: [120.0, 120.4, 119.8], 12: [136.4, 136.2, 136.7], 16: [136.0, 136.3, 136.1], 24: [134.0, 133.8, 134.1]}


def test_an_operating_point_comes_with_its_bracket_and_its_plateau() -> None:
    found = find_operating_point(curve("conn2", CLEAR), "conn2")
    assert isinstance(found, OperatingPoint)
    assert (found.concurrency, found.below, found.peak_at, found.plateau) == (12, 8, (12,), (12, 16, 24))
    assert found.unresolved == ()
    assert found.text == "c12: 136.4 +- 0.25 (n 3), 100.0 % of the peak at c12"


def test_a_boundary_within_the_noise_is_named() -> None:
    near = {8: [133.0, 135.5, 131.5], 12: [136.0, 137.0, 136.5], 16: [134.0, 135.0, 133.0]}
    found = find_operating_point(curve("a", near), "a")
    assert isinstance(found, OperatingPoint)
    assert any("c8 gives" in said and "either side of the 98 % boundary" in said for said in found.unresolved)


def test_edges_ties_and_single_repetitions_are_named() -> None:
    found = find_operating_point(curve("a", {8: [100.0], 12: [100.0], 16: [99.0]}), "a")
    assert isinstance(found, OperatingPoint)
    assert (found.concurrency, found.below, found.peak_at) == (8, None, (8, 12))
    assert any("lowest load" in said for said in found.unresolved)
    assert any("shared by c8, c12" in said for said in found.unresolved)
    rising = find_operating_point(curve("b", {1: [10.0], 2: [20.0], 4: [30.0]}), "b")
    assert any("may still grow" in said for said in rising.unresolved)
    assert any("c2 against the 98 % boundary" in said and "3 in each arm" in said for said in rising.unresolved)
    assert isinstance(find_operating_point(curve("c", {4: [1.0]}), "c"), Unknown)
    assert isinstance(find_operating_point(curve("d", {4: [0.0], 8: [0.0]}), "d"), Unknown)


def test_scaling_is_told_as_speed_up_and_efficiency_together() -> None:
    found = scaling_efficiency({1: [135.5], 2: [263.3], 3: [387.2]})
    assert found[2][1].value == pytest.approx(97.2, abs=0.05)
    assert found[3][1].value == pytest.approx(95.3, abs=0.05)
    assert found[3][0].value == pytest.approx(2.858, abs=0.001)
    repeated = scaling_efficiency({1: [135.2, 135.5, 135.8], 3: [387.0, 386.8, 387.9]})
    assert repeated[3][1].interval.holds(95.2)
    assert isinstance(scaling_efficiency({2: [1.0]})[2][0], Unknown)
    assert isinstance(scaling_efficiency({1: [1.0], 2: [None]})[2][1], Unknown)


def test_a_figure_changes_its_unit_with_its_interval() -> None:
    found = mapped(Estimate(0.5, "s", 3, "", Interval(0.4, 0.6)), 1000.0, "ms")
    assert (found.value, found.interval.low, found.interval.high) == (500.0, 400.0, 600.0)
    assert found.text == "500 ms [400, 600]"
    assert mapped(Unknown("x"), 2.0, "y") == Unknown("x")
    assert Unknown("it was cold").text == "not determinable: it was cold"
    with pytest.raises(ValueError, match="factor"):
        mapped(found, 0.0, "s")
    with pytest.raises(ValueError, match="no reading"):
        present([float("inf")])
