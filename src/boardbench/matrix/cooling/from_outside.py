"""Fans that are switched from outside the board's kernel: by a command, by a switched socket, by a hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from boardbench.errors import InputError, RigError
from boardbench.inventory import Board
from boardbench.matrix.cooling.base import Look, Operator, Step, evidence
from boardbench.matrix.power.command import run
from boardbench.matrix.power.options import http_switch, words
from boardbench.matrix.power.switch import Switch

SPOKEN = {"active": "ON", "fanless": "OFF"}


class CommandFan:
    """Commands on the controller, or on the board with `where: board`.

    Options: argv lists `active`, `fanless`, and `read`, which prints the phase that it sees.
    """

    def __init__(self, board: Board) -> None:
        self.board = board
        options = board.cooling.options
        self.on_board = options.get("where", "controller") == "board"
        self.outside = True  # also a board's command: what it has done is not in the board's journal
        self._argv = {name: words(options, name, "cooling driver command", board.where) for name in (*SPOKEN, "read")}
        if self.on_board and not all(argv[0].startswith("/") for argv in self._argv.values()):
            raise InputError("a command on the board needs an absolute path", where=board.where)

    def set(self, phase: str) -> list[Step]:
        """See `Driver`."""
        argv = list(self._argv[phase])
        if not self.on_board:
            run(argv, self.board.name)
            return []
        return [
            {"id": f"cooling {phase}", "resource": "command", "args": {"argv": argv}, "line": self.board.where},
        ]

    def verify(self, phase: str, look: Look) -> Mapping[str, Any]:
        """See `Driver`."""
        argv = list(self._argv["read"])
        if self.on_board:
            said = look.door.call("fan", {"read": argv}, deadline_s=look.deadline_s).get("read")
        else:
            said = run(argv, self.board.name)
        seen = str(said).strip()
        saw = {
            "driver": "command",
            "phase": phase,
            "read": seen[:200],
            "where": "board" if self.on_board else "controller",
        }
        return evidence(seen == phase, saw, f"the fan's read-back says {seen[:40]!r}, not {phase}")


class HttpFan:
    """A fan behind a switched socket. Options: those of the socket; `fan_runs_when` (on; `off`: the relay inverts)."""

    outside = True

    def __init__(self, board: Board, switch: Switch | None = None) -> None:
        self.board = board
        self.switch = switch or http_switch(board.cooling.options, "cooling driver http", board.where)
        self._active_is_on = board.cooling.options.get("fan_runs_when", "on") == "on"

    def _on(self, phase: str) -> bool:
        return (phase == "active") is self._active_is_on

    def set(self, phase: str) -> list[Step]:
        """See `Driver`."""
        self.switch.set(self._on(phase))
        return []

    def verify(self, phase: str, look: Look) -> Mapping[str, Any]:
        """See `Driver`. The socket's own relay is read, not the fan: the log has to show the rest."""
        on = self.switch.get()
        saw = {"driver": "http", "phase": phase, "on": on, "device": self.board.cooling.options.get("device")}
        return evidence(on is self._on(phase), saw, f"the fan's socket is {'on' if on else 'off'}")


@dataclass
class ManualFan:
    """A fan that a person switches. Without a person there is no phase. Option: `hint`, shown with the question."""

    board: Board
    operator: Operator
    confirmed: str | None = None
    beforehand: bool = True
    outside: bool = True

    def set(self, phase: str) -> list[Step]:
        """See `Driver`."""
        # What was confirmed beforehand holds until somebody was asked to switch.
        self.beforehand = self.beforehand and phase in self.operator.phases
        if self.confirmed == phase or self.beforehand:
            self.confirmed = phase
            return []
        self.confirmed = None
        if not self.operator.ask(self.question(phase)):
            raise RigError(f"nobody confirmed that the fan is {SPOKEN[phase]}", where=self.board.name)
        self.confirmed = phase
        return []

    def question(self, phase: str) -> str:
        """What the person is asked."""
        hint = self.board.cooling.options.get("hint")
        shown = f" ({hint})" if isinstance(hint, str) and hint else ""
        wanted = SPOKEN[phase]
        return f"Switch the fan of board {self.board.name}{shown} {wanted}. Is it {wanted} now?"

    def verify(self, phase: str, look: Look) -> Mapping[str, Any]:
        """See `Driver`. Nobody looks at the fan again: the evidence is who confirmed it, and later the log."""
        how = "argument" if self.beforehand else self.operator.how
        saw = {"driver": "manual", "phase": phase, "operator": self.operator.name, "how": how}
        return evidence(self.confirmed == phase, saw, f"nobody confirmed that the fan is {SPOKEN[phase]}")
