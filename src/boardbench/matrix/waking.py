"""The boards of a campaign that do not answer at its start: brought back with their power, or left out with a reason.

The same rules as in the middle of a campaign: look again, cut the power once, quarantine after two failures. What is
done to a board before there is a campaign is kept, and noted in its journal before its first step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from boardbench.errors import BenchError
from boardbench.inventory import Board
from boardbench.matrix import lease, preflight
from boardbench.matrix.lease import Holder
from boardbench.matrix.leftovers import OpenDoor
from boardbench.matrix.power import recovery
from boardbench.matrix.power.recovery import Notes, Recovery, Tell
from boardbench.matrix.preflight import Met, Wanted

SPARE_S = 60.0
"""For what a cycle takes beside its own pauses."""


@dataclass
class Kept:
    """Notes from before there is a journal."""

    events: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def note(self, event: str, **fields: Any) -> None:
        """Keep one."""
        self.events.append((event, fields))


@dataclass(frozen=True)
class Woken:
    """Who answers, the errors of those that do not, and what the boards' failures have come to so far."""

    met: Mapping[str, Met]
    lost: Mapping[str, BenchError]
    recovery: Recovery
    kept: Kept

    def go_on(self, notes: Notes, tell: Tell) -> Recovery:
        """The recovery of the campaign: it knows what failed at the start, and `notes` gets what was kept."""
        for event, fields in self.kept.events:
            notes.note(event, **fields)
        return replace(self.recovery, notes=notes, tell=tell)


def meet(boards: Sequence[Board], open_door: OpenDoor, wanted: Wanted, holder: Holder, tell: Tell) -> Woken:
    """What `preflight.ask_all` promises, and boards that stay away are brought back by their power first.

    Raises as `preflight.meet` does; and RigError, before any power is cut, when somebody else holds a board: then the
    others may be away because of what they do there.
    """
    kept = Kept()
    mine = Recovery.of({board.name: board for board in boards}, open_door, kept, tell)
    met, lost = preflight.ask_all(boards, open_door, wanted)
    for _ in range(recovery.FAILURES):
        away = {name: error for name, error in lost.items() if mine.can_help(name, error)}
        if not away:
            break
        _hold_and_cycle(boards, met, away, mine, holder)
        back = [board for board in boards if board.name in away and board.name not in mine.quarantined]
        found, still = preflight.ask_all(back, open_door, wanted)
        met, lost = {**met, **found}, {name: error for name, error in lost.items() if name not in found} | still
    if not met:
        raise next(iter(lost.values()))
    order = [board.name for board in boards]
    return Woken({name: met[name] for name in order if name in met}, lost, mine, kept)


def _hold_and_cycle(
    boards: Sequence[Board], met: Mapping[str, Met], away: Mapping[str, BenchError], mine: Recovery, holder: Holder
) -> None:
    """With the boards that answer in our hands for so long, unless the user takes boards away from others anyway."""
    held = [board for board in boards if board.name in met] if holder.steal_why is None else []
    ttl_s = max(mine.patience_s(name) for name in away) + SPARE_S
    lease.take_all(holder, held, ttl_s, mine.open_door, mine.tell)
    try:
        mine.after(away)
    finally:
        lease.release_all(holder, held, mine.open_door)
