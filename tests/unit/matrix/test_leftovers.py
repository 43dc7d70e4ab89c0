"""What a dead campaign left is said at every contact, and put back by those that change boards."""

from __future__ import annotations

from fake_boards import Fleet

from boardbench.errors import RigError, UnreachableError
from boardbench.matrix.leftovers import look, put_back


def leave(fleet: Fleet, campaign: str = "c-1") -> None:
    """The queen's governor, as a campaign that died has left it."""
    fleet["queen"].set(f"campaign-{campaign}", "governor", "performance")


def test_what_the_dead_left_is_put_back_and_said(fleet: Fleet) -> None:
    leave(fleet)
    fleet["queen"].set("provision", "fan", "0")
    said: list[str] = []
    assert put_back(fleet.boards, fleet.open, said.append) == {}
    assert fleet["queen"].governor == "ondemand"
    assert fleet["queen"].fan == "0", "what provision changed is no leftover"
    assert said == ["queen: put back 1 changed values that campaign c-1 left when it died, each read back"]


def test_with_check_it_is_only_said(fleet: Fleet) -> None:
    leave(fleet)
    said: list[str] = []
    assert put_back(fleet.boards, fleet.open, said.append, check=True) == {}
    assert fleet["queen"].governor == "performance"
    assert said == ["queen: would put back 1 values of campaign-c-1"]


def test_a_board_that_is_held_is_not_touched_and_the_holder_is_named(fleet: Fleet) -> None:
    leave(fleet)
    fleet["queen"].lease = {"owner": "ann", "host": "lab", "campaign": "c-1"}
    failed = put_back(fleet.boards, fleet.open, lambda _: None)
    assert fleet["queen"].governor == "performance"
    assert "held by ann@lab for campaign c-1" in str(failed["queen"])


def test_a_value_that_cannot_be_put_back_is_an_error(fleet: Fleet) -> None:
    leave(fleet)
    fleet["queen"].verb_restore = lambda _: {  # type: ignore[method-assign]
        "restored": [{"what": "governor", "ok": False, "why": "EIO"}]
    }
    failed = put_back(fleet.boards, fleet.open, lambda _: None)
    assert isinstance(failed["queen"], RigError)
    assert "governor: EIO" in str(failed["queen"])


def test_a_board_that_does_not_answer_is_only_its_own_error(fleet: Fleet) -> None:
    leave(fleet)
    fleet.unreachable["king"] = UnreachableError("no answer", where="king")
    assert set(put_back(fleet.boards, fleet.open, lambda _: None)) == {"king"}
    assert fleet["queen"].governor == "ondemand"


def test_a_living_campaign_is_not_called_dead(fleet: Fleet) -> None:
    leave(fleet)
    assert "died and left 1 changed values" in look(fleet.boards[1], fleet.open).says()
    fleet["queen"].lease = {"owner": "ann", "host": "lab", "campaign": "c-1"}
    found = look(fleet.boards[1], fleet.open)
    assert found.of_the_dead == ()
    assert "is running" in found.says()
