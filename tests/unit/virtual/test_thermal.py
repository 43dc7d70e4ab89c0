"""The thermal models: physics that must hold whatever the constants are, and the figures the boards are known for."""

from __future__ import annotations

import statistics
from itertools import pairwise

import pytest

from boardbench.errors import InputError
from boardbench.virtual.fit import rig_load
from boardbench.virtual.thermal import BoardModel, Controls, Load, make

NANOPI_ZONES = {
    "soc-thermal",
    "bigcore-thermal",
    "little-core-thermal",
    "ddr-thermal",
    "npu-thermal",
    "gpu-thermal",
}
BOARDS = ("king", "queen", "jack")
FANLESS, FAN = Controls(fan_duty=0.0), Controls(fan_duty=1.0)
BURN = Load(cpu_activity=1.0, npu_activity=1.0)
BURN_S = 31 * 60


def nanopi(board: str = "king") -> BoardModel:
    return make("nanopi-r76s", board)


def jetson() -> BoardModel:
    return make("jetson-orin-nano", "orin")


def soc_after(seconds: float, load: Load, controls: Controls = FANLESS) -> float:
    model = nanopi()
    model.advance(seconds, load, controls)
    return model.celsius


def burnt(
    board: str, controls: Controls, air: float | None = None
) -> tuple[BoardModel, list[float], list[int], list[float]]:
    """The model after the product's own burn, and per second its SoC, its big clock in MHz and its speed."""
    model = make("nanopi-r76s", board, air_celsius=air)
    model.settle(Load(), controls)
    celsius, mhz, speed = [], [], []
    for _ in range(BURN_S):
        model.advance(1.0, BURN, controls)
        celsius.append(model.zones_celsius["soc-thermal"])
        mhz.append(model.cpu_cur_khz["policy4"] // 1000)
        speed.append(model.clock_factor)
        assert model.npu_cur_hz == 950_000_000
    return model, celsius, mhz, speed


def test_every_nanopi_reading_is_on_the_sensors_lattice() -> None:
    model = nanopi()
    seen = set()
    for _ in range(300):
        model.advance(1.0, BURN, FANLESS)
        assert set(model.zones_celsius) == NANOPI_ZONES
        seen |= {round(celsius * 1000) for celsius in model.zones_celsius.values()}
    assert all((millidegrees - 84_999) % 923 == 0 for millidegrees in seen)
    assert {79_461, 84_999} <= seen


def test_every_jetson_reading_is_a_multiple_of_a_32th_and_engines_that_are_off_have_none() -> None:
    model = jetson()
    model.advance(100.0, Load(0.5, 0.0, 0.7), Controls(fan_duty=0.5))
    assert all((celsius * 32).is_integer() for celsius in model.zones_celsius.values())
    assert not any(zone.startswith("cv") for zone in model.zones_celsius)


@pytest.mark.parametrize(
    ("less", "more"),
    [
        (Load(), Load(cpu_activity=0.3)),
        (Load(cpu_activity=0.3), Load(cpu_activity=0.9)),
        (Load(cpu_activity=0.3), Load(cpu_activity=0.3, npu_activity=0.5)),
        (Load(cpu_activity=0.9, npu_activity=0.5), Load(cpu_activity=0.9, npu_activity=0.5, network_activity=1.0)),
    ],
)
def test_more_load_is_hotter(less: Load, more: Load) -> None:
    assert soc_after(120.0, more) > soc_after(120.0, less) + 0.3


def test_a_fan_is_cooler_and_so_is_a_lower_clock() -> None:
    slow = Controls(cpu_max_khz={"policy0": 1_008_000, "policy4": 1_008_000})
    assert soc_after(100.0, BURN, FAN) < soc_after(100.0, BURN) - 5
    assert soc_after(100.0, BURN, slow) < soc_after(100.0, BURN) - 2


def test_a_board_without_load_stays_where_it_is() -> None:
    model = nanopi("queen")
    before = model.celsius
    model.advance(3600.0, Load(), FANLESS)
    assert model.celsius == pytest.approx(before, abs=0.01)
    assert 40.0 <= before <= 42.5


def test_time_may_be_cut_in_any_way() -> None:
    whole, seconds, crumbs = nanopi(), nanopi(), nanopi()
    for _ in range(5):
        whole.advance(60.0, BURN, FANLESS)
        for _ in range(60):
            seconds.advance(1.0, BURN, FANLESS)
        for _ in range(600):
            crumbs.advance(0.1, BURN, FANLESS)
        assert seconds.celsius == pytest.approx(whole.celsius, abs=1e-9)
        # Up to one tick may still be pending, and the throttle may have acted in it.
        assert crumbs.celsius == pytest.approx(whole.celsius, abs=0.5)
    assert seconds.cpu_cur_khz == whole.cpu_cur_khz


def test_time_below_a_tick_is_not_lost() -> None:
    model = nanopi()
    for _ in range(1000):
        model.advance(0.01, BURN, FANLESS)
    assert model.celsius == pytest.approx(soc_after(10.0, BURN), abs=0.1)


def test_the_same_story_gives_the_same_board() -> None:
    assert burnt("jack", FANLESS)[1:] == burnt("jack", FANLESS)[1:]


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf")])
def test_time_that_is_none_is_refused(seconds: float) -> None:
    with pytest.raises(ValueError, match="seconds"):
        nanopi().advance(seconds, BURN, FANLESS)


def test_throttling_lowers_the_cap_step_by_step_and_a_pause_lifts_it() -> None:
    model, _, mhz, _ = burnt("king", FANLESS)
    first = next(second for second, clock in enumerate(mhz) if clock < 2208)
    assert mhz[first] == 2016
    assert all(abs(a - b) <= 450 for a, b in pairwise(mhz))
    assert model.cpu_thermal_max_khz["policy4"] < 2_208_000
    assert model.cpu_cur_khz["policy4"] == model.cpu_thermal_max_khz["policy4"]
    model.advance(4.0, Load(), FANLESS)
    assert model.cpu_thermal_max_khz == {"policy0": 2_016_000, "policy4": 2_208_000}
    assert model.cpu_cur_khz["policy4"] == 2_208_000
    model.advance(60.0, BURN, FANLESS)
    assert model.cpu_cur_khz["policy4"] < 2_208_000


@pytest.mark.parametrize("warmer", [-1.2, -0.6, 0.0, 0.6, 1.2])
def test_burn_without_a_fan_throttles_king_most_and_holds_every_board_below_its_limit(warmer: float) -> None:
    burns = {board: burnt(board, FANLESS, nanopi().air_celsius + warmer) for board in BOARDS}
    for _, celsius, _, _ in burns.values():
        assert 84.0 <= max(celsius) <= 88.0
    medians = {board: statistics.median(mhz) for board, (_, _, mhz, _) in burns.items()}
    losses = {board: 1 - statistics.fmean(speed) for board, (_, _, _, speed) in burns.items()}
    assert medians["king"] <= 1200
    assert 1416 <= medians["queen"] <= 2016
    assert 1416 <= medians["jack"] <= 2016
    assert losses["king"] == max(losses.values())
    assert losses["king"] > 1.3 * max(losses["queen"], losses["jack"])


@pytest.mark.parametrize("board", BOARDS)
def test_burn_with_a_fan_settles_within_five_minutes_and_loses_no_clock(board: str) -> None:
    _, celsius, mhz, speed = burnt(board, FAN)
    assert set(mhz) == {2208}
    assert statistics.fmean(speed) > 0.97
    assert 57.0 <= statistics.fmean(celsius[300:]) <= 61.0
    assert max(celsius[300:]) - min(celsius[300:]) < 2.0


@pytest.mark.parametrize("board", BOARDS)
def test_a_throttled_board_is_held_between_85_and_87(board: str) -> None:
    celsius = burnt(board, FANLESS)[1][-900:]
    assert set(celsius) <= {84.999, 85.922, 86.845}
    assert len(set(celsius)) > 1 or celsius[0] > 85


@pytest.mark.parametrize("load", [BURN, rig_load(114.5, 1008 / 2208)])
def test_the_first_seconds_after_a_full_load_are_as_recorded(load: Load) -> None:
    model = nanopi()
    model.air_celsius -= 2.0 if load.network_activity else 0.0  # the rig's day was colder
    model.advance(BURN_S, load, FANLESS)
    recorded = {0: 86.8, 1: 81.3, 2: 79.5, 3: 79.5, 4: 77.6, 5: 77.6, 6: 76.7}
    for second in range(7):
        if second in recorded:
            assert model.celsius == pytest.approx(recorded[second], abs=1.5)
        model.advance(1.0, Load(), FANLESS)


def test_cooling_after_a_local_npu_load_is_as_recorded() -> None:
    # 15 min of NPU work without a network under `ondemand`; the CPU waits most of the time.
    recorded = {2: 61.0, 3: 58.2, 5: 56.4, 10: 52.7, 14: 49.9, 20: 48.1, 30: 45.3}
    recorded |= {50: 42.5, 60: 41.6, 70: 40.7, 90: 39.8, 100: 38.8}
    ondemand = Controls(governor={"policy0": "ondemand", "policy4": "ondemand"})
    model = nanopi()
    model.settle(Load(), ondemand)
    idle_rise = model.celsius - model.air_celsius
    model.advance(900.0, Load(cpu_activity=0.2, npu_activity=1.0), ondemand)
    model.air_celsius += 72.1 - model.celsius
    assert 36.0 <= model.air_celsius + idle_rise <= 40.0
    for second in range(1, 101):
        model.advance(1.0, Load(), ondemand)
        if second in recorded:
            assert model.celsius == pytest.approx(recorded[second], abs=3.0), second


def test_a_saturated_cpu_feeds_the_npu_less() -> None:
    # The chip's fast heat: with all cores taken the NPU adds less than to a CPU that waits.
    def step(cpu: float, npu: float) -> float:
        return soc_after(2.0, Load(cpu, npu)) - soc_after(2.0, Load(cpu))

    assert 0.5 * step(0.1, 1.0) < step(1.0, 1.0) < 0.9 * step(0.1, 1.0)


def test_a_lower_governor_idles_cooler() -> None:
    model = nanopi()
    warm = model.celsius
    model.settle(Load(), Controls(governor={"policy0": "ondemand", "policy4": "ondemand"}))
    assert 2.0 < warm - model.celsius < 6.0


def test_from_72_degrees_a_board_is_near_its_idle_level_in_100_seconds() -> None:
    model = burnt("king", FANLESS)[0]
    while model.celsius > 72.1:
        model.advance(0.25, Load(), FANLESS)
    model.advance(100.0, Load(), FANLESS)
    idle = nanopi("king").celsius
    assert idle <= model.celsius <= idle + 2.5


def test_user_bounds_and_governors_shape_the_clock_but_heat_wins() -> None:
    model = nanopi()
    model.advance(1.0, BURN, Controls(cpu_max_khz={"policy4": 1_300_000}))
    assert model.cpu_cur_khz == {"policy0": 2_016_000, "policy4": 1_200_000}
    model.advance(1.0, Load(), Controls(governor={"policy4": "ondemand"}, cpu_min_khz={"policy4": 816_000}))
    assert model.cpu_cur_khz["policy4"] == 816_000
    model.advance(1.0, BURN, Controls(governor={"policy0": "powersave", "policy4": "ondemand"}))
    assert model.cpu_cur_khz == {"policy0": 408_000, "policy4": 2_208_000}
    model.advance(BURN_S, BURN, Controls(cpu_min_khz={"policy4": 2_208_000}))
    assert model.cpu_cur_khz["policy4"] < 2_208_000


def test_clock_factor_follows_the_clocks() -> None:
    model = nanopi()
    assert model.clock_factor == 1.0
    model.advance(1.0, BURN, Controls(cpu_max_khz={"policy0": 1_008_000, "policy4": 1_104_000}))
    assert 0.4 < model.clock_factor < 0.5


def test_the_input_voltage_sags_under_load() -> None:
    model = nanopi()
    assert 5.23 <= model.input_volts <= 5.33
    model.advance(5.0, BURN, FANLESS)
    assert 5.04 <= model.input_volts < 5.23


def test_another_name_gets_a_default_board_and_another_kind_is_refused() -> None:
    model = make("nanopi-r76s", "ace", air_celsius=30.0)
    model.advance(600.0, BURN, FAN)
    assert 40.0 < model.celsius < 60.0
    with pytest.raises(InputError, match="no thermal model for boards of kind 'toaster'"):
        make("toaster", "king")


def test_jetson_podgov_starves_below_its_threshold_unless_the_floor_is_raised() -> None:
    model, light = jetson(), Load(0.2, 0.0, 0.36)
    model.advance(10.0, light, Controls(fan_duty=0.5))
    assert model.gpu_cur_hz == 306_000_000
    model.advance(10.0, light, Controls(fan_duty=0.5, gpu_min_hz=816_000_000))
    assert model.gpu_cur_hz == 816_000_000
    model.advance(10.0, Load(0.2, 0.0, 1.0), Controls(fan_duty=0.5, gpu_max_hz=612_000_000))
    assert model.gpu_cur_hz == 612_000_000


def test_jetson_with_a_fan_stays_between_54_and_60_at_full_load() -> None:
    for duty in (0.5, 1.0):
        model = jetson()
        model.advance(1800.0, Load(1.0, 0.0, 1.0), Controls(fan_duty=duty))
        assert 54.0 <= model.zones_celsius["tj-thermal"] <= 60.0
        assert model.clock_factor == 1.0
        volts, amperes = model.rails["VDD_IN"]
        assert 15.0 <= volts * amperes <= 16.0
        assert model.fan_rpm == pytest.approx(6000 if duty == 1.0 else 2750, rel=0.05)


def test_jetson_without_a_fan_climbs_to_99_and_throttles_cpu_and_gpu() -> None:
    model, controls = jetson(), Controls(fan_duty=0.0)
    model.advance(2400.0, Load(1.0, 0.0, 1.0), controls)
    assert 97.0 <= model.zones_celsius["tj-thermal"] <= 100.5
    assert model.gpu_cur_hz is not None
    assert model.gpu_cur_hz < 1_020_000_000
    assert model.cpu_cur_khz["policy0"] == model.cpu_thermal_max_khz["policy0"] < 1_728_000
    assert model.fan_rpm == 0.0
    model.advance(600.0, Load(), controls)
    assert model.cpu_thermal_max_khz["policy0"] == 1_728_000


def test_the_jetsons_tachometer_lags() -> None:
    model = jetson()
    before = model.fan_rpm or 0.0
    model.advance(1.0, Load(), Controls(fan_duty=1.0))
    assert before < (model.fan_rpm or 0.0) < 5000
    model.advance(30.0, Load(), Controls(fan_duty=1.0))
    assert model.fan_rpm == pytest.approx(6000, rel=0.01)
    model.advance(30.0, Load(), Controls(fan_duty=0.0))
    assert model.fan_rpm == 0.0


def test_jetson_rails_are_parts_of_the_input() -> None:
    model = jetson()
    model.settle(Load(0.02, 0.0, 0.02), Controls(fan_duty=0.235))
    watts = {label: volts * amperes for label, (volts, amperes) in model.rails.items()}
    assert watts["VDD_CPU_GPU_CV"] + watts["VDD_SOC"] < watts["VDD_IN"]
    assert 4.5 <= watts["VDD_IN"] <= 5.6
    assert 43.0 <= model.zones_celsius["tj-thermal"] <= 52.5
