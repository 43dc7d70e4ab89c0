"""A real daemon, with FUSE where it can be had and always with plain files: values, writes, errors, drops, loads."""

import contextlib
import errno
import fcntl
import json
import os
import time

import pytest

from boardbench.virtual import fuse_fs, processes

from .daemon_process import Fleet, eventually
from .test_pagecache_drop import make_cached, resident_share

NO_FUSE = fuse_fs.why_not()
MODES = [
    pytest.param("fuse", marks=pytest.mark.skipif(NO_FUSE is not None, reason=f"no FUSE here: {NO_FUSE}")),
    "plain",
]
CPU = "sys/devices/system/cpu/cpufreq/policy4/"
GPU = "sys/class/devfreq/17000000.gpu/"
SOC = "sys/class/thermal/thermal_zone0/temp"


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    """Starts a fleet of a mode when it is first asked for."""
    with contextlib.ExitStack() as stack:
        fleets = {}

        def get(mode):
            if mode not in fleets:
                fleets[mode] = stack.enter_context(Fleet(tmp_path_factory.mktemp("fleet"), mode))
            return fleets[mode]

        yield get


@pytest.fixture(params=MODES)
def fleet(request, running):
    return running(request.param)


@pytest.fixture
def fuse(running):
    if NO_FUSE is not None:
        pytest.skip(f"no FUSE here: {NO_FUSE}")
    return running("fuse")


def write_errno(path, text):
    try:
        handle = os.open(path, os.O_WRONLY | os.O_TRUNC)
    except OSError as error:
        return error.errno
    try:
        os.write(handle, text.encode())
    except OSError as error:
        return error.errno
    finally:
        os.close(handle)
    return 0


def test_the_daemon_says_what_it_is(fleet):
    about = json.loads((fleet.folder / "daemon.json").read_text())
    assert (about["pid"], about["mode"]) == (fleet.process.pid, fleet.mode)
    assert processes.mark_of(fleet.process.pid) == processes.from_dict(about)


def test_values_read_like_the_kernels(fleet):
    assert 20000 < int(fleet.read("king", SOC)) < 60000
    assert fleet.read("king", "sys/class/thermal/thermal_zone0/type") == "soc-thermal"
    assert fleet.read("king", "etc/rom-version") == "20260721"
    assert fleet.path("king", "sys/firmware/devicetree/base/model").read_bytes() == b"FriendlyElec NanoPi R76S\0"
    assert (
        fleet.path("orin", "sys/firmware/devicetree/base/compatible").read_bytes().split(b"\0")[-2]
        == b"nvidia,tegra234"
    )
    assert os.readlink(fleet.path("orin", "sys/devices/system/cpu/cpu5/cpufreq")) == "../cpufreq/policy4"
    assert fleet.path("orin", "sys/class/net").is_dir()


def test_a_legal_write_reads_back_in_every_file_that_shows_it(fleet):
    fleet.path("king", "sys/devices/system/cpu/cpu7/cpufreq/scaling_max_freq").write_text("1416000\n")
    eventually(lambda: fleet.read("king", CPU + "scaling_max_freq") == "1416000")
    fleet.path("king", CPU + "scaling_max_freq").write_text("2208000\n")
    eventually(lambda: fleet.read("king", CPU + "scaling_max_freq") == "2208000")


@pytest.mark.parametrize(
    ("board", "path", "text", "stays"),
    [
        ("king", CPU + "scaling_governor", "turbo", "ondemand"),
        ("king", CPU + "scaling_max_freq", "fast", "2208000"),
        ("orin", GPU + "max_freq", "12,5", "1020000000"),
        ("orin", "sys/class/hwmon/hwmon0/pwm1", "999", None),
    ],
)
def test_an_illegal_write_does_not_stay(fleet, board, path, text, stays):
    before = fleet.read(board, path)
    assert write_errno(fleet.path(board, path), text + "\n") == (errno.EINVAL if fleet.mode == "fuse" else 0)
    eventually(lambda: fleet.read(board, path) == (stays or fleet.read(board, path)) != text)
    if stays:
        assert before == stays


def test_minimum_above_maximum_reads_back_as_maximum(fleet):
    fleet.path("orin", GPU + "max_freq").write_text("612000000")
    eventually(lambda: fleet.read("orin", GPU + "max_freq") == "612000000")
    fleet.path("orin", GPU + "min_freq").write_text("1020000000")
    eventually(lambda: fleet.read("orin", GPU + "min_freq") == "612000000")
    for name in ("min_freq", "max_freq"):
        fleet.path("orin", GPU + name).write_text("0")
    eventually(lambda: fleet.read("orin", GPU + "max_freq") == "1020000000")


def test_what_root_writes_into_a_read_only_file_does_not_stay(fleet):
    kind = fleet.path("king", "sys/class/thermal/thermal_zone0/type")
    assert kind.stat().st_mode & 0o777 == 0o444
    if fleet.mode == "fuse":
        assert write_errno(kind, "x") == errno.EACCES
    else:
        with contextlib.suppress(PermissionError):
            kind.write_text("x")
    eventually(lambda: kind.read_text().strip() == "soc-thermal")


def test_an_engine_that_is_off_fails_when_it_is_read(fleet):
    path = fleet.path("orin", "sys/class/thermal/thermal_zone2/temp")
    handle = os.open(path, os.O_RDONLY)
    try:
        with pytest.raises(OSError) as caught:
            os.read(handle, 100)
    finally:
        os.close(handle)
    assert caught.value.errno == (errno.EAGAIN if fleet.mode == "fuse" else errno.EIO)


