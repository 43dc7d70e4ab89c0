"""What became of a playbook: every board's steps, the counts of the recap, and the exit code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from boardbench.errors import BenchError, ExitCode, HostKeyError, UnreachableError

STATES = ("ok", "changed", "skipped", "failed")


@dataclass(frozen=True)
class StepResult:
    """What became of one step on one board; in check mode `changed` means "would change"."""

    id: str
    resource: str
    state: str
    changes: Sequence[Mapping[str, Any]] = ()
    diff: str = ""
    message: str = ""

    def as_event(self) -> dict[str, object]:
        """The result in the form of the board's own step events."""
        return {
            "event": "step",
            "id": self.id,
            "resource": self.resource,
            "state": self.state,
            "changes": [dict(change) for change in self.changes],
            "diff": self.diff,
            "message": self.message,
        }


@dataclass(frozen=True)
class Recap:
    """How many steps of a board ended how; `unreachable` is 1 when the board could not be talked to (to the end)."""

    ok: int = 0
    changed: int = 0
    skipped: int = 0
    failed: int = 0
    unreachable: int = 0

    @property
    def good(self) -> bool:
        """Nothing failed and the board was there."""
        return not self.failed and not self.unreachable

    def as_json(self) -> dict[str, int]:
        """The counts by name."""
        return {
            "ok": self.ok,
            "changed": self.changed,
            "skipped": self.skipped,
            "failed": self.failed,
            "unreachable": self.unreachable,
        }


@dataclass(frozen=True)
class BoardOutcome:
    """All that a board did, also before an error ended it."""

    board: str
    steps: tuple[StepResult, ...]
    error: BenchError | None

    @property
    def recap(self) -> Recap:
        """The counts. An error that no step reports counts as one failure, so that it can never look like success."""
        counts = {state: sum(step.state == state for step in self.steps) for state in STATES}
        unreachable = int(isinstance(self.error, UnreachableError | HostKeyError))
        if self.error is not None and not unreachable and not counts["failed"]:
            counts["failed"] = 1
        return Recap(**counts, unreachable=unreachable)


@dataclass(frozen=True)
class Outcome:
    """The outcome of a playbook on all its boards, in the order of the inventory."""

    boards: Mapping[str, BoardOutcome]
    check: bool = False

    @property
    def errors(self) -> dict[str, BenchError]:
        """What ended a board before its program was through, by board."""
        return {name: board.error for name, board in self.boards.items() if board.error is not None}

    @property
    def exit_code(self) -> ExitCode:
        """0 when all is well, 3 when no board could be reached, else 1."""
        recaps = [board.recap for board in self.boards.values()]
        if all(recap.good for recap in recaps):
            return ExitCode.OK
        return ExitCode.RIG if all(recap.unreachable for recap in recaps) else ExitCode.OUTCOME

    def as_json(self) -> dict[str, Any]:
        """The machine's form: the recap, and what ended a board early."""
        value: dict[str, Any] = {"recap": {name: board.recap.as_json() for name, board in self.boards.items()}}
        if self.errors:
            value["errors"] = {name: error.as_dict() for name, error in self.errors.items()}
        return value
