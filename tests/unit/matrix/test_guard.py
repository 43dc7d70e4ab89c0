"""Which guard a board gets, what it is asked to do about its fan, and that no matrix can drop its verdict."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_boards import MATRIX, Fleet, write_project

from boardbench.inventory import Access, Board, Cooling, Identity
from boardbench.matrix import campaign
from boardbench.matrix.cooling.drivers import driver_of
from boardbench.matrix.guard import DEFAULTS, Guard, guards_of, request
from boardbench.matrix.load import load_matrix
from boardbench.results import store
from boardbench.results.validate import validate

OWN = Guard(("tj-thermal",), 80.0)


def board(kind: str = "jetson-orin-nano", driver: str = "virtual", **options: object) -> Board:
    access = Access("192.0.2.2")
    return Board("b", kind, access, (), frozenset(), Cooling(driver, options), Identity(), {}, "lab.yml:3")


def test_a_matrix_s_own_guard_wins_and_a_kind_nobody_knows_has_none() -> None:
    boards = [board(), replace(board("nanopi-r76s"), name="king"), replace(board("host"), name="server")]
    assert guards_of(None, boards) == {"b": DEFAULTS["jetson-orin-nano"], "king": DEFAULTS["nanopi-r76s"]}
    assert guards_of(OWN, boards) == {"b": OWN, "king": OWN, "server": OWN}
    # The kernel's own passive trip is at 99 degC.
    assert DEFAULTS["jetson-orin-nano"].above_celsius < 99


def fan_of(made: Board) -> list[dict[str, Any]]:
    asked = request(OWN, driver_of(made, None), 60.0)
    assert asked is not None
    assert (asked["zone_types"], asked["above_celsius"], asked["period_s"]) == (["tj-thermal"], 80.0, 0.1)
    return [dict(step["args"]) for step in asked["fan"]]


def test_the_fan_is_put_back_by_what_the_board_can_switch_itself() -> None:
    assert fan_of(board())[0]["value"] == "1"
    assert fan_of(board(driver="hwmon", name="pwmfan", zone="tj-thermal"))[0]["level"] == 255
    argv = {"active": ["/bin/on"], "fanless": ["/bin/off"], "read": ["/bin/read"]}
    assert fan_of(board(driver="command", where="board", **argv)) == [{"argv": ["/bin/on"]}]


def test_a_fan_outside_the_board_is_not_touched_by_asking_for_a_guard(tmp_path: Path) -> None:
    mark = tmp_path / "switched"
    argv = {"active": ["/usr/bin/touch", str(mark)], "fanless": ["/bin/false"], "read": ["/bin/false"]}
    assert fan_of(board(driver="command", **argv)) == []
    assert fan_of(board(driver="http", device="shelly", address="http://192.0.2.20")) == []
    assert not mark.exists()
    assert request(None, None, 1.0) is None


def test_the_plan_locks_the_guard_and_the_board_gets_it(tmp_path: Path, fleet: Fleet) -> None:
    matrix, payloads = write_project(tmp_path)
    matrix.write_text(MATRIX + "guard: {zone_types: [soc-thermal], above_celsius: 90}\n")
    assert load_matrix(matrix).guard == Guard(("soc-thermal",), 90.0)
    outcome = campaign.run(
        matrix, fleet.inventory, fleet.boards, results_dir=tmp_path / "results", open_door=fleet.open,
        payloads_dir=payloads,
    )  # fmt: skip
    plan = store.read_object(outcome.path / "plan.json")
    own = {"zone_types": ["soc-thermal"], "above_celsius": 90.0}
    assert plan["guard"] == {"king": own, "queen": own}
    assert validate(outcome.path) == []


def test_a_run_that_the_guard_ended_does_not_count_whatever_gates_are_named(tmp_path: Path, fleet: Fleet) -> None:
    finish = fleet["king"].verb_finish

    def verb_finish(args: Any) -> Any:
        answer = finish(args)
        answer["evidence"].append({"gate": "guard", "ok": False, "saw": {}, "why": "it ended the load"})
        return answer

    fleet["king"].verb_finish = verb_finish  # type: ignore[method-assign]
    matrix, payloads = write_project(tmp_path)
    matrix.write_text(MATRIX + "gates: [strays]\n")
    outcome = campaign.run(
        matrix, fleet.inventory, fleet.boards, results_dir=tmp_path / "results", open_door=fleet.open,
        payloads_dir=payloads,
    )  # fmt: skip
    assert (outcome.valid, outcome.invalid) == (2, 2)
    runs = [store.read_object(path) for path in outcome.path.glob("cells/*king*/*/run.json")]
    assert {reason["code"] for run in runs for reason in run["invalid_reasons"]} == {"overheated"}  # type: ignore[attr-defined]


@pytest.mark.parametrize("limit", ["hot", "20", "200"])
def test_a_limit_that_is_none_is_told_with_its_line(tmp_path: Path, limit: str) -> None:
    matrix, _ = write_project(tmp_path)
    matrix.write_text(MATRIX + f"guard: {{zone_types: [soc-thermal], above_celsius: {limit}}}\n")
    with pytest.raises(Exception, match=r"small\.yml:\d+.*above_celsius"):
        load_matrix(matrix)
