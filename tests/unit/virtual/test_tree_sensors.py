"""Temperatures, power, fan, identity and the page cache switch of a board, without any file system."""

import errno
import os

import pytest

from boardbench.virtual.faults import Faults, parse
from boardbench.virtual.jetson_fan import quiet_pwm
from boardbench.virtual.loads import LoadSum

from .memory_board import Files, refused

THERMAL = "sys/class/thermal/"
FULL = LoadSum(cpu_activity=1.0, npu_activity=1.0, gpu_activity=1.0, cpu_threads=8)


@pytest.fixture
def nano():
    return Files("nanopi-r76s")


@pytest.fixture
def orin():
    return Files("jetson-orin-nano", "orin")


def zones(files):
    kinds = {}
    for name, entry in files.tree.directory("sys/class/thermal").entries.items():
        if name.startswith("thermal_zone"):
            kinds[name] = entry.entries["type"].read().strip()
    return kinds


def failing(files, path):
    with pytest.raises(OSError) as caught:
        files.read(path)
    return caught.value.errno


def test_nano_zones_have_the_vendor_kernels_names_in_order(nano):
    seen = zones(nano)
    assert [seen[f"thermal_zone{number}"] for number in range(len(seen))] == [
        "soc-thermal",
        "bigcore-thermal",
        "little-core-thermal",
        "ddr-thermal",
        "npu-thermal",
        "gpu-thermal",
    ]


def test_a_load_heats_by_the_time_that_passed_and_its_end_cools(nano):
    path = THERMAL + "thermal_zone0/temp"
    idle = int(nano.read(path))
    nano.board.set_load(FULL)
    nano.board.fan_connected = False
    nano.now_s += 120
    hot = int(nano.read(path))
    assert hot > idle + 15000
    nano.board.set_load(LoadSum())
    nano.now_s += 300
    assert int(nano.read(path)) < hot - 15000


def test_heat_lowers_the_cpu_bound_and_shows_as_cooling_state(nano):
    nano.board.fan_connected = False
    nano.board.set_load(FULL)
    nano.write("sys/devices/system/cpu/cpufreq/policy4/scaling_governor", "performance")
    nano.now_s += 1500
    shown = int(nano.read("sys/devices/system/cpu/cpufreq/policy4/scaling_max_freq"))
    assert shown < 2208000
    assert int(nano.read("sys/devices/system/cpu/cpufreq/policy4/scaling_cur_freq")) == shown
    assert int(nano.read(THERMAL + "cooling_device1/cur_state")) > 0
    assert int(nano.read("sys/class/devfreq/27700000.npu/cur_freq")) == 950000000


def test_an_idle_board_at_rest_still_reacts_to_a_load(nano):
    nano.now_s += 20000
    rest = int(nano.read(THERMAL + "thermal_zone4/temp"))
    nano.now_s += 20000
    assert int(nano.read(THERMAL + "thermal_zone4/temp")) == rest
    nano.board.set_load(FULL)
    nano.now_s += 30
    assert int(nano.read(THERMAL + "thermal_zone4/temp")) > rest + 5000


def test_input_voltage_is_in_microvolts(nano):
    assert 4_900_000 < int(nano.read("sys/class/power_supply/simple-vin/voltage_now")) < 5_500_000


def test_jetson_engines_that_are_off_answer_eagain(orin):
    seen = zones(orin)
    off = [zone for zone, kind in seen.items() if kind.startswith("cv")]
    assert len(off) == 3
    assert {failing(orin, f"{THERMAL}{zone}/temp") for zone in off} == {errno.EAGAIN}
    assert seen["thermal_zone8"] == "tj-thermal"


def test_jetson_rails_read_in_millivolts_and_milliamperes(orin):
    at = "sys/class/hwmon/hwmon1/"
    assert [orin.read(f"{at}in{number}_label") for number in (1, 2, 3)] == ["VDD_IN", "VDD_CPU_GPU_CV", "VDD_SOC"]
    idle = int(orin.read(at + "in1_input")) * int(orin.read(at + "curr1_input")) / 1e6
    orin.board.set_load(FULL)
    orin.now_s += 5
    loaded = int(orin.read(at + "in1_input")) * int(orin.read(at + "curr1_input")) / 1e6
    assert 3 < idle < 8
    assert loaded > idle + 3


@pytest.mark.parametrize(
    ("celsius", "pwm"), [(20, 0), (35, 0), (52.5, 84), (74, 187), (90, 187), (95, 255), (110, 255)]
)
def test_the_quiet_curve_has_the_stock_points(celsius, pwm):
    assert quiet_pwm(celsius) == pwm


