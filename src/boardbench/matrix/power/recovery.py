"""A board that hangs or stays away: look again, cycle its power once, and put it into quarantine after two failures.

Only a board that truly does not do what it is told is a failure here. A run that does not count is none: that may be
the measurement's fault, and its attempts have their own limit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from boardbench import crew
from boardbench.errors import BenchError, DeadlineError, RigError, UnreachableError
from boardbench.inventory import Board
from boardbench.matrix.power.options import power_of
from boardbench.matrix.power.switch import Switch
from boardbench.results.fetch import DoorLike

FAILURES = 2
"""This many in one campaign, and the board is left out of the rest of it."""
OFF_S, BOOT_S, LOOK_AGAIN_S = 5.0, 180.0, 20.0
ASK_S, ASK_EVERY_S = 10.0, 1.0
Tell = Callable[[str, str], None]
"""(what happens, board), for people."""


class HungError(RigError):
    """The board answers, and holds a process that nothing but a cut of its power ends."""

    transient = True


class Notes(Protocol):
    """Where it is noted what was done to a board."""

    def note(self, event: str, **fields: Any) -> None: ...


def refusal(evidence: Sequence[Mapping[str, Any]], why: str, board: str) -> RigError:
    """The error of a board that is not at the start condition: a HungError when a stray of it sits in the kernel."""
    for entry in evidence:
        saw = entry.get("saw")
        found = saw.get("found") if isinstance(saw, Mapping) and entry.get("gate") == "strays" else None
        stuck = [
            s for s in found or () if isinstance(s, Mapping) and s.get("state") == "D" and s.get("ended") is not True
        ]
        if stuck:
            pids = ", ".join(str(stray.get("pid")) for stray in stuck)
            return HungError(f"process {pids} hangs in the kernel (state D): {why}", where=board)
    return RigError(why, where=board, transient=True)


@dataclass
class Recovery:
    """Counts failures a board, and gets boards back. `quarantined`: by board, why it is left out."""

    boards: Mapping[str, Board]
    switches: Mapping[str, Switch | None]
    open_door: Callable[[Board], DoorLike]
    notes: Notes
    tell: Tell
    failures: dict[str, list[str]] = field(default_factory=dict)
    quarantined: dict[str, str] = field(default_factory=dict)

    @staticmethod
    def of(boards: Mapping[str, Board], open_door: Callable[[Board], DoorLike], notes: Notes, tell: Tell) -> Recovery:
        """For these boards, with the switches that the inventory gives them. Raises InputError."""
        return Recovery(boards, {name: power_of(board) for name, board in boards.items()}, open_door, notes, tell)

    def can_help(self, name: str, error: BenchError) -> bool:
        """Whether this is a board that is lost or hangs, that has a switch, and that is not given up."""
        return _loss(error) is not None and self.switches[name] is not None and name not in self.quarantined

    def patience_s(self, name: str) -> float:
        """The most that looking again and one cycle of this board take."""
        off_s, boot_s = self._pauses(self.boards[name])
        return LOOK_AGAIN_S + off_s + boot_s

    @staticmethod
    def _pauses(board: Board) -> tuple[float, float]:
        options = board.power.options if board.power else {}
        return float(str(options.get("off_s", OFF_S))), float(str(options.get("boot_s", BOOT_S)))

    def after(self, outcomes: Mapping[str, object]) -> dict[str, str]:
        """Take a wave's outcomes (by board) into account, bring back whom it can; all that are in quarantine now.

        Several boards at once: a cycle takes as long as a boot.
        """
        lost = {
            name: error
            for name, outcome in outcomes.items()
            if (error := _loss(outcome)) is not None and name not in self.quarantined
        }
        if lost:
            boards = [self.boards[name] for name in lost]
            for name, done in crew.each(boards, lambda board: self._one(board, lost[board.name])).items():
                if isinstance(done, BenchError):  # not a reason to lose the others
                    self._failed(name, str(done))
        return dict(self.quarantined)

    def _one(self, board: Board, error: BenchError) -> None:
        if isinstance(error, UnreachableError) and self._answers(
            board, LOOK_AGAIN_S if self.switches[board.name] else 0.0
        ):
            return  # the link was lost, not the board
        self._failed(board.name, error.what)
        if board.name not in self.quarantined and (switch := self.switches[board.name]) is not None:
            self._cycle(board, switch, error.what)

    def _failed(self, name: str, why: str) -> None:
        found = self.failures.setdefault(name, [])
        found.append(why)
        if len(found) >= FAILURES and name not in self.quarantined:
            self.quarantined[name] = f"quarantined: {'; then: '.join(found)}"
            self.notes.note("quarantined", board=name, why=self.quarantined[name])
            self.tell(f"in quarantine for the rest of the campaign: {why}", name)

    def _cycle(self, board: Board, switch: Switch, why: str) -> None:
        """Off, a pause for the capacitors, on, and wait until it answers."""
        off_s, boot_s = self._pauses(board)
        self.tell(f"cutting the power for {off_s:g} s: {why}", board.name)
        self.notes.note("power-cycle", board=board.name, why=why, off_s=off_s)
        try:
            switch.set(False)
            try:
                _pause(off_s)
            finally:
                switch.set(True)  # whoever interrupts us must not leave it off
        except RigError as error:
            self.notes.note("power-cycled", board=board.name, ok=False, why=str(error))
            self._failed(board.name, f"its power cannot be switched: {error.what}")
            return
        back = self._answers(board, boot_s)
        self.notes.note("power-cycled", board=board.name, ok=back, why="" if back else f"silent for {boot_s:g} s")
        if not back:
            self._failed(board.name, f"does not come back within {boot_s:g} s after its power was cut")

    def _answers(self, board: Board, patience_s: float) -> bool:
        until = time.monotonic() + patience_s
        while True:
            try:
                with self.open_door(board) as door:
                    door.call("lease", {"action": "show"}, deadline_s=ASK_S)
            except (UnreachableError, DeadlineError):
                if time.monotonic() + ASK_EVERY_S >= until:
                    return False
                _pause(ASK_EVERY_S)
            else:
                return True


def _loss(outcome: object) -> BenchError | None:
    """The error of a board that is lost or hangs, also under one that says what this means; None for any other."""
    causes = (outcome, outcome.__cause__) if isinstance(outcome, BenchError) else ()
    return next((error for error in causes if isinstance(error, UnreachableError | DeadlineError | HungError)), None)


def _pause(seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        crew.check_stop()
        time.sleep(min(left, 0.2))
