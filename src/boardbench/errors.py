"""The one family of errors: each says what is wrong, where, and what to do.

Two axes decide what happens next: whose fault it is (the exit code follows from it), and whether trying
again can help (`transient`).
"""

from __future__ import annotations

from enum import IntEnum, StrEnum

from boardbench.secretwords import REGISTRY


class Fault(StrEnum):
    """Whose fault an error is."""

    INPUT = "bad-input"
    RIG = "rig"
    WORKLOAD = "workload"
    BUG = "bug"


class ExitCode(IntEnum):
    """Exit codes of every command. `OUTCOME`: the command did its work, and something it reports is not good."""

    OK = 0
    OUTCOME = 1
    INPUT = 2
    RIG = 3
    WORKLOAD = 4
    BUG = 70
    INTERRUPTED = 130


class BenchError(Exception):
    """One clear sentence for the user: `what`, `where` (file:line or board), `advice` (what to do).

    A known secret is hidden from the beginning, since nobody knows where an error will be written.
    """

    fault = Fault.BUG
    transient = False

    def __init__(self, what: str, *, where: str = "", advice: str = "", transient: bool | None = None) -> None:
        what, where, advice = (REGISTRY.hide(text) for text in (what, where, advice))
        super().__init__(what)
        self.what = what
        self.where = where
        self.advice = advice
        if transient is not None:
            self.transient = transient

    def __str__(self) -> str:
        head = f"{self.where}: {self.what}" if self.where else self.what
        return f"{head}; {self.advice}" if self.advice else head

    @property
    def exit_code(self) -> ExitCode:
        """The exit code of a command that ends with this error."""
        return {
            Fault.INPUT: ExitCode.INPUT,
            Fault.RIG: ExitCode.RIG,
            Fault.WORKLOAD: ExitCode.WORKLOAD,
            Fault.BUG: ExitCode.BUG,
        }[self.fault]

    def as_dict(self) -> dict[str, object]:
        """The error as the `--json` form of a command prints it."""
        return {
            "fault": self.fault.value,
            "transient": self.transient,
            "what": self.what,
            "where": self.where,
            "advice": self.advice,
        }


class InputError(BenchError):
    """A file, an argument or a name that the user gave is wrong."""

    fault = Fault.INPUT


class RigError(BenchError):
    """A board, a link or a tool of the rig does not do what it should."""

    fault = Fault.RIG


class UnreachableError(RigError):
    """The board does not answer, or the link to it is lost."""

    transient = True


class HostKeyError(RigError):
    """The board shows a host key that is unknown or not the pinned one."""


class DeadlineError(RigError):
    """The board did not finish within the call's deadline."""

    transient = True


class WorkloadError(BenchError):
    """What was to be measured failed by itself."""

    fault = Fault.WORKLOAD


class BugError(BenchError):
    """Our own mistake, on either side of the door."""
