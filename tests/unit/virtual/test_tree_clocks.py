"""The clock files' write rules, without any file system: what reads back after which write."""

import errno

import pytest

from .memory_board import Files, refused


@pytest.fixture
def nano():
    return Files("nanopi-r76s")


@pytest.fixture
def orin():
    return Files("jetson-orin-nano", "orin")


CPU = "sys/devices/system/cpu/"
BIG = CPU + "cpufreq/policy4/"
GPU = "sys/class/devfreq/17000000.gpu/"


def test_nano_has_two_policies_with_their_ladders(nano):
    assert nano.read(CPU + "cpufreq/policy0/related_cpus") == "0 1 2 3"
    assert nano.read(BIG + "related_cpus") == "4 5 6 7"
    assert nano.read(BIG + "scaling_available_frequencies").split()[-1] == "2208000"
    assert nano.read(CPU + "cpufreq/policy0/scaling_available_frequencies").split()[-1] == "2016000"
    assert nano.read(CPU + "online") == "0-7"


def test_each_cpu_shows_the_policy_that_it_belongs_to(nano):
    nano.write(CPU + "cpu6/cpufreq/scaling_max_freq", "1200000")
    assert nano.read(BIG + "scaling_max_freq") == "1200000"
    assert nano.read(CPU + "cpu1/cpufreq/scaling_max_freq") == "2016000"


@pytest.mark.parametrize(
    ("written", "shown"),
    [("1300000", "1200000"), ("1", "408000"), ("99999999", "2208000"), ("2208000", "2208000"), (" 1416000", "1416000")],
)
def test_a_cpu_bound_reads_back_as_the_highest_point_not_above_it(nano, written, shown):
    nano.write(BIG + "scaling_max_freq", written)
    assert nano.read(BIG + "scaling_max_freq") == shown


@pytest.mark.parametrize("text", ["", "fast", "-5", "1e6", "12,5", "1 2", "1_000", "٣"])
def test_a_bound_that_is_no_number_is_einval(nano, orin, text):
    assert refused(nano, BIG + "scaling_max_freq", text) == errno.EINVAL
    assert refused(orin, GPU + "min_freq", text) == errno.EINVAL


def test_a_cpu_minimum_above_the_maximum_is_refused_in_either_order(nano):
    nano.write(BIG + "scaling_max_freq", "1008000")
    assert refused(nano, BIG + "scaling_min_freq", "1800000") == errno.EINVAL
    assert nano.read(BIG + "scaling_min_freq") == "408000"
    nano.write(BIG + "scaling_max_freq", "2208000")
    nano.write(BIG + "scaling_min_freq", "1800000")
    assert refused(nano, BIG + "scaling_max_freq", "1008000") == errno.EINVAL
    assert nano.read(BIG + "scaling_max_freq") == "2208000"


def test_the_current_clock_obeys_governor_and_bounds(nano):
    nano.write(BIG + "scaling_governor", "performance")
    nano.write(BIG + "scaling_max_freq", "1608000")
    assert nano.read(BIG + "scaling_cur_freq") == "1608000"
    nano.write(BIG + "scaling_governor", "powersave")
    assert nano.read(BIG + "scaling_cur_freq") == "408000"


def test_a_governor_that_is_not_in_the_list_is_einval_and_changes_nothing(nano, orin):
    assert refused(nano, BIG + "scaling_governor", "turbo") == errno.EINVAL
    assert nano.read(BIG + "scaling_governor") == "ondemand"
    assert refused(orin, GPU + "governor", "turbo") == errno.EINVAL
    assert orin.read(GPU + "governor") == "nvhost_podgov"


def test_gpu_minimum_zero_reads_as_the_end_of_the_table(orin):
    orin.write(GPU + "min_freq", "0")
    assert orin.read(GPU + "min_freq") == "306000000"


def test_gpu_minimum_above_maximum_reads_as_maximum_and_moves_the_clock(orin):
    orin.write(GPU + "max_freq", "612000000")
    orin.write(GPU + "min_freq", "1020000000")
    assert orin.read(GPU + "min_freq") == "612000000"
    assert orin.read(GPU + "cur_freq") == "612000000"


def test_gpu_bounds_are_kept_in_khz_down_for_min_and_up_for_max(orin):
    orin.write(GPU + "min_freq", "408000999")
    orin.write(GPU + "max_freq", "816000001")
    assert orin.read(GPU + "min_freq") == "408000000"
    assert orin.read(GPU + "max_freq") == "816001000"


def test_gpu_bounds_out_of_range_are_no_error(orin):
    orin.write(GPU + "max_freq", "9999999999999")
    assert orin.read(GPU + "max_freq") == "1020000000"
    assert refused(orin, GPU + "max_freq", "9" * 30) == errno.ERANGE


def test_the_kernels_gpu_paths_lead_to_the_same_files(orin):
    orin.write("sys/devices/platform/bus@0/17000000.gpu/devfreq/17000000.gpu/min_freq", "510000000")
    assert orin.read(GPU + "min_freq") == "510000000"
    assert orin.read("sys/devices/platform/17000000.gpu/devfreq_dev/min_freq") == "510000000"
    assert orin.read(GPU + "device/of_node/name") == "gpu\0"


def test_npu_bounds_hold_its_clock(nano):
    npu = "sys/class/devfreq/27700000.npu/"
    assert nano.read(npu + "cur_freq") == "950000000"
    nano.write(npu + "max_freq", "600000000")
    assert nano.read(npu + "cur_freq") == "600000000"


def test_the_last_core_cannot_be_switched_off(orin):
    for cpu in range(5):
        orin.write(f"{CPU}cpu{cpu}/online", "0")
    assert orin.read(CPU + "online") == "5"
    assert orin.read(CPU + "offline") == "0-4"
    assert refused(orin, CPU + "cpu5/online", "0") == errno.EBUSY
    assert refused(orin, CPU + "cpu5/online", "2") == errno.EINVAL


def test_a_reboot_puts_settings_back(orin):
    orin.write(GPU + "max_freq", "408000000")
    orin.write(CPU + "cpu4/online", "0")
    orin.write("sys/class/hwmon/hwmon0/pwm1", "0")
    orin.board.reset()
    orin.now_s += 10
    assert orin.read(GPU + "max_freq") == "1020000000"
    assert orin.read(CPU + "online") == "0-5"
    assert int(orin.read("sys/class/hwmon/hwmon0/pwm1")) > 0
