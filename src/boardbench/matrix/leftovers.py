"""What a campaign that died left changed on a board: seen at every contact, put back by those that change boards."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from boardbench import crew
from boardbench.errors import BenchError, RigError
from boardbench.inventory import Board
from boardbench.matrix.owner import proof_of_death
from boardbench.matrix.takeover import end_if_dead
from boardbench.results.fetch import DoorLike

CALL_S = 30.0
RESTORE_S = 120.0
CAMPAIGN = "campaign-"
"""How scopes of campaigns begin."""

OpenDoor = Callable[[Board], DoorLike]


@dataclass(frozen=True)
class Left:
    """One board: its lease (the answer of the verb), and the campaigns' scopes that are not put back, with counts."""

    lease: Mapping[str, Any]
    scopes: Mapping[str, int]

    @property
    def holder(self) -> Mapping[str, Any] | None:
        """The lease that holds now."""
        held = self.lease.get("lease")
        return held if isinstance(held, Mapping) else None

    @property
    def of_the_dead(self) -> tuple[str, ...]:
        """Scopes of campaigns that do not hold the board: nobody else will put them back."""
        alive = f"{CAMPAIGN}{self.holder['campaign']}" if self.holder is not None else ""
        return tuple(scope for scope in self.scopes if scope != alive)

    def says(self) -> str:
        """For people; empty when there is nothing to say."""
        proof = proof_of_death(self.holder) if self.holder is not None else ""
        parts = [f"{proof}: the next bench, provision or teardown from here takes the board over"] if proof else []
        for scope, count in self.scopes.items():
            campaign = scope.removeprefix(CAMPAIGN)
            if proof or scope in self.of_the_dead:
                parts.append(
                    f"campaign {campaign} died and left {count} changed values: "
                    f"'./inv bench --resume {campaign}', the next bench or provision, or teardown puts them back"
                )
            else:
                parts.append(f"campaign {campaign} is running and has {count} values changed")
        return "; ".join(parts)

    def as_dict(self) -> dict[str, object]:
        """For `--json`."""
        return {**self.lease, "scopes": dict(self.scopes), "left_by_the_dead": list(self.of_the_dead)}


def look(board: Board, open_door: OpenDoor) -> Left:
    """Asks one board; changes nothing. Raises BenchError."""
    with open_door(board) as door:
        return look_through(door)


def look_through(door: DoorLike) -> Left:
    """The same through a connection that is open already."""
    lease = door.call("lease", {"action": "show"}, deadline_s=CALL_S)
    answer = door.call("scopes", {}, deadline_s=CALL_S)
    found = answer.get("scopes")
    scopes = {
        str(entry["scope"]): int(entry["changes"])
        for entry in (found if isinstance(found, list) else [])
        if str(entry["scope"]).startswith(CAMPAIGN)
    }
    return Left(lease, scopes)


def put_back(
    boards: Sequence[Board], open_door: OpenDoor, say: Callable[[str], None], *, check: bool = False
) -> dict[str, BenchError]:
    """Puts back what dead campaigns left on boards that nobody holds, and says so; the errors, by board.

    A board that a campaign holds is an error (whoever changes it now would spoil a run), unless its controller is
    proved to be dead. With `check` it is only said.
    """

    def work(board: Board) -> list[str]:
        with open_door(board) as door:
            left = look_through(door)
            ended = end_if_dead(door, left.lease, check=check)
            lines = [ended] if ended else []
            if check:
                return lines + [f"would put back {count} values of {scope}" for scope, count in left.scopes.items()]
            if ended:
                left = look_through(door)
            if left.holder is not None:
                raise _held(board, left)
            return lines + [_restore(door, board, scope) for scope in left.of_the_dead]

    failed: dict[str, BenchError] = {}
    for name, outcome in crew.each(boards, work).items():
        if isinstance(outcome, BenchError):
            failed[name] = outcome
        else:
            for line in outcome:
                say(f"{name}: {line}")
    return failed


def _restore(door: DoorLike, board: Board, scope: str) -> str:
    answer = door.call("restore", {"scope": scope}, deadline_s=RESTORE_S).get("restored")
    entries = answer if isinstance(answer, list) else []
    bad = [f"{entry['what']}: {entry['why']}" for entry in entries if not entry["ok"]]
    if bad:
        raise RigError(f"what {scope} left cannot be put back: {'; '.join(bad)}", where=board.name)
    campaign = scope.removeprefix(CAMPAIGN)
    return f"put back {len(entries)} changed values that campaign {campaign} left when it died, each read back"


def _held(board: Board, left: Left) -> RigError:
    held = left.holder or {}
    return RigError(
        f"held by {held.get('owner')}@{held.get('host')} for campaign {held.get('campaign')}, "
        f"{float(left.lease.get('left_s') or 0.0):.0f} s left",
        where=board.name,
        advice="changing it now would spoil a run: wait for it (./inv lease)",
        transient=True,
    )
