"""Caps as they are in force: read from the board's facts and held against what the arm wants."""

from __future__ import annotations

from typing import Any

from boardbench.matrix.factors import Setting
from boardbench.matrix.readback import read_caps

FOLDER = "/sys/devices/system/cpu/cpufreq"


def cap(policy: str, khz: int) -> Setting:
    return Setting("sysfs", {"path": f"{FOLDER}/{policy}/scaling_max_freq", "value": str(khz)}, "m.yml:1")


def facts(**max_khz: Any) -> dict[str, Any]:
    policies = [{"policy": name, "max_khz": value, "cur_khz": 408000} for name, value in max_khz.items()]
    return {"cpu_policies": policies}


def test_a_cap_that_reads_as_wanted_is_ok() -> None:
    found = read_caps([cap("policy0", 600000), cap("policy4", 600000)], facts(policy0=600000, policy4=600000))
    assert [(one["policy"], one["reads_khz"], one["ok"]) for one in found] == [
        ("policy0", 600000, True), ("policy4", 600000, True),
    ]  # fmt: skip


def test_a_cap_that_heat_or_a_hand_has_changed_is_not() -> None:
    assert [one["ok"] for one in read_caps([cap("policy4", 2208000)], facts(policy4=1800000))] == [False]


def test_a_policy_that_is_gone_or_cannot_be_read_is_missing_and_not_zero() -> None:
    for seen in (facts(), facts(policy4={"missing": "EIO"}), None):
        (found,) = read_caps([cap("policy4", 600000)], seen)
        assert found["ok"] is False
        assert "missing" in found["reads_khz"]


def test_other_settings_are_no_caps() -> None:
    assert read_caps([Setting("sysctl", {"name": "vm.swappiness", "value": "10"}, "m.yml:2")], facts()) == []
