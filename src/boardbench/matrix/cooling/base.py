"""What every cooling driver promises: two functions, `set` and `verify`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from boardbench.results.fetch import DoorLike

PHASES = ("active", "fanless")
GATE = "cooling"
Step = dict[str, object]


@dataclass(frozen=True)
class Operator:
    """The person who can touch the boards. `ask` shows a question and says whether it was confirmed.

    `how` goes into the record: `terminal`, or `argument` when it was confirmed on the command line beforehand;
    `phases` are the phases that were confirmed so (empty: ask for each).
    """

    name: str
    how: str
    ask: Callable[[str], bool]
    phases: tuple[str, ...] = ()


@dataclass(frozen=True)
class Look:
    """A connection to the board, for a driver that has to look there. `deadline_s` bounds each call, in wall seconds.

    `time_scale`: how much faster than real time the board's physics runs; waits for a fan are divided by it.
    """

    door: DoorLike
    scope: str
    time_scale: float
    deadline_s: float


class Driver(Protocol):
    """One way to switch a fan."""

    @property
    def outside(self) -> bool:
        """Whether the fan is switched from outside the board: then nothing on the board can put it back."""
        ...

    def set(self, phase: str) -> list[Step]:
        """Switch what is outside the board, and return the settings that the board is to make itself under the
        campaign's scope (they are read back and put back there; none for a fan outside). Raises RigError."""
        ...

    def verify(self, phase: str, look: Look) -> Mapping[str, Any]:
        """Evidence of gate `cooling`: what the fan itself shows now, before the load or after it. Changes nothing.
        Raises RigError when the board or the switch does not answer."""
        ...


def evidence(ok: bool, saw: Mapping[str, Any], why: str = "") -> dict[str, Any]:
    """An entry of gate `cooling`."""
    return {"gate": GATE, "ok": ok, "saw": dict(saw), "why": "" if ok else why}
