"""Facts: pure parsers by cases, and reading from a tree of files that is as awkward as real boards are."""

from __future__ import annotations

import errno
import json
import os
import stat
import time
from pathlib import Path
from typing import Any

import pytest

from boardbench.remote import facts, parsers, reading, sensors
from boardbench.remote.reading import Missing

from .trees import Tree

CASES = json.loads((Path(__file__).parent / "cases/parsers.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['parser']}: {case['about']}")
def test_parser_case(case: dict[str, Any]) -> None:
    parser = getattr(parsers if hasattr(parsers, case["parser"]) else reading, case["parser"])
    given = case["bytes_text"].encode() if "bytes_text" in case else case.get("text", case.get("list"))
    if "missing" in case:
        with pytest.raises(Missing) as caught:
            parser(given)
        assert case["missing"] in caught.value.why
    else:
        assert parser(given) == case["value"]


@pytest.mark.parametrize(
    ("name", "node", "kind"),
    [
        ("27700000.npu", "npu", "npu"),
        ("17000000.gpu", None, "gpu"),
        ("17000000.gpu", "gpu", "gpu"),
        ("17000000.ga10b", "ga10b", "gpu"),
        ("57000000.gpu", "gb10b", "gpu"),
        ("gpu-gpc-0", None, "gpu"),
        ("fdab0000.rknpu", "npu@fdab0000", "npu"),
        ("dmc", "dmc", None),
    ],
)
def test_a_devfreq_device_is_known_by_its_node_or_name(name: str, node: str | None, kind: str | None) -> None:
    assert parsers.devfreq_kind(name, node) == kind


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def zone(tree: Tree, number: int, kind: str, temp: str | None, mode: str | None = None) -> None:
    folder = f"sys/class/thermal/thermal_zone{number}"
    tree.write(f"{folder}/type", kind + "\n")
    if temp is not None:
        tree.write(f"{folder}/temp", temp)
    if mode is not None:
        tree.write(f"{folder}/mode", mode + "\n")


def test_zones_are_found_by_type_and_one_bad_zone_costs_only_itself(tree: Tree) -> None:
    zone(tree, 10, "npu-thermal", "41538\n")
    zone(tree, 2, "soc-thermal", "40615\n")
    zone(tree, 3, "cv0-thermal", None)
    zone(tree, 4, "gpu-thermal", "-256000")
    zone(tree, 5, "soc-thermal", "")
    zone(tree, 6, "brand-new-sensor", "50000")
    zone(tree, 7, "off-thermal", "0", mode="disabled")
    found = sensors.thermal(tree.places)
    assert [(entry["zone"], entry["name"]) for entry in found] == [
        ("thermal_zone2", "soc-thermal"),
        ("thermal_zone3", "cv0-thermal"),
        ("thermal_zone4", "gpu-thermal"),
        ("thermal_zone5", "soc-thermal_2"),
        ("thermal_zone6", "brand-new-sensor"),
        ("thermal_zone7", "off-thermal"),
        ("thermal_zone10", "npu-thermal"),
    ]
    readings = {entry["name"]: entry["celsius"] for entry in found}
    assert readings["soc-thermal"] == 40.615
    assert readings["npu-thermal"] == 41.538
    assert readings["brand-new-sensor"] == 50.0
    assert readings["cv0-thermal"] == {"missing": "not there"}
    assert readings["soc-thermal_2"] == {"missing": "empty"}
    assert readings["off-thermal"] == {"missing": "zone disabled"}
    assert "sensor off" in readings["gpu-thermal"]["missing"]


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.EINVAL, errno.ENODATA, errno.EIO, errno.ENXIO])
def test_a_read_that_fails_is_missing_with_its_errno(tree: Tree, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    path = tree.write("sys/value", "1")

    def fail(*_: object) -> bytes:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(reading.os, "read", fail)
    found = reading.number(str(path))
    assert reading.is_missing(found)
    assert isinstance(found, dict)
    assert errno.errorcode[number] in found["missing"]


def test_an_empty_pipe_is_missing_and_does_not_wait(tree: Tree) -> None:
    path = tree.root / "fifo"
    os.mkfifo(path)
    keeper = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    try:
        assert reading.number(str(path)) == {"missing": "sensor off (EAGAIN)"}
    finally:
        os.close(keeper)


def test_a_read_that_hangs_costs_only_its_own_value(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    good, bad = tree.write("sys/good", "300000000"), tree.write("sys/bad", "1")
    real = reading.text

    def hang_on_bad(path: str) -> str:
        if path.endswith("bad"):
            time.sleep(30)
        return real(path)

    monkeypatch.setattr(reading, "text", hang_on_bad)
    started = time.monotonic()
    found = reading.texts_apart([str(good), str(bad)], 0.3)
    assert time.monotonic() - started < 3
    assert found == {str(good): "300000000", str(bad): {"missing": "no answer within 0.3 s"}}


def test_cpu_policies_come_with_their_ladder(tree: Tree) -> None:
    base = "sys/devices/system/cpu/cpufreq/policy4/"
    for name, content in {
        "related_cpus": "4 5 6 7",
        "scaling_governor": "performance",
        "scaling_cur_freq": "2208000",
        "scaling_min_freq": "408000",
        "cpuinfo_max_freq": "2208000",
        "scaling_available_frequencies": "408000 816000 2208000 ",
    }.items():
        tree.write(base + name, content + "\n")
    (policy,) = sensors.cpu_policies(tree.places)
    assert policy == {
        "policy": "policy4",
        "cpus": [4, 5, 6, 7],
        "governor": "performance",
        "cur_khz": 2208000,
        "min_khz": 408000,
        "max_khz": {"missing": "not there"},
        "hw_max_khz": 2208000,
        "available_khz": [408000, 816000, 2208000],
    }


def test_devfreq_devices_are_found_in_the_class_folder(tree: Tree) -> None:
    base = "sys/class/devfreq/27700000.npu/"
    tree.write(base + "cur_freq", "300000000\n")
    tree.write(base + "governor", "rknpu_ondemand\n")
    tree.write(base + "available_frequencies", "300000000 950000000\n")
    tree.write(base + "device/of_node/name", "npu\0")
    (device,) = sensors.devfreq(tree.places)
    assert device == {
        "name": "27700000.npu",
        "kind": "npu",
        "governor": "rknpu_ondemand",
        "cur_hz": 300000000,
        "min_hz": {"missing": "not there"},
        "max_hz": {"missing": "not there"},
        "available_hz": [300000000, 950000000],
    }


def ina(tree: Tree) -> None:
    base = "sys/class/hwmon/hwmon1/"
    tree.write(base + "name", "ina3221")
    for channel, label, millivolts, milliamperes in ((1, "VDD_IN", "5016", "1000"), (2, "VDD_CPU_GPU_CV", "5000", "")):
        tree.write(f"{base}in{channel}_label", label)
        tree.write(f"{base}in{channel}_input", millivolts)
        tree.write(f"{base}curr{channel}_input", milliamperes)
    tree.write(base + "in7_label", "sum of shunt voltages")
    tree.write(base + "curr7_input", "3")


def test_power_is_volts_times_amperes_and_missing_when_either_is(tree: Tree) -> None:
    ina(tree)
    assert sensors.power_rails(tree.places) == [
        {"label": "VDD_IN", "volts": 5.016, "amperes": 1.0, "watts": 5.016},
        {"label": "VDD_CPU_GPU_CV", "volts": 5.0, "amperes": {"missing": "empty"}, "watts": {"missing": "empty"}},
    ]


def test_the_input_voltage_comes_from_the_supply_or_the_rail_of_that_name(tree: Tree) -> None:
    assert sensors.input_volts(tree.places, []) == {"missing": "no sensor for the input voltage"}
    ina(tree)
    assert sensors.input_volts(tree.places, sensors.power_rails(tree.places)) == 5.016
    tree.write("sys/class/power_supply/BAT0/type", "Battery")
    tree.write("sys/class/power_supply/BAT0/voltage_now", "3700000")
    tree.write("sys/class/power_supply/simple-vin/voltage_now", "5046000")
    assert sensors.input_volts(tree.places, []) == 5.046


def test_fans_are_found_whichever_driver_has_them(tree: Tree) -> None:
    tree.write("sys/class/hwmon/hwmon0/name", "pwmfan")
    tree.write("sys/class/hwmon/hwmon0/pwm1", "65")
    tree.write("sys/class/hwmon/hwmon3/name", "pwm_tach")
    tree.write("sys/class/hwmon/hwmon3/rpm", "0")
    tree.write("sys/class/hwmon/hwmon4/name", "nvme")
    assert sensors.fans(tree.places) == [
        {"name": "pwmfan", "pwm": 65, "rpm": {"missing": "no tachometer here"}},
        {"name": "pwm_tach", "pwm": {"missing": "no pwm here"}, "rpm": 0},
    ]


def test_the_facts_of_an_empty_board_are_missing_never_zero(tree: Tree) -> None:
    (tree.root / "proc").mkdir(exist_ok=True)
    found = facts.read_facts(tree.places, [])
    assert found["memory_total_bytes"] == {"missing": "not in meminfo"}
    assert found["uptime_s"] == {"missing": "not there"}
    assert found["serial"] is None
    assert found["compatible"] == []
    assert found["virtual"] is None
    assert found["nvpmodel"] is None


def test_identity_disks_and_the_virtual_board(tree: Tree) -> None:
    tree.write("proc/device-tree/compatible", b"nvidia,p3767-0005-super\0nvidia,tegra234\0")
    tree.write("proc/device-tree/serial-number", b"1421234567890\0")
    tree.write(
        "run/boardbench-virtual/status.json", '{"kind": "bwrap", "time_scale": 60.0, "sysfs": "fuse", "board": "x"}'
    )
    found = facts.read_facts(tree.places, ["/opt/not/yet"])
    assert found["compatible"] == ["nvidia,p3767-0005-super", "nvidia,tegra234"]
    assert found["serial"] == "1421234567890"
    assert found["virtual"] == {"kind": "bwrap", "time_scale": 60.0, "sysfs": "fuse"}
    assert found["boot_id"] == "boot-1"
    root, wanted = found["disks"]
    assert (root["path"], wanted["path"]) == ("/", "/opt/not/yet")
    assert wanted["total_bytes"] == root["total_bytes"] > wanted["free_bytes"] > 0
    assert wanted["read_only"] is False
    json.dumps(found, allow_nan=False)


def test_nvpmodel_is_asked_and_may_stay_silent(tree: Tree) -> None:
    tool = tree.write("usr/sbin/nvpmodel", "#!/bin/sh\necho 'NV Power Mode: 25W'\necho 1\n")
    assert facts.read_facts(tree.places, [])["nvpmodel"] is None
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    assert facts.read_facts(tree.places, [])["nvpmodel"] == "25W"
