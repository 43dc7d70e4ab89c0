"""Dumps of kernel files, texts of the RKNPU driver, inventories of boards: facts, and reads that failed by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from boardbench.imports import rknpu
from boardbench.imports.model import FactValue, Missing, Parsed
from boardbench.imports.registry import read


def imported(path: Path, text: str, wanted: str, name: str = "a.txt") -> Parsed:
    (path / name).write_text(text)
    found = read(path / name)
    assert found.format == wanted
    return found.parsed


def facts(found: Parsed) -> dict[str, FactValue]:
    return {fact.name: fact.value for fact in found.facts}


ZONE = "/sys/class/thermal/thermal_zone0"
GPU = "/sys/class/devfreq/17000000.gpu"


def test_a_dump_gives_values_in_the_unit_of_each_file(tmp_path: Path) -> None:
    text = (
        f"# collected by hand\n{ZONE}/type\tcpu-thermal\n{ZONE}/temp\t44156\n{GPU}/cur_freq\t306000000\n"
        f"{GPU}/available_frequencies\t306000000 408000000\n/proc/device-tree/model\tA board\\n\n"
    )
    values = facts(imported(tmp_path, text, "sysfs"))
    assert values[f"{ZONE}/temp"] == 44.156
    assert values[f"{GPU}/cur_freq"] == 306e6
    assert values[f"{GPU}/available_frequencies"] == (306e6, 408e6)
    assert values["/proc/device-tree/model"] == "A board"


def test_grep_and_head_dumps_are_read_too(tmp_path: Path) -> None:
    grep = facts(imported(tmp_path, f"{ZONE}/type:soc-thermal\n{ZONE}/temp:45000\n", "sysfs", "g.txt"))
    head = facts(
        imported(tmp_path, f"==> {ZONE}/type <==\nsoc-thermal\n\n==> {ZONE}/temp <==\n45000\n", "sysfs", "h.txt")
    )
    assert grep == head == {f"{ZONE}/type": "soc-thermal", f"{ZONE}/temp": 45.0}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "cat: temp: Resource temporarily unavailable",
        "read() fails EAGAIN (errno 11)",
        "Invalid argument",
        "-256000",
    ],
)
def test_a_read_that_failed_is_missing_and_costs_only_itself(tmp_path: Path, text: str) -> None:
    dump = f"{ZONE}/type\tcv0-thermal\n{ZONE}/temp\t{text}\n{GPU}/cur_freq\t306000000\n"
    found = imported(tmp_path, dump, "sysfs")
    assert isinstance(facts(found)[f"{ZONE}/temp"], Missing)
    assert facts(found)[f"{GPU}/cur_freq"] == 306e6
    assert [fault.code for fault in found.faults] == ["failed-read"]


def test_permission_denied_is_its_own_word_and_a_disabled_zone_no_fault(tmp_path: Path) -> None:
    dump = f"{GPU}/min_freq\tcat: min_freq: Permission denied\n{ZONE}/mode\tdisabled\n{ZONE}/temp\tInvalid argument\n"
    found = imported(tmp_path, dump, "sysfs")
    assert [fault.code for fault in found.faults] == ["unprivileged-read"]
    assert isinstance(facts(found)[f"{ZONE}/temp"], Missing)


def test_a_zone_that_is_no_known_temperature_stays_text(tmp_path: Path) -> None:
    values = facts(imported(tmp_path, f"{ZONE}/type\tvoltage-sensor\n{ZONE}/temp\t5200\n", "sysfs"))
    assert values[f"{ZONE}/temp"] == "5200"


def test_a_path_that_is_there_twice_has_no_value(tmp_path: Path) -> None:
    found = imported(tmp_path, f"{GPU}/cur_freq\t1\n{GPU}/cur_freq\t2\n{GPU}/min_freq\t3\n", "sysfs")
    assert f"{GPU}/cur_freq" not in facts(found)
    assert [fault.code for fault in found.faults] == ["repeated-key"]


@pytest.mark.parametrize(
    ("text", "what", "expected"),
    [
        ("RKNPU driver: v0.9.8\n", "", {"rknpu_version": "0.9.8"}),
        ("NPU load:  Core0:  9%, Core1:  42%,\n", "", {"npu_core0_load_percent": 9.0, "npu_core1_load_percent": 42.0}),
        ("NPU load:  0%\\n", "", {"npu_load_percent": 0.0}),
        ("off\n", "power", {"npu_power": "off"}),
        ("950000000\n", "freq", {"npu_cur_hz": 950e6}),
        ("825000\n", "volt", {"npu_microvolts": 825e3}),
    ],
)
def test_texts_of_the_driver(text: str, what: str, expected: dict[str, FactValue]) -> None:
    assert {value.name: value.value for value in rknpu.readings(text, what)} == expected


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("NPU load:  Core0: 99%, Core1: 429496%\n", "failed-read"),
        ("NPU load:  Core0: 20000%, Core1: 99%,\n", "failed-read"),
        ("cat: /sys/kernel/debug/rknpu/load: Permission denied\n", "unprivileged-read"),
        ("cat: /sys/kernel/debug/rknpu/load: No such file or directory\n", "failed-read"),
        ("NPU load:  Core0: many\n", "malformed-file"),
    ],
)
def test_a_load_that_cannot_be_is_missing_and_named(text: str, code: str) -> None:
    found = rknpu.readings(text)
    assert [value.code for value in found if value.code] == [code]
    assert all(isinstance(value.value, Missing) for value in found if value.code)


def test_a_file_of_driver_texts(tmp_path: Path) -> None:
    found = imported(tmp_path, "# what<TAB>text\nload\tNPU load:  Core0:  5%,\\n\nfreq\t300000000\\n\n", "rknpu")
    assert facts(found) == {"load.npu_core0_load_percent": 5.0, "freq.npu_cur_hz": 300e6}


INVENTORY = """# --- identity ---
hostname=king
serial=<redacted>
# --- cpu ---
cpu_model=UNKNOWN
cpufreq_policy4_max_khz=2208000
# --- network ---
net_eth0_speed=-1
net_eth1_speed=2500
# --- npu ---
rknpu_version=UNKNOWN
rknpu_load=UNKNOWN
# --- thermal ---
thermal_thermal_zone0_type=soc-thermal
thermal_thermal_zone0_temp_c=47.2
thermal_thermal_zone1_type=npu-thermal
thermal_thermal_zone1_temp_c=0.0
"""


def test_an_inventory_names_zones_by_type_and_keeps_unknown_apart_from_none(tmp_path: Path) -> None:
    found = imported(tmp_path, INVENTORY, "node-info")
    values = facts(found)
    assert values["king.soc-thermal_celsius"] == 47.2
    assert values["king.cpufreq_policy4_max_khz"] == 2208e3
    assert values["king.net_eth1_speed"] == 2500.0
    missing = {name for name, value in values.items() if isinstance(value, Missing)}
    assert missing == {
        f"king.{name}"
        for name in ("serial", "cpu_model", "net_eth0_speed", "rknpu_version", "rknpu_load", "npu-thermal_celsius")
    }
    assert [fault.code for fault in found.faults] == ["unprivileged-read"]


def test_a_key_of_an_inventory_that_is_there_twice_has_no_value(tmp_path: Path) -> None:
    found = imported(tmp_path, INVENTORY + "cpu_model=A\n", "node-info")
    assert "king.cpu_model" not in facts(found)
    assert "repeated-key" in {fault.code for fault in found.faults}
