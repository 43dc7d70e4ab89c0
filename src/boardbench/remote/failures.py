"""The one error of the board's side: it becomes the `error` event of a call."""

from __future__ import annotations

BAD_INPUT = "bad-input"
RIG = "rig"
WORKLOAD = "workload"
BUG = "bug"


class Failure(Exception):
    """One clear sentence: `what` is wrong, `where` (path, unit, step), `advice` (what to do), whose `fault`."""

    def __init__(self, fault: str, what: str, where: str = "", advice: str = "", transient: bool = False) -> None:
        super().__init__(what)
        self.fault = fault
        self.what = what
        self.where = where
        self.advice = advice
        self.transient = transient

    def __str__(self) -> str:
        head = f"{self.where}: {self.what}" if self.where else self.what
        return f"{head}; {self.advice}" if self.advice else head

    def fields(self) -> dict[str, object]:
        """What the `error` event says besides its name."""
        return {
            "fault": self.fault,
            "transient": self.transient,
            "what": self.what,
            "where": self.where,
            "advice": self.advice,
        }
