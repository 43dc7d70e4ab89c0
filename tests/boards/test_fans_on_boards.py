"""A Jetson's fan by hwmon: taken from its daemon and from the kernel, set, proved by its tachometer, and given back."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest

from boardbench.board import Door
from boardbench.inventory import Cooling
from boardbench.matrix.cooling import HwmonFan, Look
from boardbench.virtual.fleet import Fleet

from .rig import TIME_SCALE, board_of, ssh

pytestmark = pytest.mark.boards

SCOPE = "test-fan"
UNIT = "/etc/systemd/system/nvfancontrol.service"
DAEMON = """[Unit]
Description=the stock fan daemon
[Service]
ExecStart=/usr/bin/python3 -c 'import time; time.sleep(10000)'
[Install]
WantedBy=multi-user.target
"""
OPTIONS = {"name": "pwmfan", "tachometer": "pwm_tach", "zone": "tj-thermal"}


class Jetson:
    """The fan's driver, and a door to apply its steps."""

    def __init__(self, fleet: Fleet) -> None:
        board = dataclasses.replace(board_of(fleet, "jetson"), cooling=Cooling("hwmon", OPTIONS))
        self.fleet = fleet
        self.driver = HwmonFan(board)
        self.door = Door.open(board, fleet.known_hosts)
        self.look = Look(self.door, SCOPE, TIME_SCALE, 60.0)

    def apply(self, phase: str) -> dict[str, Any]:
        args = {"scope": SCOPE, "steps": self.driver.set(phase), "check": False, "diff": False}
        recap: dict[str, Any] = self.door.call("apply", args, deadline_s=60.0)["recap"]  # type: ignore[assignment]
        return recap

    def restore(self) -> list[dict[str, Any]]:
        done: list[dict[str, Any]] = self.door.call("restore", {"scope": SCOPE}, deadline_s=60.0)["restored"]  # type: ignore[assignment]
        return done

    def read(self, path: str) -> str:
        return ssh(self.fleet, "jetson", "cat", path).out

    def daemon(self) -> str:
        return ssh(self.fleet, "jetson", "systemctl", "is-active", "nvfancontrol.service").out


@pytest.fixture
def jetson(bwrap_fleet: Fleet) -> Iterator[Jetson]:
    made = Jetson(bwrap_fleet)
    assert ssh(bwrap_fleet, "jetson", "tee", UNIT, stdin=DAEMON).code == 0
    assert ssh(bwrap_fleet, "jetson", "systemctl", "start", "nvfancontrol.service").code == 0
    yield made
    made.restore()
    ssh(bwrap_fleet, "jetson", "systemctl", "stop", "nvfancontrol.service")
    ssh(bwrap_fleet, "jetson", "rm", UNIT)
    made.door.close()


def test_the_fan_is_held_in_both_phases_and_proved_by_its_turns(jetson: Jetson) -> None:
    assert jetson.daemon() == "active"
    for phase, turns in (("fanless", False), ("active", True)):
        assert jetson.apply(phase)["failed"] == 0
        seen = jetson.driver.verify(phase, jetson.look)
        assert seen["ok"] is True, seen
        assert [value > 0 for value in seen["saw"]["rpm"]] == [turns, turns]
        assert seen["saw"]["units"] == [{"unit": "nvfancontrol.service", "exists": True, "active": False}]
    ssh(jetson.fleet, "jetson", "systemctl", "start", "nvfancontrol.service")
    assert jetson.daemon() != "active", "the mask does not hold"


def test_everything_about_the_fan_is_given_back(jetson: Jetson) -> None:
    policy = jetson.read("/sys/class/thermal/thermal_zone8/policy")
    jetson.apply("fanless")
    assert jetson.daemon() != "active"
    restored = jetson.restore()
    assert [entry for entry in restored if not entry["ok"]] == []
    assert jetson.read("/sys/class/thermal/thermal_zone8/policy") == policy
    assert jetson.daemon() == "active"


def test_a_fan_that_somebody_turned_on_again_is_seen(jetson: Jetson) -> None:
    jetson.apply("fanless")
    ssh(jetson.fleet, "jetson", "tee", "/sys/class/hwmon/hwmon0/pwm1", stdin="180\n")
    seen = jetson.driver.verify("fanless", jetson.look)
    assert seen["ok"] is False
    assert "180" in seen["why"]
