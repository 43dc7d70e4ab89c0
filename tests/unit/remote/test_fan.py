"""A fan on a board: found by name, taken from its other owners, set, looked at, put back."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from boardbench.remote import fan as fan_verb
from boardbench.remote.failures import Failure
from boardbench.remote.resources import fan, unit_mask
from boardbench.remote.restore import restore_scope

from .fakes import FakeCall
from .trees import Tree

UNIT = "nvfancontrol.service"
ARGS = {"hwmon": "pwmfan", "zone": "tj-thermal", "level": 0}


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """A Jetson's fan: the numbers are not the ones that a guess would take."""
    made = Tree(tmp_path)
    made.write("sys/class/hwmon/hwmon0/name", "ina3221\n")
    made.write("sys/class/hwmon/hwmon4/name", "pwmfan\n")
    made.write("sys/class/hwmon/hwmon4/pwm1", "65\n")
    made.write("sys/class/hwmon/hwmon7/name", "pwm_tach\n")
    made.write("sys/class/hwmon/hwmon7/rpm", "1750\n")
    made.write("sys/class/thermal/thermal_zone0/type", "cpu-thermal\n")
    made.write("sys/class/thermal/thermal_zone8/type", "tj-thermal\n")
    made.write("sys/class/thermal/thermal_zone8/policy", "step_wise\n")
    return made


def test_the_level_is_set_after_the_kernel_was_told_to_leave_it(tree: Tree) -> None:
    changes = fan.plan(ARGS, tree.system(None)).changes
    assert [(change.what, change.before, change.after) for change in changes] == [
        ("/sys/class/thermal/thermal_zone8/policy", "step_wise", "user_space"),
        ("/sys/class/hwmon/hwmon4/pwm1", "65", "0"),
    ]
    fan.apply(ARGS, tree.system())
    assert fan.plan(ARGS, tree.system()).changes == ()
    assert tree.read("sys/class/hwmon/hwmon4/pwm1") == "0\n"


def test_the_level_is_put_back_before_the_kernel_takes_the_fan_again(tree: Tree) -> None:
    fan.apply(ARGS, tree.system())
    restored = restore_scope(tree.system())
    assert [entry["what"] for entry in restored] == [
        "/sys/class/hwmon/hwmon4/pwm1", "/sys/class/thermal/thermal_zone8/policy",
    ]  # fmt: skip
    assert all(entry["ok"] for entry in restored)
    assert tree.read("sys/class/hwmon/hwmon4/pwm1") == "65\n"
    assert tree.read("sys/class/thermal/thermal_zone8/policy") == "step_wise\n"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"level": 256}, "level is 256"),
        ({"level": True}, "level is True"),
        ({"hwmon": "pwm-fan"}, "there is no hwmon called 'pwm-fan'"),
        ({"zone": "tj"}, "there is no thermal_zone called 'tj'"),
        ({"hwmon": None}, "neither hwmon nor path"),
    ],
)
def test_what_is_not_there_or_not_a_level_is_refused(tree: Tree, change: dict[str, Any], words: str) -> None:
    with pytest.raises(Failure, match=words):
        fan.plan({**ARGS, **change}, tree.system(None))


def test_two_hwmons_of_one_name_are_not_guessed_between(tree: Tree) -> None:
    tree.write("sys/class/hwmon/hwmon9/name", "pwmfan\n")
    with pytest.raises(Failure, match="several hwmon"):
        fan.plan(ARGS, tree.system(None))


def test_a_mask_is_for_units_that_are_there_and_goes_again(tree: Tree) -> None:
    assert unit_mask.plan({"name": UNIT}, tree.system(None)).changes == ()
    tree.units.vendor.add(UNIT)
    assert len(unit_mask.plan({"name": UNIT}, tree.system(None)).changes) == 1
    unit_mask.apply({"name": UNIT}, tree.system())
    folder = Path(tree.places.units_runtime) / f"{UNIT}.d"
    (drop_in,) = folder.iterdir()
    assert "ConditionPathExists=!/\n" in drop_in.read_text()
    assert unit_mask.plan({"name": UNIT}, tree.system(None)).changes == ()
    (entry,) = restore_scope(tree.system())
    assert entry == {"what": f"mask of {UNIT}", "before": "masked", "after": "may start", "ok": True, "why": ""}
    assert not folder.exists()


def test_a_mask_that_was_there_before_stays(tree: Tree) -> None:
    tree.units.vendor.add(UNIT)
    unit_mask.apply({"name": UNIT}, tree.system("another"))
    tree.system().note("unit_mask", UNIT)
    assert [entry["ok"] for entry in restore_scope(tree.system())] == [True]
    assert unit_mask.plan({"name": UNIT}, tree.system(None)).changes == ()


def test_the_verb_looks_twice_at_the_tachometer_and_changes_nothing(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fan_verb.time, "sleep", lambda _: tree.write("sys/class/hwmon/hwmon7/rpm", "0\n"))
    before = {name: tree.read(f"sys/class/{name}") for name in ("hwmon/hwmon4/pwm1", "thermal/thermal_zone8/policy")}
    args = {"hwmon": "pwmfan", "tachometer": "pwm_tach", "zone": "tj-thermal", "apart_s": 5.0}
    found = fan_verb.fan(args, FakeCall(tree.places))  # type: ignore[arg-type]
    assert found == {"pwm": 65, "rpm": [1750, 0], "policy": "step_wise", "units": [], "read": None}
    assert before == {name: tree.read(f"sys/class/{name}") for name in before}


def test_the_verb_runs_a_command_that_reads(tree: Tree) -> None:
    argv = [sys.executable, "-c", "print('active')"]
    assert fan_verb.fan({"read": argv}, FakeCall(tree.places))["read"] == "active"  # type: ignore[arg-type]
    with pytest.raises(Failure, match="exit code 3"):
        fan_verb.fan({"read": [*argv[:2], "raise SystemExit(3)"]}, FakeCall(tree.places))  # type: ignore[arg-type]
    with pytest.raises(Failure, match="absolute path"):
        fan_verb.fan({"read": ["python3"]}, FakeCall(tree.places))  # type: ignore[arg-type]


@pytest.mark.parametrize("args", [{"level": 1}, {"tachometer": "pwm_tach", "apart_s": 3600}, {"hwmon": "x"}])
def test_the_verb_refuses_what_it_does_not_know(tree: Tree, args: dict[str, Any]) -> None:
    with pytest.raises(Failure):
        fan_verb.fan(args, FakeCall(tree.places))  # type: ignore[arg-type]
