"""Where a load curve has its operating point, and which numbers may be quoted."""

from __future__ import annotations

import pytest

from boardbench.analysis.operating_point import LoadPoint, Quote, Regime, barred, operating_point, regimes


def curve(name: str, *points: tuple[int, float]) -> list[LoadPoint]:
    return [LoadPoint(name, concurrency, rate) for concurrency, rate in points]


ONE = curve("one", (4, 200.0), (8, 331.0), (12, 341.8), (24, 344.0), (32, 330.0))


def test_it_is_the_lowest_load_that_gives_98_percent_of_the_peak() -> None:
    assert operating_point(ONE) == 12
    assert operating_point(curve("flat", (1, 99.0), (2, 100.0))) == 1


def test_repetitions_count_by_their_mean() -> None:
    assert operating_point([*curve("a", (1, 100.0), (1, 90.0)), *curve("a", (2, 100.0))]) == 2


def test_a_curve_without_points_has_none() -> None:
    with pytest.raises(ValueError, match="no operating point"):
        operating_point([])


def test_each_row_is_labelled_by_the_curve_of_its_own_configuration() -> None:
    two = curve("two", (12, 100.0), (24, 200.0), (32, 201.0))
    labels = regimes([*ONE, *two])
    assert [labels["one", c] for c in (8, 12, 24)] == [Regime.BELOW, Regime.OPERATING_POINT, Regime.OVERLOAD]
    assert [labels["two", c] for c in (12, 24, 32)] == [Regime.BELOW, Regime.OPERATING_POINT, Regime.OVERLOAD]


def test_only_overload_and_what_was_not_measured_are_barred() -> None:
    assert barred(ONE, [Quote("p99", "one", 12), Quote("p99", "one", 8)]) == ()
    (overload,) = barred(ONE, [Quote("p99", "one", 32)])
    assert overload == "overload-quoted: p99 of one at concurrency 32 is overload; its operating point is 12"
    (unknown,) = barred(ONE, [Quote("p99", "one", 16)])
    assert "was not measured" in unknown
