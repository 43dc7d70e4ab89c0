"""The drivers of fans: each switches, and each proves it or fails."""

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
from boardbench.matrix.cooling import Operator, driver_of, drivers_of


def board(driver: str, options: Mapping[str, object] | None = None) -> Board:
    return dataclasses.replace(Fleet("king").boards[0], cooling=Cooling(driver, options or {}))


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


def test_the_virtual_fan_is_a_setting_that_the_board_reads_back() -> None:
    driver = driver_of(board("virtual"), None)
    values = [driver.steps(phase)[0]["args"] for phase in ("active", "fanless")]
    assert values == [
        {"path": "/run/boardbench-virtual/fan", "value": "1"},
        {"path": "/run/boardbench-virtual/fan", "value": "0"},
    ]
    assert driver.switch("active") is None


def test_a_pwm_fan_is_taken_from_the_kernel_before_it_is_set() -> None:
    path = "/sys/class/hwmon/hwmon*/pwm1"
    driver = driver_of(board("hwmon", {"path": path, "enable_path": f"{path}_enable", "active": 200}), None)
    assert [step["args"] for step in driver.steps("active")] == [
        {"path": f"{path}_enable", "value": "1"},
        {"path": path, "value": "200"},
    ]
    assert driver.steps("fanless")[-1]["args"] == {"path": path, "value": "0"}


def test_a_manual_fan_needs_a_person_before_anything_starts() -> None:
    with pytest.raises(InputError, match="no terminal"):
        drivers_of([board("manual")], ["active"], None)


@pytest.mark.parametrize("answer", [True, False])
def test_a_manual_fan_counts_only_when_confirmed(answer: bool) -> None:
    asked: list[str] = []

    def ask(question: str) -> bool:
        asked.append(question)
        return answer

    driver = driver_of(board("manual"), Operator("ann", "terminal", ask))
    if answer:
        evidence: Any = driver.switch("fanless")
        assert evidence["saw"]["operator"] == "ann"
    else:
        with pytest.raises(RigError, match="nobody confirmed"):
            driver.switch("fanless")
    assert "OFF" in asked[0]
    assert "king" in asked[0]


def test_a_command_fan_is_read_back(tmp_path: Path) -> None:
    driver = driver_of(board("command", file_fan(tmp_path)), None)
    evidence: Any = driver.switch("fanless")
    assert evidence["saw"]["read"] == "fanless"


def test_a_command_fan_that_did_not_switch_is_found(tmp_path: Path) -> None:
    options = file_fan(tmp_path) | {"fanless": [sys.executable, "-c", "pass"]}
    driver = driver_of(board("command", options), None)
    driver.switch("active")
    with pytest.raises(RigError, match="not fanless"):
        driver.switch("fanless")


def test_a_command_that_fails_or_is_not_there_is_an_error_of_the_rig(tmp_path: Path) -> None:
    for argv in ([sys.executable, "-c", "raise SystemExit(3)"], [str(tmp_path / "none")]):
        with pytest.raises(RigError, match="king"):
            driver_of(board("command", file_fan(tmp_path) | {"active": argv}), None).switch("active")


@pytest.mark.parametrize(("driver", "options"), [("hwmon", {}), ("command", {"active": "turn on"}), ("virtul", {})])
def test_a_mistake_in_the_inventory_is_found_before_the_first_run(driver: str, options: dict[str, object]) -> None:
    with pytest.raises(InputError, match=r"lab\.yml:3"):
        drivers_of([board(driver, options)], ["active", "fanless"], None)
