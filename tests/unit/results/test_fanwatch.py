"""A fan that is switched while the load runs shows in the temperature curve; nothing else is taken for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest

from boardbench.results.fanwatch import Point, against_expected, find_break, rise
from boardbench.virtual.thermal import Controls, Load, make

BOARDS = (("nanopi-r76s", "king"), ("nanopi-r76s", "queen"), ("nanopi-r76s", "jack"), ("jetson-orin-nano", "jetson"))
LONG_S = 1860.0


def curve(
    kind: str,
    name: str,
    fan: Sequence[tuple[float, float]],
    *,
    row_s: float = 5.0,
    length_s: float = LONG_S,
    load: Load | None = None,
    caps: Sequence[tuple[float, int]] = ((0.0, 10**9),),
) -> list[Point]:
    """The model under a constant load; `fan` and `caps`: from when on (board seconds) which duty and clock bound."""
    model = make(kind, name)
    load = load or (Load(1, 0, 1) if kind.startswith("jetson") else Load(1, 1, 0))
    points: list[Point] = []
    at_s = 0.0
    while at_s < length_s:
        duty = [duty for since_s, duty in fan if since_s <= at_s][-1]
        cap = [khz for since_s, khz in caps if since_s <= at_s][-1]
        model.advance(row_s, load, Controls(fan_duty=duty, cpu_max_khz=dict.fromkeys(model.cpu_cur_khz, cap)))
        at_s += row_s
        zones = model.zones_celsius
        celsius = zones["soc-thermal"] if "soc-thermal" in zones else zones["tj-thermal"]
        points.append(Point(at_s, celsius, float(sum(model.cpu_cur_khz.values()))))
    return points


@pytest.mark.parametrize(("kind", "name"), BOARDS)
@pytest.mark.parametrize("duty", [0.0, 1.0])
@pytest.mark.parametrize("row_s", [1.0, 24.0])
def test_a_fan_that_is_left_alone_is_no_break(kind: str, name: str, duty: float, row_s: float) -> None:
    assert find_break(curve(kind, name, [(0, duty)], row_s=row_s)) is None


@pytest.mark.parametrize(("kind", "name"), BOARDS)
@pytest.mark.parametrize("at_s", [400.0, 1000.0, 1600.0])
@pytest.mark.parametrize("row_s", [1.0, 24.0])
def test_a_fan_that_is_switched_off_heats_a_second_time(kind: str, name: str, at_s: float, row_s: float) -> None:
    found = find_break(curve(kind, name, [(0, 1.0), (at_s, 0.0)], row_s=row_s))
    assert found is not None
    assert found.off_celsius > 0
    assert abs(found.at_s - at_s) < 90
    assert "second heating" in str(found)


@pytest.mark.parametrize(("kind", "name"), BOARDS)
@pytest.mark.parametrize("at_s", [400.0, 1000.0, 1600.0])
def test_a_fan_that_is_switched_on_lets_the_board_fall(kind: str, name: str, at_s: float) -> None:
    found = find_break(curve(kind, name, [(0, 0.0), (at_s, 1.0)]))
    assert found is not None
    assert found.off_celsius < 0
    assert abs(found.at_s - at_s) < 90


def test_a_clock_that_is_lowered_cools_the_board_and_is_no_break() -> None:
    assert find_break(curve("nanopi-r76s", "king", [(0, 0.0)], caps=[(0, 10**9), (900, 600000)])) is None


def test_a_clock_that_is_given_back_heats_the_board_and_is_no_break() -> None:
    assert find_break(curve("nanopi-r76s", "king", [(0, 1.0)], caps=[(0, 600000), (900, 10**9)])) is None


def test_noise_of_a_sensor_is_no_break() -> None:
    points = curve("nanopi-r76s", "queen", [(0, 0.0)])
    noisy = [replace(point, celsius=point.celsius + (-1.5, 0.0, 1.5)[index % 3]) for index, point in enumerate(points)]
    assert find_break(noisy) is None


def test_a_short_or_a_thin_log_tells_nothing() -> None:
    switched = [(0.0, 1.0), (300.0, 0.0)]
    assert find_break([]) is None
    assert find_break(curve("nanopi-r76s", "king", [(0, 1.0)], length_s=60.0)) is None
    assert find_break(curve("nanopi-r76s", "king", switched, row_s=60.0)) is None


def test_unknown_clocks_do_not_hide_a_switched_fan() -> None:
    points = [replace(point, khz=None) for point in curve("nanopi-r76s", "king", [(0, 1.0), (900, 0.0)])]
    assert find_break(points) is not None


def test_the_rise_counts_from_the_last_reading_before_the_load() -> None:
    points = [Point(-10, 40, None), Point(-1, 42, None), *(Point(10.0 * n, 60, None) for n in range(1, 40))]
    assert rise(points, 300) == pytest.approx(18)
    assert rise(points[:10], 300) is None


def test_phases_differ_in_the_first_minutes_by_more_than_any_board_from_another() -> None:
    rises = {
        duty: [rise(curve(kind, name, [(0, duty)], row_s=1.0), 300) for kind, name in BOARDS[:3]] for duty in (0.0, 1.0)
    }
    assert min(value for value in rises[0.0] if value is not None) > 25
    assert max(value for value in rises[1.0] if value is not None) < 15


@pytest.mark.parametrize(
    ("seen", "above", "below", "fine"),
    [(30.0, 25.0, None, True), (10.0, 25.0, None, False), (10.0, None, 15.0, True), (20.0, None, 15.0, False),
     (None, 25.0, None, True), (20.0, None, None, True)],
)  # fmt: skip
def test_a_rise_is_held_against_what_the_phase_must_show(
    seen: float | None, above: float | None, below: float | None, fine: bool
) -> None:
    assert (against_expected(seen, above, below, 300, "fanless") == "") is fine


def test_the_curves_of_these_tests_have_rows_in_order() -> None:
    assert all(b.at_s > a.at_s for a, b in pairwise(curve("nanopi-r76s", "jack", [(0, 1.0)], row_s=24.0)))
