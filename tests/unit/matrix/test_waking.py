"""Boards that do not answer at a campaign's start: brought back by their power, or left out with a reason."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_boards import Fleet

from boardbench.errors import DeadlineError, HostKeyError, RigError, UnreachableError
from boardbench.inventory import Board, Power
from boardbench.matrix.power import recovery

Bench = Callable[..., Any]


class Plug:
    """A switch that obeys; `on` is called when it goes on again."""

    def __init__(self, on: Callable[[], object] = lambda: None) -> None:
        self.history: list[bool] = []
        self._on = on

    def set(self, on: bool) -> None:
        self.history.append(on)
        if on:
            self._on()

    def get(self) -> bool:
        return self.history[-1]


@pytest.fixture
def plugs(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> dict[str, Plug]:
    """Switches by board. Boards that have one are off for no time and may boot for no time."""
    found: dict[str, Plug] = {}

    def of(board: Board) -> Plug | None:
        return found.get(board.name)

    monkeypatch.setattr(recovery, "power_of", of)
    monkeypatch.setattr(recovery, "LOOK_AGAIN_S", 0.0)
    quick = Power("command", {"off_s": 0.01, "boot_s": 0.05})
    fleet.boards = tuple(dataclasses.replace(board, power=quick) for board in fleet.boards)
    return found


def silent(name: str = "queen") -> UnreachableError:
    return UnreachableError("no answer", where=name)


def journal(campaign: Path) -> list[tuple[str, dict[str, Any]]]:
    lines = [json.loads(line) for line in (campaign / "journal.jsonl").read_text().splitlines()]
    return [(line["event"], line["fields"]) for line in lines]


def missing(campaign: Path) -> dict[str, str]:
    return {entry["cell"]: entry["why"] for entry in json.loads((campaign / "verdict.json").read_text())["missing"]}


def test_a_board_that_is_down_at_the_start_is_brought_back_and_measured(
    bench: Bench, fleet: Fleet, plugs: dict[str, Plug]
) -> None:
    fleet.unreachable["queen"] = silent()
    plugs["queen"] = Plug(fleet.unreachable.clear)
    outcome = bench()
    assert (outcome.valid, outcome.missing) == (4, 0)
    assert plugs["queen"].history == [False, True]
    events = [(event, fields) for event, fields in journal(outcome.path) if event.startswith("power")]
    assert [event for event, _ in events] == ["power-cycle", "power-cycled"]
    assert events[1][1] == {"board": "queen", "ok": True, "why": ""}
    assert (outcome.path / "boards/queen/facts-before.json").is_file()


def test_all_boards_may_be_down(bench: Bench, fleet: Fleet, plugs: dict[str, Plug]) -> None:
    for name in ("king", "queen"):
        fleet.unreachable[name] = silent(name)
        plugs[name] = Plug(lambda name=name: fleet.unreachable.pop(name))
    assert bench().valid == 4


def test_a_board_that_stays_dark_is_left_out_with_both_reasons(
    bench: Bench, fleet: Fleet, plugs: dict[str, Plug]
) -> None:
    fleet.unreachable["queen"] = silent()
    plugs["queen"] = Plug()
    outcome = bench()
    assert (outcome.valid, outcome.missing) == (2, 2)
    why = missing(outcome.path)["002-active-queen"]
    assert why.startswith("quarantined: no answer; then: does not come back within 0.05 s")
    assert plugs["queen"].history == [False, True], "its power is cut once"
    assert "quarantined" in [event for event, _ in journal(outcome.path)]


def test_a_board_that_comes_back_and_gives_no_facts_has_failed_twice(
    bench: Bench, fleet: Fleet, plugs: dict[str, Plug]
) -> None:
    fleet["queen"].fail("facts", DeadlineError("facts took too long", where="queen"), times=99)
    plugs["queen"] = Plug()
    outcome = bench()
    assert missing(outcome.path)["004-fanless-queen"].startswith("quarantined: facts took too long; then: facts took")
    assert plugs["queen"].history == [False, True]


def test_a_failure_at_the_start_counts_in_the_campaign(bench: Bench, fleet: Fleet, plugs: dict[str, Plug]) -> None:
    fleet.unreachable["queen"] = silent()
    plugs["queen"] = Plug(fleet.unreachable.clear)
    fleet["queen"].fail("prepare", DeadlineError("no answer within the deadline", where="queen"), times=99)
    outcome = bench()
    assert fleet["queen"].verbs().count("prepare") == 1
    assert missing(outcome.path)["004-fanless-queen"].startswith("quarantined: no answer; then: no answer within")


def test_without_a_switch_a_board_that_is_down_is_only_left_out(
    bench: Bench, fleet: Fleet, plugs: dict[str, Plug]
) -> None:
    fleet.unreachable["queen"] = silent()
    plugs["king"] = Plug()
    outcome = bench()
    assert missing(outcome.path)["002-active-queen"].startswith("not reached at the start: ")
    assert plugs["king"].history == []


def test_a_board_that_answers_as_another_machine_keeps_its_power(
    bench: Bench, fleet: Fleet, plugs: dict[str, Plug]
) -> None:
    fleet.unreachable["queen"] = HostKeyError("shows another key", where="queen")
    plugs["queen"] = Plug()
    assert bench().missing == 2
    assert plugs["queen"].history == []


def test_no_power_is_cut_while_another_campaign_holds_a_board(
    bench: Bench, fleet: Fleet, plugs: dict[str, Plug]
) -> None:
    """The silent board may be that campaign's, which is rebooting it."""
    fleet.unreachable["queen"] = silent()
    plugs["queen"] = Plug(fleet.unreachable.clear)
    fleet["king"].lease = {"owner": "ann", "host": "lab", "campaign": "c-1", "process": None}
    with pytest.raises(RigError, match="held by ann"):
        bench()
    assert plugs["queen"].history == []


def test_the_boards_are_held_while_a_power_is_cut_and_given_back_whatever_happens(
    bench: Bench, fleet: Fleet, plugs: dict[str, Plug]
) -> None:
    holders: list[object] = []

    def interrupt() -> None:
        holders.append(fleet["king"].lease)
        raise KeyboardInterrupt

    fleet.unreachable["queen"] = silent()
    plugs["queen"] = Plug(interrupt)
    with pytest.raises(KeyboardInterrupt):
        bench()
    assert holders != [None]
    assert fleet["king"].lease is None
