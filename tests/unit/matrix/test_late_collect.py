"""Runs that a lost link left on a board are brought home later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fake_boards import Fleet

from boardbench.errors import UnreachableError
from boardbench.matrix.run_cell import read_raw
from boardbench.results.collect import collect, unfetched
from boardbench.results.validate import validate

Bench = Callable[..., Any]


def lose_queen(fleet: Fleet) -> dict[str, bool]:
    """The queen's link is lost at every watch, until the answer's `lost` is set to False."""
    state = {"lost": True}

    def hook(*_: object) -> None:
        if state["lost"]:
            raise UnreachableError("the link is lost", where="queen")

    fleet["queen"].on("watch", hook)
    return state


def test_nothing_is_left_after_a_good_campaign(bench: Bench, fleet: Fleet) -> None:
    outcome = bench()
    results = outcome.path.parents[1]
    assert unfetched(results) == []
    done = collect(results, fleet.boards, open_door=fleet.open, read_raw=read_raw)
    assert (done.fetched, done.failed) == ((), ())


def test_what_was_left_is_fetched_and_the_campaign_is_whole_again(bench: Bench, fleet: Fleet) -> None:
    state = lose_queen(fleet)
    outcome = bench()
    assert outcome.missing == 2
    results = outcome.path.parents[1]
    assert {late.attempt.board for late in unfetched(results)} == {"queen"}
    state["lost"] = False
    done = collect(results, fleet.boards, open_door=fleet.open, read_raw=read_raw)
    assert len(done.fetched) == 2  # a run that may lie on the board is not made again
    assert done.failed == ()
    assert validate(outcome.path) == []
    assert fleet["queen"].runs == {}


def test_a_board_that_is_still_away_is_said_and_changes_nothing(bench: Bench, fleet: Fleet) -> None:
    lose_queen(fleet)
    outcome = bench()
    before = (outcome.path / "MANIFEST.sha256").read_bytes()
    done = collect(outcome.path.parents[1], fleet.boards, open_door=fleet.open, read_raw=read_raw)
    assert done.fetched == ()
    assert {error.where for _, error in done.failed} == {"queen"}
    assert (outcome.path / "MANIFEST.sha256").read_bytes() == before


def test_a_board_in_use_by_another_campaign_is_left_alone(bench: Bench, fleet: Fleet) -> None:
    state = lose_queen(fleet)
    outcome = bench()
    state["lost"] = False
    fleet["queen"].lease = {"owner": "ann", "host": "lab", "campaign": "another"}
    calls = len(fleet["queen"].log)
    done = collect(outcome.path.parents[1], fleet.boards, open_door=fleet.open, read_raw=read_raw)
    assert done.fetched == ()
    assert "in use by campaign another" in str(done.failed[0][1])
    assert {verb for verb, _ in fleet["queen"].log[calls:]} == {"lease"}


def test_the_journal_of_a_killed_controller_is_enough(bench: Bench, fleet: Fleet) -> None:
    state = lose_queen(fleet)
    outcome = bench()
    state["lost"] = False
    for name in ("verdict.json", "MANIFEST.sha256"):
        (outcome.path / name).unlink()
    with (outcome.path / "journal.jsonl").open("a") as journal:
        journal.write('{"event": "clo')
    collect(outcome.path.parents[1], fleet.boards, open_door=fleet.open, read_raw=read_raw)
    assert (outcome.path / "verdict.json").exists()
    assert {problem.file for problem in validate(outcome.path)} == {"journal.jsonl"}
