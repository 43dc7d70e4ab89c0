"""A dead controller's hold is taken over at once and said; a living one's never without a reason."""

from __future__ import annotations

import dataclasses
import socket
from collections.abc import Callable
from typing import Any

import pytest
from fake_boards import FakeDoor, Fleet

from boardbench.errors import RigError
from boardbench.matrix import lease, leftovers, takeover
from boardbench.matrix.lease import Holder
from boardbench.matrix.owner import Process
from boardbench.matrix.progress import Phase, Progress


def alive() -> Process:
    me = Process.here()
    assert me is not None
    return me


def dead() -> Process:
    """What had this process's pid before it."""
    me = alive()
    return dataclasses.replace(me, start_time_ticks=me.start_time_ticks - 1)


def held_by(process: Process | None, host: str = "") -> dict[str, Any]:
    said = None if process is None else process.as_dict()
    return {"owner": "ann", "host": host or socket.gethostname(), "campaign": "c-1", "process": said}


def test_a_campaign_takes_the_boards_of_a_dead_controller_and_says_so(bench: Callable[..., Any], fleet: Fleet) -> None:
    for name in ("king", "queen"):
        fleet[name].lease = held_by(dead())
    told: list[Progress] = []
    assert bench(on_progress=told.append).valid == 4
    said = {one.board: one.message for one in told if one.phase is Phase.LEASE and one.board}
    assert set(said) == {"king", "queen"}
    assert all("took over the hold of ann@" in text and "c-1" in text for text in said.values())


@pytest.mark.parametrize(
    "holder", [held_by(alive()), held_by(dead(), "elsewhere"), held_by(None)], ids=["alive", "elsewhere", "unknown"]
)
def test_a_hold_that_is_not_proved_to_be_dead_is_refused(
    bench: Callable[..., Any], fleet: Fleet, holder: dict[str, Any]
) -> None:
    fleet["queen"].lease = dict(holder)
    with pytest.raises(RigError, match="held by ann"):
        bench()
    assert fleet["queen"].lease == holder
    assert fleet["king"].lease is None, "all or none"


def test_whoever_gives_a_reason_takes_the_board_for_this_reason(fleet: Fleet) -> None:
    """The board keeps the reason; it would keep another one if the hold had been ended by proof first."""
    fleet["queen"].lease = held_by(dead())
    with pytest.raises(RigError, match="held by ann"):  # this fake does not know `steal_why`
        lease.take_all(Holder.here("c-2", "her desk is off"), fleet.boards, 60.0, fleet.open)
    actions = [args["action"] for verb, args in fleet["queen"].log if verb == "lease"]
    assert "end" not in actions


def test_boards_are_freed_at_the_door_for_those_that_do_not_hold_them(fleet: Fleet) -> None:
    fleet["queen"].lease = held_by(dead())
    said: list[str] = []
    opened = takeover.freeing(fleet.open, said.append)
    for board in fleet.boards:
        opened(board).close()
    assert fleet["queen"].lease is None
    assert [line.split(" for campaign")[0] for line in said] == [
        f"queen: took over the hold of ann@{socket.gethostname()}"
    ]


def test_with_check_it_is_only_said(fleet: Fleet) -> None:
    fleet["queen"].lease = held_by(dead())
    said: list[str] = []
    takeover.freeing(fleet.open, said.append, check=True)(fleet.boards[1]).close()
    assert fleet["queen"].lease == held_by(dead())
    assert said[0].startswith("queen: would take over the hold of ann@")


def test_a_door_is_not_left_open_when_the_hold_cannot_be_ended(fleet: Fleet) -> None:
    fleet["queen"].lease = held_by(dead())
    fleet["queen"].on("lease", _refuse_end)
    with pytest.raises(RigError, match="now held by"):
        takeover.freeing(fleet.open, lambda _: None)(fleet.boards[1])
    assert fleet["queen"].open_doors == 0


def _refuse_end(_board: Any, args: Any) -> None:
    if args["action"] == "end":
        raise RigError("the board is now held by bob@lab", where="queen", transient=True)


def test_what_a_dead_holder_left_is_put_back(fleet: Fleet) -> None:
    fleet["queen"].set("campaign-c-1", "governor", "performance")
    fleet["queen"].lease = held_by(dead())
    told = leftovers.look(fleet.boards[1], fleet.open).says()
    assert "another process now: the next bench, provision or teardown from here takes the board over" in told
    assert "c-1 died and left 1 changed values" in told
    said: list[str] = []
    assert leftovers.put_back(fleet.boards, fleet.open, said.append) == {}
    assert fleet["queen"].governor == "ondemand"
    assert [line.split(" of ")[0].split(" that ")[0] for line in said] == [
        "queen: took over the hold",
        "queen: put back 1 changed values",
    ]


def test_every_beat_says_which_process_it_comes_from(fleet: Fleet) -> None:
    Holder.here("c-2").take(FakeDoor(fleet["king"]), "king", 60.0)
    assert fleet["king"].lease is not None
    assert Process.of(fleet["king"].lease["process"]) == alive()
