"""Holds of controllers that are proved to be dead are ended at once; all others are left to their holders."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from typing import Any

from boardbench.inventory import Board
from boardbench.matrix.owner import owner_name, proof_of_death
from boardbench.results.fetch import DoorLike

CALL_S = 30.0
END_S = 300.0
"""A load that still runs is stopped with it, which it may take its time for."""


def end_if_dead(door: DoorLike, answer: Mapping[str, Any] | None = None, *, check: bool = False) -> str:
    """Ends the hold of this board if its controller is proved to be dead; what was done, in words, else "".

    `answer`: what `lease show` has just said. The board ends that very hold or none: one that was renewed by a living
    controller in between is another. What the dead changed on the board is not touched here. With `check` it is only
    said. Raises RigError.
    """
    if answer is None:
        answer = door.call("lease", {"action": "show"}, deadline_s=CALL_S)
    held = answer.get("lease")
    proof = proof_of_death(held) if isinstance(held, Mapping) else ""
    if not proof or not isinstance(held, Mapping):
        return ""
    whose = f"the hold of {held.get('owner')}@{held.get('host')} for campaign {held.get('campaign')}"
    if check:
        return f"would take over {whose}: {proof}"
    this_hold = {name: held.get(name) for name in ("owner", "host", "campaign", "process")}
    args = {"action": "end", "of": this_hold, "why": proof, "by": f"{owner_name()}@{socket.gethostname()}"}
    stopped = door.call("lease", args, deadline_s=END_S).get("stopped")
    names = ", ".join(map(str, stopped)) if isinstance(stopped, list) else ""
    loads = f"; its load still ran and was stopped ({names})" if names else ""
    return f"took over {whose}: {proof}{loads}"


def freeing(
    open_door: Callable[[Board], DoorLike], say: Callable[[str], None], *, check: bool = False
) -> Callable[[Board], DoorLike]:
    """`open_door`, for those that change boards without holding them: what the dead hold is ended first, and said."""

    def opened(board: Board) -> DoorLike:
        door = open_door(board)
        try:
            said = end_if_dead(door, check=check)
        except BaseException:
            door.close()
            raise
        if said:
            say(f"{board.name}: {said}")
        return door

    return opened
