"""What becomes of boards: every step of every board is in the outcome, whatever happens to the door."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from boardbench.errors import BenchError, BugError, DeadlineError, ExitCode, HostKeyError, UnreachableError
from boardbench.inventory import Board
from boardbench.playbook import apply
from boardbench.playbook.recap import Outcome

from . import rig

TWO_STEPS = """\
version: 1
name: two
deadline_s: 77
steps:
  - directory: {path: /opt/a}
  - directory: {path: /opt/b}
"""
TEARDOWN = """\
version: 1
name: down
steps:
  - restore: {scope: campaigns}
  - restore: {scope: provision}
  - purge: {}
"""
Answer = Callable[["FakeDoor", str, Mapping[str, Any], Callable[[dict[str, object]], None] | None], dict[str, object]]


class FakeDoor:
    """A door whose board answers as the test says, and which remembers what it was asked."""

    def __init__(self, board: str, answer: Answer) -> None:
        self.board = board
        self.answer = answer
        self.asked: list[tuple[str, dict[str, Any], float]] = []

    def call(
        self,
        verb: str,
        args: Mapping[str, object],
        *,
        deadline_s: float,
        blobs: Mapping[str, Path | bytes] | None = None,
        on_event: Callable[[dict[str, object]], None] | None = None,
    ) -> dict[str, object]:
        self.asked.append((verb, dict(args), deadline_s))
        return self.answer(self, verb, args, on_event)


class Doors:
    """Opens fake doors; a board in `closed` cannot be opened."""

    def __init__(self, answer: Answer, closed: Mapping[str, BenchError] | None = None) -> None:
        self.answer = answer
        self.closed = closed or {}
        self.opened: dict[str, list[FakeDoor]] = {}

    @contextmanager
    def __call__(self, board: Board) -> Iterator[FakeDoor]:
        if board.name in self.closed:
            raise self.closed[board.name]
        door = FakeDoor(board.name, self.answer)
        self.opened.setdefault(board.name, []).append(door)
        yield door


def step(step_id: str, state: str, **more: object) -> dict[str, object]:
    return {"event": "step", "id": step_id, "resource": "directory", "state": state, "changes": [], **more}


def states_answer(*states: str) -> Answer:
    """`apply` ends with these states, one a step."""

    def answer(_: FakeDoor, verb: str, args: Mapping[str, Any], on_event: Any) -> dict[str, object]:
        assert verb == "apply"
        for wanted, state in zip(args["steps"], states, strict=False):
            on_event(step(wanted["id"], state))
        counts = {name: sum(state == name for state in states) for name in ("ok", "changed", "skipped", "failed")}
        return {"recap": counts}

    return answer


def outcome_of(tmp_path: Path, text: str, doors: Doors, **options: Any) -> Outcome:
    inventory = rig.inventory(tmp_path)
    playbook = rig.playbook(tmp_path, text, inventory)
    return apply.run(inventory, inventory.select(None), playbook, open_door=doors, **options)


def test_each_board_costs_one_door_and_one_call(tmp_path: Path) -> None:
    doors = Doors(states_answer("ok", "ok"))
    outcome = outcome_of(tmp_path, TWO_STEPS, doors)
    assert {name: len(opened) for name, opened in doors.opened.items()} == {"jetson": 1, "king": 1, "queen": 1}
    for (door,) in doors.opened.values():
        assert [(verb, deadline_s) for verb, _, deadline_s in door.asked] == [("apply", 77.0)]
    assert outcome.exit_code == ExitCode.OK


def test_the_recap_counts_what_the_steps_said(tmp_path: Path) -> None:
    outcome = outcome_of(tmp_path, TWO_STEPS, Doors(states_answer("changed", "skipped")))
    assert outcome.as_json() == {
        "recap": {
            name: {"ok": 0, "changed": 1, "skipped": 1, "failed": 0, "unreachable": 0}
            for name in ("jetson", "king", "queen")
        }
    }


def test_steps_after_a_failure_are_skipped_and_the_exit_code_is_1(tmp_path: Path) -> None:
    outcome = outcome_of(tmp_path, TWO_STEPS, Doors(states_answer("failed")))
    king = outcome.boards["king"]
    assert [(found.id, found.state) for found in king.steps] == [
        ("directory /opt/a", "failed"),
        ("directory /opt/b", "skipped"),
    ]
    assert outcome.exit_code == ExitCode.OUTCOME


@pytest.mark.parametrize("error", [UnreachableError("no answer", where="king"), HostKeyError("changed", where="king")])
def test_a_board_that_cannot_be_reached_costs_only_itself(error: BenchError, tmp_path: Path) -> None:
    outcome = outcome_of(tmp_path, TWO_STEPS, Doors(states_answer("ok", "ok"), {"king": error}))
    assert outcome.as_json()["recap"]["king"] == {"ok": 0, "changed": 0, "skipped": 0, "failed": 0, "unreachable": 1}
    assert outcome.as_json()["recap"]["queen"] == {"ok": 2, "changed": 0, "skipped": 0, "failed": 0, "unreachable": 0}
    assert outcome.errors == {"king": error}
    assert outcome.as_json()["errors"]["king"]["where"] == "king"
    assert outcome.exit_code == ExitCode.OUTCOME


def test_when_no_board_can_be_reached_the_rig_is_at_fault(tmp_path: Path) -> None:
    closed = {name: UnreachableError("no answer", where=name) for name in ("jetson", "king", "queen")}
    outcome = outcome_of(tmp_path, TWO_STEPS, Doors(states_answer(), closed))
    assert outcome.exit_code == ExitCode.RIG


def test_a_link_lost_midway_keeps_what_the_board_said_before(tmp_path: Path) -> None:
    def answer(door: FakeDoor, _: str, args: Mapping[str, Any], on_event: Any) -> dict[str, object]:
        on_event(step(args["steps"][0]["id"], "changed"))
        raise UnreachableError("the link is lost", where=door.board)

    outcome = outcome_of(tmp_path, TWO_STEPS, Doors(answer))
    assert outcome.as_json()["recap"]["king"] == {"ok": 0, "changed": 1, "skipped": 0, "failed": 0, "unreachable": 1}
    assert outcome.exit_code == ExitCode.RIG


def test_a_call_that_ends_with_an_error_counts_as_failed(tmp_path: Path) -> None:
    def answer(door: FakeDoor, *_: object) -> dict[str, object]:
        raise DeadlineError("not done in time", where=door.board)

    outcome = outcome_of(tmp_path, TWO_STEPS, Doors(answer))
    assert outcome.as_json()["recap"]["king"] == {"ok": 0, "changed": 0, "skipped": 0, "failed": 1, "unreachable": 0}
    assert isinstance(outcome.errors["king"], DeadlineError)


def test_a_recap_that_contradicts_the_steps_is_not_believed(tmp_path: Path) -> None:
    def answer(_: FakeDoor, __: str, args: Mapping[str, Any], on_event: Any) -> dict[str, object]:
        on_event(step(args["steps"][0]["id"], "ok"))
        return {"recap": {"ok": 0, "changed": 1, "skipped": 0, "failed": 0}}

    outcome = outcome_of(tmp_path, TWO_STEPS, Doors(answer))
    assert isinstance(outcome.errors["king"], BugError)
    assert outcome.boards["king"].recap.failed == 1


def test_events_reach_the_caller_with_the_board_s_name(tmp_path: Path) -> None:
    heard: list[tuple[str, object]] = []
    outcome_of(
        tmp_path,
        TWO_STEPS,
        Doors(states_answer("ok", "changed")),
        on_event=lambda board, event: heard.append((board, event["state"])),
    )
    assert sorted(heard) == sorted((name, state) for name in ("jetson", "king", "queen") for state in ("ok", "changed"))


class Noted:
    """A board with scopes to put back, as the verbs `scopes`, `restore` and `purge` answer."""

    def __init__(self, *scopes: str, bad: str = "") -> None:
        self.scopes = list(scopes)
        self.bad = bad

    def __call__(self, _: FakeDoor, verb: str, args: Mapping[str, Any], __: Any) -> dict[str, object]:
        if verb == "scopes":
            return {"scopes": [{"scope": scope, "changes": 2} for scope in self.scopes]}
        if verb == "restore":
            if args["scope"] not in self.scopes:
                return {"restored": []}
            good = args["scope"] != self.bad
            if good:
                self.scopes.remove(args["scope"])
            entry = {"what": f"of {args['scope']}", "before": "2", "after": "1" if good else "2", "ok": good}
            return {"restored": [{**entry, "why": "" if good else "EACCES"}]}
        assert verb == "purge"
        return {"removed": ["/var/lib/boardbench"]}


def down(tmp_path: Path, board: Noted, **options: Any) -> tuple[Outcome, FakeDoor]:
    inventory = rig.inventory(tmp_path)
    playbook = rig.playbook(tmp_path, TEARDOWN, inventory)
    doors = Doors(board)
    outcome = apply.run(inventory, inventory.select("king"), playbook, open_door=doors, **options)
    return outcome, doors.opened["king"][0]


def test_teardown_puts_back_campaigns_then_provision_then_purges(tmp_path: Path) -> None:
    outcome, door = down(tmp_path, Noted("provision", "c-1", "c-2"))
    changing = [(verb, args.get("scope")) for verb, args, _ in door.asked if verb != "scopes"]
    assert changing == [("restore", "c-1"), ("restore", "c-2"), ("restore", "provision"), ("purge", None)]
    assert outcome.as_json()["recap"]["king"] == {"ok": 0, "changed": 4, "skipped": 0, "failed": 0, "unreachable": 0}


def test_teardown_of_a_clean_board_has_nothing_to_put_back(tmp_path: Path) -> None:
    outcome, door = down(tmp_path, Noted())
    assert [verb for verb, _, _ in door.asked] == ["scopes", "restore", "purge"]
    assert [found.state for found in outcome.boards["king"].steps] == ["ok", "ok", "changed"]


def test_what_cannot_be_put_back_is_a_failure_and_nothing_is_purged(tmp_path: Path) -> None:
    outcome, door = down(tmp_path, Noted("c-1", "provision", bad="c-1"))
    assert "purge" not in [verb for verb, _, _ in door.asked]
    assert outcome.as_json()["recap"]["king"]["failed"] == 1
    assert outcome.boards["king"].steps[0].message == "EACCES"
    assert [found.state for found in outcome.boards["king"].steps] == ["failed", "skipped", "skipped"]


def test_check_of_a_teardown_touches_nothing(tmp_path: Path) -> None:
    outcome, door = down(tmp_path, Noted("provision"), check=True)
    assert {verb for verb, _, _ in door.asked} == {"scopes"}
    assert [(found.id, found.state) for found in outcome.boards["king"].steps] == [
        ("restore campaigns", "ok"),
        ("restore provision", "changed"),
        ("purge", "changed"),
    ]


def test_the_outcome_is_plain_json(tmp_path: Path) -> None:
    outcome = outcome_of(tmp_path, TWO_STEPS, Doors(states_answer("ok", "changed")))
    json.dumps(outcome.as_json(), allow_nan=False)
    assert outcome.boards["king"].steps[0].as_event()["event"] == "step"
