"""The fans: who switches them, and what proves it. Two functions a driver: `steps` and `switch`.

`steps` are settings that the board itself makes and reads back under the campaign's scope (and puts back at the end);
`switch` is what has to happen outside the board. The thermal log is checked against the phase later, where it shows
the fan.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from boardbench.errors import InputError, RigError
from boardbench.inventory import Board
from boardbench.yamlfile import did_you_mean

PHASES = ("active", "fanless")
VIRTUAL_FAN = "/run/boardbench-virtual/fan"
COMMAND_S = 60.0


@dataclass(frozen=True)
class Operator:
    """The person who can touch the boards. `ask` shows a question and says whether it was confirmed.

    `how` goes into the record: `terminal`, or `argument` when it was confirmed on the command line beforehand.
    """

    name: str
    how: str
    ask: Callable[[str], bool]


class Driver(Protocol):
    """One way to switch a fan."""

    def steps(self, phase: str) -> list[dict[str, object]]:
        """Settings on the board for this phase; may be none."""
        ...

    def switch(self, phase: str) -> dict[str, object] | None:
        """Switch outside the board and return evidence; None when the board does it all. Raises RigError."""
        ...


def _sysfs(board: Board, phase: str, path: str, value: str) -> dict[str, object]:
    return {
        "id": f"cooling {phase} {path}",
        "resource": "sysfs",
        "args": {"path": path, "value": value},
        "line": board.where,
    }


@dataclass(frozen=True)
class VirtualFan:
    """The fan of a virtual board."""

    board: Board

    def steps(self, phase: str) -> list[dict[str, object]]:
        """See `Driver`."""
        return [_sysfs(self.board, phase, VIRTUAL_FAN, "1" if phase == "active" else "0")]

    def switch(self, phase: str) -> None:
        """See `Driver`."""


@dataclass(frozen=True)
class HwmonFan:
    """A fan behind a PWM file. Options: `path`; `active` (255), `fanless` (0); `enable_path` and `enable` (1)."""

    board: Board

    def steps(self, phase: str) -> list[dict[str, object]]:
        """See `Driver`."""
        options = self.board.cooling.options
        path = options.get("path")
        if not isinstance(path, str) or not path.startswith("/"):
            raise InputError("cooling driver hwmon needs an absolute 'path'", where=self.board.where)
        value = str(options.get(phase, 255 if phase == "active" else 0))
        found = [_sysfs(self.board, phase, path, value)]
        enable = options.get("enable_path")
        if isinstance(enable, str):
            # The kernel's own fan control would overwrite the value: it is switched off first.
            found.insert(0, _sysfs(self.board, phase, enable, str(options.get("enable", 1))))
        return found

    def switch(self, phase: str) -> None:
        """See `Driver`."""


@dataclass(frozen=True)
class ManualFan:
    """A fan that a person switches. Without a person there is no phase."""

    board: Board
    operator: Operator

    def steps(self, phase: str) -> list[dict[str, object]]:
        """See `Driver`."""
        return []

    def switch(self, phase: str) -> dict[str, object]:
        """See `Driver`."""
        wanted = "ON" if phase == "active" else "OFF"
        question = f"Switch the fan of board {self.board.name} {wanted}. Is it {wanted} now?"
        if not self.operator.ask(question):
            raise RigError(f"nobody confirmed that the fan is {wanted}", where=self.board.name)
        return {
            "gate": "cooling",
            "ok": True,
            "saw": {"driver": "manual", "phase": phase, "operator": self.operator.name, "how": self.operator.how},
            "why": "",
        }


@dataclass(frozen=True)
class CommandFan:
    """A command on the controller. Options: argv lists `active`, `fanless`, and `read`, which prints the phase."""

    board: Board

    def steps(self, phase: str) -> list[dict[str, object]]:
        """See `Driver`."""
        return []

    def argv(self, name: str) -> list[str]:
        """The command line that the inventory gives for `name`. Raises InputError."""
        value = self.board.cooling.options.get(name)
        if not isinstance(value, list | tuple) or not value or not all(isinstance(word, str) for word in value):
            raise InputError(f"cooling driver command needs '{name}', a list of words", where=self.board.where)
        return list(value)

    def switch(self, phase: str) -> dict[str, object]:
        """See `Driver`."""
        self._run(self.argv(phase))
        seen = self._run(self.argv("read")).strip()
        if seen != phase:
            raise RigError(f"the fan's read-back says {seen[:40]!r}, not {phase}", where=self.board.name)
        return {"gate": "cooling", "ok": True, "saw": {"driver": "command", "phase": phase, "read": seen}, "why": ""}

    def _run(self, argv: list[str]) -> str:
        try:
            done = subprocess.run(argv, capture_output=True, text=True, timeout=COMMAND_S, check=True, shell=False)
        except subprocess.TimeoutExpired:
            raise RigError(f"{argv[0]} did not end within {COMMAND_S:.0f} s", where=self.board.name) from None
        except subprocess.CalledProcessError as error:
            last = (error.stderr or "").strip()[-200:]
            raise RigError(f"{argv[0]} ended with {error.returncode}: {last}", where=self.board.name) from error
        except OSError as error:
            raise RigError(f"{argv[0]} cannot be run: {error.strerror}", where=self.board.name) from error
        return done.stdout


def driver_of(board: Board, operator: Operator | None) -> Driver:
    """The driver that the inventory names. Raises InputError when it is unknown, or needs a person and has none."""
    name = board.cooling.driver
    simple: Mapping[str, Callable[[Board], Driver]] = {
        "virtual": VirtualFan,
        "hwmon": HwmonFan,
        "command": CommandFan,
    }
    if name in simple:
        return simple[name](board)
    if name == "manual":
        if operator is None:
            raise InputError(
                f"the fan of board {board.name} is switched by hand, and there is no terminal to ask on",
                where=board.where,
                advice="run on a terminal, or confirm the fans by the argument for it",
            )
        return ManualFan(board, operator)
    raise InputError(
        f"unknown cooling driver '{name}'",
        where=board.where,
        advice=did_you_mean(name, [*simple, "manual"], kind="drivers"),
    )


def drivers_of(boards: Sequence[Board], phases: Sequence[str], operator: Operator | None) -> dict[str, Driver]:
    """A driver a board, tried for all phases without switching anything: mistakes are found before the first run."""
    drivers: dict[str, Driver] = {}
    for board in boards:
        if not phases:
            break
        driver = driver_of(board, operator)
        for phase in phases:
            driver.steps(phase)
            if isinstance(driver, CommandFan):
                driver.argv(phase)
                driver.argv("read")
        drivers[board.name] = driver
    return drivers


def steps_of(settings: Sequence[Any]) -> list[dict[str, object]]:
    """The matrix's settings as steps of the wire."""
    return [
        {
            "id": f"{setting.resource} {' '.join(str(value) for value in setting.args.values())}",
            "resource": setting.resource,
            "args": dict(setting.args),
            "line": setting.where,
        }
        for setting in settings
    ]
