"""Boards that hang or stay away: looked at again, power-cycled once, in quarantine after two failures."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from fake_boards import Fleet

from boardbench.errors import DeadlineError, RigError, UnreachableError
from boardbench.inventory import Board, Power
from boardbench.matrix.power import recovery
from boardbench.matrix.power.recovery import HungError, Recovery, refusal


class Plug:
    """A switch; `fails`: it does not obey. `on_cycle` is called when it goes on again."""

    def __init__(self, on_cycle: Callable[[], None] = lambda: None, fails: bool = False) -> None:
        self.history: list[bool] = []
        self._on_cycle = on_cycle
        self._fails = fails

    def set(self, on: bool) -> None:
        if self._fails:
            raise RigError("the relay sticks")
        self.history.append(on)
        if on:
            self._on_cycle()

    def get(self) -> bool:
        return self.history[-1]


class Noted:
    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []

    def note(self, event: str, **fields: Any) -> None:
        self.events.append((event, fields))

    def names(self) -> list[str]:
        return [event for event, _ in self.events]


def lost() -> UnreachableError:
    return UnreachableError("the link is lost", where="queen")


def hung() -> DeadlineError:
    return DeadlineError("no answer within the deadline", where="queen")


def made(fleet: Fleet, plug: Plug | None, noted: Noted) -> Recovery:
    quick = Power("command", {"off_s": 0.01, "boot_s": 0.05})
    boards: dict[str, Board] = {one.name: dataclasses.replace(one, power=quick) for one in fleet.boards}
    return Recovery(boards, dict.fromkeys(boards, plug), fleet.open, noted, lambda *_: None)


@pytest.fixture(autouse=True)
def _no_long_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "LOOK_AGAIN_S", 0.0)


def test_a_link_that_was_lost_is_no_failure_of_the_board(fleet: Fleet) -> None:
    noted, plug = Noted(), Plug()
    mine = made(fleet, plug, noted)
    for _ in range(5):
        assert mine.after({"queen": lost()}) == {}
    assert (plug.history, noted.events) == ([], [])


def test_a_board_that_does_not_answer_has_its_power_cut_once_and_comes_back(fleet: Fleet) -> None:
    fleet.unreachable["queen"] = lost()
    noted, plug = Noted(), Plug(on_cycle=lambda: fleet.unreachable.clear())
    assert made(fleet, plug, noted).after({"queen": lost(), "king": {"valid": True}}) == {}
    assert plug.history == [False, True]
    assert noted.names() == ["power-cycle", "power-cycled"]
    assert noted.events[-1][1]["ok"] is True


def test_two_failures_are_a_quarantine_with_both_reasons(fleet: Fleet) -> None:
    noted, plug = Noted(), Plug()
    mine = made(fleet, plug, noted)
    assert mine.after({"queen": hung()}) == {}
    found = mine.after({"queen": HungError("process 7 hangs in the kernel (state D)", where="queen")})
    assert set(found) == {"queen"}
    assert found["queen"].startswith("quarantined: no answer")
    assert "state D" in found["queen"]
    assert plug.history == [False, True]  # nothing is tried any more for a board in quarantine
    assert noted.names()[-1] == "quarantined"


def test_a_board_that_stays_dark_after_its_power_was_cut_is_in_quarantine_at_once(fleet: Fleet) -> None:
    fleet.unreachable["queen"] = lost()
    found = made(fleet, Plug(), Noted()).after({"queen": lost()})
    assert "does not come back" in found["queen"]


def test_a_switch_that_does_not_obey_is_the_second_failure(fleet: Fleet) -> None:
    found = made(fleet, Plug(fails=True), Noted()).after({"queen": hung()})
    assert "the relay sticks" in found["queen"]


def test_without_a_switch_failures_are_counted_all_the_same(fleet: Fleet) -> None:
    fleet.unreachable["queen"] = lost()
    mine = made(fleet, None, Noted())
    assert mine.after({"queen": lost()}) == {}
    assert set(mine.after({"queen": lost()})) == {"queen"}


def test_power_is_on_again_whatever_interrupts_the_pause(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    plug = Plug()
    mine = made(fleet, plug, Noted())

    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(recovery, "_pause", interrupt)
    with pytest.raises(KeyboardInterrupt):
        mine._cycle(mine.boards["queen"], plug, "a test")
    assert plug.history == [False, True]


def test_a_run_that_does_not_count_is_no_failure_of_the_board(fleet: Fleet) -> None:
    mine = made(fleet, Plug(), Noted())
    for _ in range(3):
        assert mine.after({"queen": RigError("soc-thermal is at 61 degC", where="queen", transient=True)}) == {}


@pytest.mark.parametrize(
    ("state", "ended", "kind"), [("D", False, HungError), ("D", True, RigError), ("S", False, RigError)]
)
def test_a_stray_that_sits_in_the_kernel_makes_the_board_hang(state: str, ended: bool, kind: type[RigError]) -> None:
    stray = {"pid": 7, "state": state, "ended": ended}
    error = refusal([{"gate": "strays", "ok": False, "saw": {"found": [stray]}}], "not at the start", "queen")
    assert type(error) is kind
    assert error.transient
    assert error.where == "queen"


def test_a_campaign_leaves_a_board_in_quarantine_out_and_the_others_go_on(bench: Any, fleet: Fleet) -> None:
    fleet["queen"].fail("prepare", hung(), times=1000)
    outcome = bench()
    assert (outcome.valid, outcome.missing) == (2, 2)
    assert fleet["queen"].verbs().count("prepare") == 2  # of four attempts that its cells would have had
    import json

    missing = {
        entry["cell"]: entry["why"] for entry in json.loads((outcome.path / "verdict.json").read_text())["missing"]
    }
    assert missing["004-fanless-queen"].startswith("quarantined: ")
