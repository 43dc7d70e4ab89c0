"""The exclusive hold of boards: all of them or none, taken on the boards themselves."""

from __future__ import annotations

import math
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from boardbench import crew
from boardbench.errors import BenchError, DeadlineError, RigError, UnreachableError
from boardbench.inventory import Board
from boardbench.matrix.owner import Process, owner_name
from boardbench.matrix.takeover import end_if_dead
from boardbench.results.fetch import DoorLike

CALL_S = 30.0


@dataclass(frozen=True)
class Holder:
    """In whose name boards are held. `steal_why`: take a board away from another campaign, for this reason.

    `process`: the one that renews the hold, so that others on its machine can prove that it is gone.
    """

    owner: str
    host: str
    campaign: str
    steal_why: str | None = None
    process: Process | None = None

    @staticmethod
    def here(campaign: str, steal_why: str | None = None) -> Holder:
        """This user on this machine."""
        return Holder(owner_name(), socket.gethostname(), campaign, steal_why, Process.here())

    def _call(self, door: DoorLike, action: str, ttl_s: float) -> Mapping[str, Any]:
        args: dict[str, object] = {"action": action, **self.heartbeat(ttl_s)}
        if action == "take" and self.steal_why:
            args["steal_why"] = self.steal_why
        return door.call("lease", args, deadline_s=CALL_S)

    def take(self, door: DoorLike, board: str, ttl_s: float) -> Mapping[str, Any] | None:
        """Hold the board for `ttl_s` wall seconds; the lease that was taken away for it, if any.

        Raises RigError naming the other holder.
        """
        answer = self._call(door, "take", ttl_s)
        if not self._is_ours(answer):
            raise RigError(_who(answer.get("lease")), where=board, advice="wait for it, or use other boards")
        taken_from = answer.get("taken_from")
        return taken_from if isinstance(taken_from, Mapping) else None

    def renew(self, door: DoorLike, board: str, ttl_s: float) -> None:
        """Hold the board for `ttl_s` wall seconds from now. A hold that ended by itself (a reboot) is taken anew.

        Raises RigError when another campaign holds the board by now.
        """
        try:
            answer = self._call(door, "renew", ttl_s)
        except (UnreachableError, DeadlineError):
            raise
        except RigError:
            if door.call("lease", {"action": "show"}, deadline_s=CALL_S).get("held") is True:
                raise
            answer = self._call(door, "take", ttl_s)
        if not self._is_ours(answer):
            raise RigError(_who(answer.get("lease")), where=board, advice="the run on this board does not count")

    def heartbeat(self, ttl_s: float) -> dict[str, object]:
        """What any other call takes along as `lease`: holds the board as `renew` does, without a call of its own."""
        return {
            "owner": self.owner,
            "host": self.host,
            "campaign": self.campaign,
            "ttl_s": float(math.ceil(ttl_s)),
            **({} if self.process is None else {"process": self.process.as_dict()}),
        }

    def release(self, door: DoorLike) -> None:
        """Give the board back."""
        self._call(door, "release", 1.0)

    def _is_ours(self, answer: Mapping[str, Any]) -> bool:
        lease = answer.get("lease")
        return answer.get("held") is True and isinstance(lease, Mapping) and lease.get("campaign") == self.campaign


def _who(lease: object) -> str:
    if not isinstance(lease, Mapping):
        return "the board did not give its lease"
    return f"held by {lease.get('owner')} on {lease.get('host')} for campaign {lease.get('campaign')}"


@dataclass(frozen=True)
class Taken:
    """What `take_all` came to: boards that did not answer, and leases that were taken away, each by board."""

    errors: Mapping[str, BenchError]
    stolen: Mapping[str, Mapping[str, Any]]

    def stolen_from(self, why: str | None) -> list[dict[str, object]]:
        """The leases that were taken away, as campaign.json keeps them."""
        names = ("owner", "host", "campaign")
        return [
            {"board": board, "from": {name: str(lease.get(name)) for name in names}, "why": why or ""}
            for board, lease in sorted(self.stolen.items())
        ]


def take_all(
    holder: Holder,
    boards: Sequence[Board],
    ttl_s: float,
    open_door: Callable[[Board], DoorLike],
    say: Callable[[str, str], None] | None = None,
) -> Taken:
    """Hold all reachable boards, or none. `say(what, board)`: the hold of a dead controller was ended for it.

    A board that does not answer is given back as its error (it costs its own cells only). A board that another
    campaign holds, or any other refusal, gives all boards back and raises.
    """

    def take(board: Board) -> Mapping[str, Any] | None:
        with open_door(board) as door:
            try:
                return holder.take(door, board.name, ttl_s)
            except (UnreachableError, DeadlineError):
                raise
            except RigError:
                # Whoever gives a reason to take boards away is not asked for a proof, and the reason is what is kept.
                if holder.steal_why or not (said := end_if_dead(door)):
                    raise
            if say is not None:
                say(said, board.name)
            return holder.take(door, board.name, ttl_s)

    try:
        outcomes = crew.each(boards, take)
    except KeyboardInterrupt:
        release_all(holder, boards, open_door)
        raise
    errors = {name: outcome for name, outcome in outcomes.items() if isinstance(outcome, BenchError)}
    refusals = [error for error in errors.values() if not isinstance(error, UnreachableError | DeadlineError)]
    if refusals:
        release_all(holder, [board for board in boards if board.name not in errors], open_door)
        raise refusals[0]
    stolen = {name: outcome for name, outcome in outcomes.items() if isinstance(outcome, Mapping)}
    return Taken(errors, stolen)


def release_all(
    holder: Holder, boards: Sequence[Board], open_door: Callable[[Board], DoorLike]
) -> dict[str, BenchError]:
    """Give the boards back; what went wrong, by board. A hold that cannot be given back ends by itself."""

    def release(board: Board) -> None:
        with open_door(board) as door:
            holder.release(door)

    outcomes = crew.each(boards, release)
    return {name: outcome for name, outcome in outcomes.items() if isinstance(outcome, BenchError)}
