"""Fans that the board itself switches: settings under the campaign's scope, so that the board puts them back."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from boardbench.errors import InputError, RigError
from boardbench.inventory import Board
from boardbench.matrix.cooling.base import Look, Step, evidence

VIRTUAL_FAN = "/run/boardbench-virtual/fan"
APART_S = 5.0
"""Board seconds between two looks at a tachometer: it lags the level by seconds."""
TRIES = 6
LEVELS = {"active": 255, "fanless": 0}
FAN_OWNERS = {"pwmfan": ("nvfancontrol.service",)}
"""Services that are known to write over this hwmon's level."""


def _step(board: Board, phase: str, resource: str, args: Mapping[str, object]) -> Step:
    named = args.get("path") or args.get("name") or args.get("hwmon")
    return {"id": f"cooling {phase} {resource} {named}", "resource": resource, "args": dict(args), "line": board.where}


def _holds(steps: list[Step], look: Look) -> Mapping[str, Any]:
    """What a dry run of the steps says: `changed` means that the board would have to be changed."""
    args = {"scope": look.scope, "steps": steps, "check": True, "diff": False, "stop_on_failure": True}
    recap = look.door.call("apply", args, deadline_s=look.deadline_s).get("recap")
    if not isinstance(recap, Mapping):
        raise RigError("the board does not say whether its fan is as it was set")
    return recap


@dataclass(frozen=True)
class VirtualFan:
    """The fan of a virtual board."""

    board: Board
    outside: bool = False

    def set(self, phase: str) -> list[Step]:
        """See `Driver`."""
        args = {"path": VIRTUAL_FAN, "value": "1" if phase == "active" else "0"}
        return [_step(self.board, phase, "sysfs", args)]

    def verify(self, phase: str, look: Look) -> Mapping[str, Any]:
        """See `Driver`."""
        recap = _holds(self.set(phase), look)
        ok = recap.get("changed") == 0 and recap.get("failed") == 0
        saw = {"driver": "virtual", "phase": phase, "recap": dict(recap)}
        return evidence(ok, saw, f"the fan is not as phase {phase} wants it")


@dataclass(frozen=True)
class HwmonFan:
    """A fan behind a PWM file, with or without a tachometer.

    Options: the hwmon by `name` (or its file by `path`); `active` (255) and `fanless` (0); `tachometer`, the hwmon that
    counts turns; `zone`, the thermal zone whose policy has to be `user_space`; `stop_units`, services that would write
    over the level; `enable_path` and `enable` (1), another file that takes the fan from the kernel.
    """

    board: Board
    outside: bool = False

    def __post_init__(self) -> None:
        path, name = self._option("path"), self._option("name")
        if (path is None) == (name is None) or (path is not None and not path.startswith("/")):
            raise InputError("cooling driver hwmon needs 'name', or an absolute 'path'", where=self.board.where)

    def _option(self, key: str) -> str | None:
        value = self.board.cooling.options.get(key)
        return value if isinstance(value, str) else None

    @property
    def units(self) -> list[str]:
        """Services that must not run while we hold the fan."""
        given = self.board.cooling.options.get("stop_units")
        if isinstance(given, list | tuple):
            return [str(unit) for unit in given]
        return list(FAN_OWNERS.get(self._option("name") or "", ()))

    def level(self, phase: str) -> int:
        """The PWM value of a phase."""
        value = self.board.cooling.options.get(phase, LEVELS[phase])
        return int(str(value))

    def set(self, phase: str) -> list[Step]:
        """See `Driver`. First whoever else steers the fan is stopped, then the level is written."""
        options, found = self.board.cooling.options, list[Step]()
        for unit in self.units:
            found.append(_step(self.board, phase, "unit", {"name": unit, "active": False}))
            found.append(_step(self.board, phase, "unit_mask", {"name": unit}))
        enable = self._option("enable_path")
        if enable is not None:
            args = {"path": enable, "value": str(options.get("enable", 1))}
            found.append(_step(self.board, phase, "sysfs", args))
        fan: dict[str, object] = {**self._place(), "level": self.level(phase)}
        if self._option("zone") is not None:
            fan["zone"] = self._option("zone")
        found.append(_step(self.board, phase, "fan", fan))
        return found

    def _place(self) -> dict[str, object]:
        name = self._option("name")
        return {"hwmon": name} if name is not None else {"path": self._option("path")}

    def verify(self, phase: str, look: Look) -> Mapping[str, Any]:
        """See `Driver`. A fan needs seconds to stop or to start: it is looked at until it has, or for half a minute."""
        args: dict[str, object] = {
            **self._place(),
            "tachometer": self._option("tachometer"),
            "zone": self._option("zone"),
            "units": self.units,
            "apart_s": max(0.2, APART_S / look.time_scale),
        }
        for attempt in range(1, TRIES + 1):
            seen = look.door.call("fan", args, deadline_s=look.deadline_s)
            why = self._wrong(phase, seen)
            if not why or attempt == TRIES:
                break
            time.sleep(float(str(args["apart_s"])))
        return evidence(not why, {"driver": "hwmon", "phase": phase, "wanted_level": self.level(phase), **seen}, why)

    def _wrong(self, phase: str, seen: Mapping[str, Any]) -> str:
        level, turns = self.level(phase), seen.get("rpm")
        if seen.get("pwm") != level:
            return f"the fan's level reads {_shown(seen.get('pwm'))}, not {level}"
        if self._option("zone") is not None and seen.get("policy") != "user_space":
            return f"the kernel holds the fan: policy {_shown(seen.get('policy'))}"
        running = [str(unit["unit"]) for unit in seen.get("units") or [] if unit.get("active") is True]
        if running:
            return f"{', '.join(running)} runs and steers the fan"
        if self._option("tachometer") is None:
            return ""
        if not isinstance(turns, list) or len(turns) != 2 or not all(isinstance(value, int | float) for value in turns):
            return f"the tachometer cannot be read: {_shown(turns)}"
        if level == 0 and any(turns):
            return f"the fan turns at {turns[-1]:g} rpm though it is off"
        if level > 0 and not all(turns):
            return f"the fan does not turn at level {level}"
        return ""


def _shown(value: object) -> str:
    if isinstance(value, Mapping) and "missing" in value:
        return f"nothing ({value['missing']})"
    return f"{value!r:.60}"