def test_the_fan_follows_the_curve_until_pwm1_is_written(orin):
    pwm, rpm = "sys/class/hwmon/hwmon0/pwm1", "sys/class/hwmon/hwmon2/rpm"
    orin.now_s += 60
    assert 20 <= int(orin.read(pwm)) <= 120
    assert int(orin.read(rpm)) > 0
    orin.write(pwm, "0")
    orin.now_s += 60
    assert (orin.read(pwm), orin.read(rpm)) == ("0", "0")
    assert refused(orin, pwm, "256") == errno.EINVAL
    # Giving the fan back to the kernel ends the hand's rule.
    orin.write(THERMAL + "thermal_zone8/policy", "step_wise")
    orin.now_s += 60
    assert int(orin.read(pwm)) > 0


def test_a_disconnected_fan_stands_still_whatever_pwm1_says(orin):
    orin.write("sys/class/hwmon/hwmon0/pwm1", "255")
    orin.board.fan_connected = False
    orin.now_s += 60
    assert orin.read("sys/class/hwmon/hwmon2/rpm") == "0"


def test_identity_ends_with_nul_and_differs_between_boards():
    king, queen = Files("nanopi-r76s", "king"), Files("nanopi-r76s", "queen")
    base = "sys/firmware/devicetree/base/"
    assert king.read(base + "model") == "FriendlyElec NanoPi R76S\0"
    assert king.read(base + "compatible").split("\0") == ["friendlyelec,nanopi-r76s", "rockchip,rk3576", ""]
    assert king.read(base + "serial-number") != queen.read(base + "serial-number")
    assert king.read(base + "serial-number") == Files("nanopi-r76s", "king").read(base + "serial-number")


@pytest.mark.parametrize(("kind", "disk"), [("jetson-orin-nano", "nvme0n1"), ("nanopi-r76s", "mmcblk2")])
def test_a_disk_has_a_size_and_no_counters_that_stand_still(kind, disk):
    board = Files(kind)
    assert int(board.read(f"sys/class/block/{disk}/size")) > 0
    assert board.tree.find(f"sys/block/{disk}/stat") is None


@pytest.mark.parametrize("text", ["0", "5", "x", "", "-1"])
def test_drop_caches_refuses_other_values(nano, text):
    assert refused(nano, "proc/sys/vm/drop_caches", text) == errno.EINVAL
    assert nano.drops == []


def test_drop_caches_takes_1_to_3_and_4_only_silences_the_log(nano):
    for text in ("1", "2", "3", "4"):
        nano.write("proc/sys/vm/drop_caches", text)
    assert nano.drops == [1, 2, 3]


def test_a_read_only_drop_caches_is_erofs(nano):
    nano.board.set_faults(parse(b'{"drop_caches": "read-only"}'))
    assert refused(nano, "proc/sys/vm/drop_caches", "3") == errno.EROFS
    assert nano.drops == []


def test_a_zone_error_hits_that_zone_only(nano):
    nano.board.set_faults(parse(b'{"zone_errors": {"soc-thermal": "EIO"}}'))
    assert failing(nano, THERMAL + "thermal_zone0/temp") == errno.EIO
    assert int(nano.read(THERMAL + "thermal_zone4/temp")) > 0
    nano.board.set_faults(Faults())
    assert int(nano.read(THERMAL + "thermal_zone0/temp")) > 0


def test_a_frozen_zone_keeps_its_value_while_others_move(nano):
    before = nano.read(THERMAL + "thermal_zone0/temp")
    nano.board.set_faults(parse(b'{"frozen_zones": ["soc-thermal"]}'))
    assert nano.read(THERMAL + "thermal_zone0/temp") == before
    nano.board.set_load(FULL)
    nano.now_s += 100
    assert nano.read(THERMAL + "thermal_zone0/temp") == before
    assert int(nano.read(THERMAL + "thermal_zone4/temp")) > int(before) + 5000


def test_the_short_table_ends_at_624_mhz_and_caps_the_clock(orin):
    gpu = "sys/class/devfreq/17000000.gpu/"
    orin.board.set_faults(parse(b'{"jetson_short_table": true}'))
    assert orin.read(gpu + "available_frequencies").split()[-2:] == ["612000000", "624750000"]
    orin.write(gpu + "min_freq", "1020000000")
    assert orin.read(gpu + "cur_freq") == "624750000"


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{",
        '{"zone_errors": {"soc-thermal": "EFOO"}}',
        '{"drop_caches": "maybe"}',
        '{"typo": 1}',
        '{"frozen_zones": "soc-thermal"}',
        '{"jetson_short_table": 1}',
    ],
)
def test_faults_that_make_no_sense_are_refused(text):
    with pytest.raises(ValueError):
        parse(text.encode())


def test_errno_names_come_from_the_system():
    assert parse(b'{"zone_errors": {"x": "ENODATA"}}').zone_errors == {"x": errno.ENODATA}
    assert os.strerror(errno.ENODATA)