def test_a_zone_fault_comes_and_goes_while_the_daemon_runs(fleet):
    faults = fleet.folder / "ctl/queen/faults.json"
    faults.write_text('{"zone_errors": {"soc-thermal": "EIO"}}')

    def fails():
        try:
            fleet.read("queen", SOC)
        except OSError as error:
            return error.errno == errno.EIO
        return False

    eventually(fails)
    assert int(fleet.read("queen", "sys/class/thermal/thermal_zone4/temp")) > 0
    faults.unlink()
    eventually(lambda: not fails())


def test_a_load_heats_the_board_and_shows_in_the_status(fleet):
    before = int(fleet.read("jack", SOC))
    load = fleet.folder / "ctl/jack/load/1.json"
    with load.open("w") as file:
        json.dump({"cpu_threads": 16, "cpu_activity": 1.0, "npu_activity": 1.0}, file)
        file.flush()
        fcntl.flock(file, fcntl.LOCK_EX)
        eventually(lambda: fleet.status("jack")["cpu_share"] == 0.5)
        eventually(lambda: int(fleet.read("jack", SOC)) > before + 5000)
        eventually(lambda: fleet.status("jack")["clock_factor"] == 1.0)
    os.utime(load, (1, 1))
    eventually(lambda: not load.exists())
    eventually(lambda: fleet.status("jack")["cpu_share"] == 1.0)


def test_the_status_names_board_kind_scale_and_sysfs(fleet):
    status = fleet.status("orin")
    assert set(status) >= {"board", "kind", "time_scale", "sysfs", "cpu_share", "clock_factor", "monotonic_s"}
    assert status["board_kind"] == "jetson-orin-nano"
    assert (status["board"], status["kind"]) == ("orin", "bwrap")
    assert (status["time_scale"], status["sysfs"]) == (60.0, fleet.mode)
    assert abs(time.monotonic() - status["monotonic_s"]) < 5


def test_drop_caches_evicts_the_boards_files_and_no_others(fleet):
    mine = make_cached(fleet.folder / "own/king/model.bin")
    others = make_cached(fleet.folder / "own/queen/model.bin")
    if not fleet.has_pagecache:
        pytest.skip("the temporary folder lies on a file system without a page cache of its own")
    assert write_errno(fleet.path("king", "proc/sys/vm/drop_caches"), "3\n") == 0
    if fleet.mode == "fuse":
        assert resident_share(mine) == 0.0  # the write returns after the drop
    eventually(lambda: resident_share(mine) == 0.0)
    assert resident_share(others) == 1.0
    eventually(lambda: fleet.drops("king")[-1:] and fleet.drops("king")[-1]["value"] == 3)


def test_an_ignored_drop_evicts_nothing_and_is_noted(fleet):
    mine = make_cached(fleet.folder / "own/queen/other.bin")
    faults = fleet.folder / "ctl/queen/faults.json"
    faults.write_text('{"drop_caches": "ignored"}')
    time.sleep(0.3)
    assert write_errno(fleet.path("queen", "proc/sys/vm/drop_caches"), "3\n") == 0
    eventually(lambda: fleet.drops("queen")[-1:] and fleet.drops("queen")[-1]["ignored"])
    assert resident_share(mine) == 1.0
    faults.unlink()


def test_drop_caches_has_the_kernels_errors(fuse):
    path = fuse.path("king", "proc/sys/vm/drop_caches")
    assert write_errno(path, "9") == errno.EINVAL
    with pytest.raises(PermissionError):
        path.read_text()
    faults = fuse.folder / "ctl/king/faults.json"
    faults.write_text('{"drop_caches": "read-only"}')
    eventually(lambda: write_errno(path, "3") == errno.EROFS)
    faults.unlink()
    eventually(lambda: write_errno(path, "3") == 0)


def test_one_open_file_reads_whole_in_pieces_and_anew_from_the_start(fuse):
    handle = os.open(fuse.path("king", CPU + "scaling_available_frequencies"), os.O_RDONLY)
    whole = os.pread(handle, 4096, 0)
    assert os.pread(handle, 10, 0) + os.pread(handle, 4096, 10) == whole
    os.close(handle)
    handle = os.open(fuse.path("king", CPU + "scaling_governor"), os.O_RDONLY)
    assert os.pread(handle, 100, 0) == b"ondemand\n"
    fuse.path("king", CPU + "scaling_governor").write_text("performance")
    assert os.pread(handle, 100, 0) == b"performance\n"
    os.close(handle)
    fuse.path("king", CPU + "scaling_governor").write_text("ondemand")


def test_the_fan_file_stops_and_starts_the_fan(fleet):
    (fleet.folder / "ctl/orin/fan").write_text("0\n")
    eventually(lambda: fleet.read("orin", "sys/class/hwmon/hwmon2/rpm") == "0")
    (fleet.folder / "ctl/orin/fan").write_text("1\n")
    eventually(lambda: int(fleet.read("orin", "sys/class/hwmon/hwmon2/rpm")) > 0)


def test_a_reboot_mark_puts_settings_back(fleet):
    fleet.path("orin", "proc/sys/vm/swappiness").write_text("10")
    eventually(lambda: fleet.read("orin", "proc/sys/vm/swappiness") == "10")
    (fleet.folder / "ctl/orin/reboot").touch()
    eventually(lambda: fleet.read("orin", "proc/sys/vm/swappiness") == "60")
    eventually(lambda: not (fleet.folder / "ctl/orin/reboot").exists())


def test_a_read_takes_less_than_a_millisecond(fuse):
    path = fuse.path("king", SOC)
    times = []
    for _ in range(100):
        start = time.perf_counter()
        handle = os.open(path, os.O_RDONLY)
        os.read(handle, 100)
        os.close(handle)
        times.append(time.perf_counter() - start)
    assert sorted(times)[50] < 0.001
