"""The drivers of fans: each sets, and each proves it or says why not."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from fake_boards import Fleet

from boardbench.errors import InputError, RigError
from boardbench.inventory import Board, Cooling
from boardbench.matrix.cooling import Look, Operator, driver_of, drivers_of

SEEN: dict[str, Any] = {"pwm": 255, "rpm": [5900, 6000], "policy": "user_space", "units": [], "read": None}
JETSON = {"name": "pwmfan", "tachometer": "pwm_tach", "zone": "tj-thermal"}


def board(driver: str, options: Mapping[str, object] | None = None) -> Board:
    return dataclasses.replace(Fleet("king").boards[0], cooling=Cooling(driver, options or {}))


class Answering:
    """A door that gives these answers, the last one again and again."""

    def __init__(self, *answers: Mapping[str, Any]) -> None:
        self.answers = list(answers)
        self.calls: list[tuple[str, Mapping[str, Any]]] = []

    def call(self, verb: str, args: Mapping[str, Any], **_: Any) -> Mapping[str, Any]:
        self.calls.append((verb, dict(args)))
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def look(*answers: Mapping[str, Any]) -> Look:
    return Look(Answering(*(answers or ({},))), "campaign-x", 1e6, 5.0)  # type: ignore[arg-type]


def file_fan(tmp_path: Path) -> dict[str, object]:
    """A fan that is a file, switched by commands."""
    state = tmp_path / "fan"
    write = "import sys; open(sys.argv[1], 'w').write(sys.argv[2])"
    read = "import sys; print(open(sys.argv[1]).read())"
    return {
        "active": [sys.executable, "-c", write, str(state), "active"],
        "fanless": [sys.executable, "-c", write, str(state), "fanless"],
        "read": [sys.executable, "-c", read, str(state)],
    }


def person(answer: bool, *, phases: tuple[str, ...] = (), how: str = "terminal") -> tuple[Operator, list[str]]:
    asked: list[str] = []

    def ask(question: str) -> bool:
        asked.append(question)
        return answer

    return Operator("ann", how, ask, phases), asked


def test_the_virtual_fan_is_a_setting_that_the_board_reads_back() -> None:
    driver = driver_of(board("virtual"), None)
    values = [driver.set(phase)[0]["args"] for phase in ("active", "fanless")]
    assert values == [
        {"path": "/run/boardbench-virtual/fan", "value": "1"},
        {"path": "/run/boardbench-virtual/fan", "value": "0"},
    ]


@pytest.mark.parametrize(("changed", "ok"), [(0, True), (1, False)])
def test_the_virtual_fan_is_verified_by_a_dry_run(changed: int, ok: bool) -> None:
    there = look({"recap": {"ok": 1 - changed, "changed": changed, "skipped": 0, "failed": 0}})
    seen = driver_of(board("virtual"), None).verify("fanless", there)
    assert (seen["gate"], seen["ok"]) == ("cooling", ok)
    assert there.door.calls[0][1]["check"] is True  # type: ignore[attr-defined]


def test_a_jetsons_fan_is_taken_from_its_other_owners_before_it_is_set() -> None:
    steps = driver_of(board("hwmon", JETSON), None).set("fanless")
    assert [(step["resource"], step["args"]) for step in steps] == [
        ("unit", {"name": "nvfancontrol.service", "active": False}),
        ("unit_mask", {"name": "nvfancontrol.service"}),
        ("fan", {"hwmon": "pwmfan", "level": 0, "zone": "tj-thermal"}),
    ]


def test_a_pwm_file_is_taken_from_the_kernel_before_it_is_set() -> None:
    path = "/sys/class/hwmon/hwmon*/pwm1"
    driver = driver_of(board("hwmon", {"path": path, "enable_path": f"{path}_enable", "active": 200}), None)
    assert [step["args"] for step in driver.set("active")] == [
        {"path": f"{path}_enable", "value": "1"},
        {"path": path, "level": 200},
    ]


@pytest.mark.parametrize(
    ("phase", "change", "why"),
    [
        ("active", {}, ""),
        ("fanless", {"pwm": 0, "rpm": [0, 0]}, ""),
        ("active", {"pwm": 120}, "reads 120, not 255"),
        ("active", {"pwm": {"missing": "EIO"}}, "EIO"),
        ("active", {"policy": "step_wise"}, "the kernel holds the fan"),
        ("active", {"units": [{"unit": "nvfancontrol.service", "exists": True, "active": True}]}, "steers the fan"),
        ("active", {"rpm": [6000, 0]}, "does not turn"),
        ("fanless", {"pwm": 0, "rpm": [0, 700]}, "turns at 700 rpm though it is off"),
        ("active", {"rpm": [6000, {"missing": "EAGAIN"}]}, "tachometer cannot be read"),
        ("active", {"rpm": None}, "tachometer cannot be read"),
    ],
)
def test_a_fan_with_a_tachometer_is_proved_by_it(phase: str, change: dict[str, Any], why: str) -> None:
    seen = driver_of(board("hwmon", JETSON), None).verify(phase, look({**SEEN, **change}))
    assert seen["ok"] is (why == "")
    assert why in seen["why"]
    assert seen["saw"]["rpm"] == {**SEEN, **change}["rpm"]


def test_a_fan_that_still_runs_down_is_looked_at_again() -> None:
    off = {**SEEN, "pwm": 0}
    there = look({**off, "rpm": [900, 400]}, {**off, "rpm": [0, 0]})
    assert driver_of(board("hwmon", JETSON), None).verify("fanless", there)["ok"] is True


def test_a_fan_without_a_tachometer_is_proved_by_its_level_alone() -> None:
    driver = driver_of(board("hwmon", {"path": "/sys/class/hwmon/hwmon0/pwm1"}), None)
    assert driver.verify("active", look({**SEEN, "rpm": None, "policy": None}))["ok"] is True


def test_a_manual_fan_needs_a_person_before_anything_starts() -> None:
    with pytest.raises(InputError, match=r"no terminal.*--confirm-phase active"):
        drivers_of([board("manual")], ["active"], None)


@pytest.mark.parametrize("answer", [True, False])
def test_a_manual_fan_counts_only_when_confirmed(answer: bool) -> None:
    operator, asked = person(answer)
    driver = driver_of(board("manual", {"hint": "the left one"}), operator)
    if answer:
        assert driver.set("fanless") == []
        seen = driver.verify("fanless", look())
        assert (seen["ok"], seen["saw"]["operator"], seen["saw"]["how"]) == (True, "ann", "terminal")
    else:
        with pytest.raises(RigError, match="nobody confirmed"):
            driver.set("fanless")
        assert driver.verify("fanless", look())["ok"] is False
    assert all(word in asked[0] for word in ("OFF", "king", "the left one"))


def test_what_was_confirmed_on_the_command_line_is_not_asked_and_is_noted_so() -> None:
    operator, asked = person(False, phases=("fanless",), how="argument")
    driver = drivers_of([board("manual")], ["fanless"], operator)["king"]
    assert driver.set("fanless") == []
    assert driver.verify("fanless", look())["saw"]["how"] == "argument"
    assert asked == []


def test_one_confirmation_is_not_one_for_both_phases() -> None:
    operator, _ = person(False, phases=("fanless",), how="argument")
    with pytest.raises(InputError, match="--confirm-phase active"):
        drivers_of([board("manual")], ["active", "fanless"], operator)


def test_a_confirmation_is_used_up_once_somebody_has_switched() -> None:
    operator, asked = person(True, phases=("fanless",))
    driver = driver_of(board("manual"), operator)
    for phase in ("fanless", "active", "fanless"):
        driver.set(phase)
    assert len(asked) == 2


def test_a_command_fan_is_read_back(tmp_path: Path) -> None:
    driver = driver_of(board("command", file_fan(tmp_path)), None)
    driver.set("fanless")
    assert driver.verify("fanless", look())["saw"]["read"] == "fanless"


def test_a_command_fan_that_did_not_switch_is_found(tmp_path: Path) -> None:
    options = file_fan(tmp_path) | {"fanless": [sys.executable, "-c", "pass"]}
    driver = driver_of(board("command", options), None)
    driver.set("active")
    driver.set("fanless")
    seen = driver.verify("fanless", look())
    assert seen["ok"] is False
    assert "not fanless" in seen["why"]


def test_a_command_on_the_board_is_a_step_and_is_read_there(tmp_path: Path) -> None:
    options = file_fan(tmp_path) | {"where": "board"}
    driver = driver_of(board("command", options), None)
    assert [step["resource"] for step in driver.set("active")] == ["command"]
    assert not (tmp_path / "fan").exists()
    there = look({"read": "active\n"})
    assert driver.verify("active", there)["ok"] is True
    assert there.door.calls == [("fan", {"read": options["read"]})]  # type: ignore[attr-defined]


def test_a_command_that_fails_or_is_not_there_is_an_error_of_the_rig(tmp_path: Path) -> None:
    for argv in ([sys.executable, "-c", "raise SystemExit(3)"], [str(tmp_path / "none")]):
        with pytest.raises(RigError, match="king"):
            driver_of(board("command", file_fan(tmp_path) | {"active": argv}), None).set("active")


@pytest.mark.parametrize(
    ("driver", "options"),
    [
        ("hwmon", {}),
        ("hwmon", {"name": "pwmfan", "path": "/sys/x"}),
        ("command", {"active": "turn on"}),
        ("http", {"device": "shely", "address": "http://192.0.2.1"}),
        ("http", {"device": "shelly"}),
        ("virtul", {}),
    ],
)
def test_a_mistake_in_the_inventory_is_found_before_the_first_run(driver: str, options: dict[str, object]) -> None:
    with pytest.raises(InputError, match=r"lab\.yml:3"):
        drivers_of([board(driver, options)], ["active", "fanless"], None)
