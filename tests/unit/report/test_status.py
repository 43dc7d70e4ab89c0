"""What `status` shows and, above all, whom it leaves alone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from boardbench.errors import UnreachableError
from boardbench.inventory import Access, Board, Cooling, Identity
from boardbench.matrix.progress_file import Running, Said
from boardbench.report import status, status_watch
from boardbench.report.status import Answer, Followed
from boardbench.report.status_table import status_table

NOW = 1_800_000_000.0
CAMPAIGN = "20260101T000000Z-0123abcd"


def board(name: str, host: str = "") -> Board:
    return Board(
        name, "nanopi-r76s", Access(host or f"10.0.0.{ord(name[0])}"), (), frozenset(), Cooling(), Identity(), {}, "x"
    )


def running(phase: str, *, since_s: float = 5.0, alive: bool | None = True, **changes: Any) -> Running:
    window = phase in ("start", "measure")
    base = Running(
        folder=Path("/results/small") / CAMPAIGN, matrix="small", owner="ada", host="desk", alive=alive,
        boards={"king": "/10.0.0.107:22", "queen": "/10.0.0.113:22"}, wave=2, waves=4, ends_wall_unix_s=NOW + 90,
        updated_wall_unix_s=NOW - 1, news=Said(phase, f"{phase} 2 boards", NOW - 1, NOW - since_s), news_of={},
        in_window={"king": window, "queen": window},
    )  # fmt: skip
    return replace(base, **changes)


def followed(phase: str, **changes: Any) -> Followed:
    cells = {
        (2, "king"): {"name": "003-active-king", "number": 3},
        (2, "queen"): {"name": "004-active-queen", "number": 4},
    }
    return Followed(running(phase, **changes), cells, 8, 30.0)


def said(**changes: Any) -> dict[str, Any]:
    value: dict[str, Any] = {
        "boot_id": "b", "clock": {}, "lease": {"held": False, "note": "nobody holds it"}, "runs": [], "scopes": [],
        "thermal": [{"type": "soc-thermal", "name": "soc-thermal", "celsius": 61.2}],
        "cpu_policies": [{"policy": "policy0", "cur_khz": 1416000, "max_khz": 2016000, "hw_max_khz": 2016000}],
        "devfreq": [{"name": "npu", "kind": "npu", "cur_hz": 950_000_000, "max_hz": 950_000_000}],
    }  # fmt: skip
    return value | changes


HELD = {
    "held": True,
    "note": "",
    "owner": "bob",
    "host": "lab",
    "campaign": "20260202T000000Z-89abcdef",
    "left_s": 100.0,
}


@pytest.mark.parametrize("phase", ["prepare", "start", "measure"])
def test_no_byte_goes_to_a_board_that_is_or_will_soon_be_measured(phase: str) -> None:
    campaign = followed(phase)
    assert campaign.hands_off(NOW) != ""
    assert not status.may_ask(campaign, None, NOW, every_s=5, busy_s=60)


@pytest.mark.parametrize("phase", ["lease", "collect", "retry", "restore"])
def test_between_loads_boards_may_be_asked(phase: str) -> None:
    assert status.may_ask(followed(phase), None, NOW, every_s=5, busy_s=60)


def test_a_board_that_dropped_out_is_left_alone_as_long_as_its_wave_is_measured() -> None:
    lost = {"king": Said("lost", "lost at start: no answer", NOW - 3, NOW - 3)}
    campaign = followed("measure", news_of=lost)
    assert not status.may_ask(campaign, None, NOW, every_s=5, busy_s=60)
    line = status.board_status(board("king"), campaign, None, NOW)
    assert (line.phase, line.waits_for) == ("lost", "lost at start: no answer")


def test_the_load_of_a_killed_controller_is_not_disturbed_before_its_end() -> None:
    campaign = followed("measure", alive=False, since_s=20.0)
    assert "may still run" in campaign.hands_off(NOW)
    assert campaign.hands_off(NOW + 30.0 + status.SLACK_S) == ""
    assert followed("prepare", alive=False).hands_off(NOW) == ""
    assert "controller is gone" in status.board_status(board("king"), campaign, None, NOW).notes[0]
    assert status.board_status(board("king"), campaign, None, NOW).eta_s is None


def test_without_a_plan_the_load_of_a_killed_controller_is_never_taken_for_ended() -> None:
    campaign = Followed(running("measure", alive=False), {}, 0, None)
    assert campaign.hands_off(NOW + 1e6) != ""


def test_a_line_holds_cell_wave_reason_and_eta_without_asking() -> None:
    news = {"king": Said("prepare", "cooling: 61.2 -> 52.5 degC, below 50 wanted", NOW, NOW)}
    line = status.board_status(board("king"), followed("prepare", news_of=news), None, NOW)
    assert (line.campaign, line.cell, line.cell_number, line.cells) == (CAMPAIGN, "003-active-king", 3, 8)
    assert (line.wave, line.waves, line.eta_s, line.in_window) == (2, 4, 90.0, False)
    assert line.waits_for == "cooling: 61.2 -> 52.5 degC, below 50 wanted"
    assert line.celsius == 52.5
    assert line.cpu_mhz == {"missing": "not asked: about to be measured"}
    assert line.asked == "not asked: about to be measured"


def test_a_board_is_known_by_its_address_too() -> None:
    assert status.followed_by(board("kingsley", "10.0.0.107"), [followed("measure")]) is not None
    assert status.followed_by(board("jack"), [followed("measure")]) is None


def test_a_running_campaign_counts_before_one_whose_controller_is_gone() -> None:
    dead, alive = followed("measure", alive=False), followed("collect")
    assert status.followed_by(board("king"), [alive, dead]) is alive


def test_an_answer_gives_temperature_clocks_and_lease() -> None:
    answer = Answer(said(lease=HELD | {"campaign": CAMPAIGN}), NOW - 10)
    line = status.board_status(board("king"), followed("collect"), answer, NOW)
    assert (line.celsius, line.cpu_mhz, line.npu_mhz) == (61.2, [1416], 950)
    assert line.lease == {"owner": "bob", "host": "lab", "campaign": CAMPAIGN, "left_s": 90.0}
    assert line.asked == "asked 10 s ago"
    assert line.notes == []


def test_readings_that_fail_stay_missing() -> None:
    gone = {"missing": "sensor off (EAGAIN)"}
    value = said(
        thermal=[{"type": "soc-thermal", "name": "soc-thermal", "celsius": gone}],
        cpu_policies=[{"policy": "policy0", "cur_khz": gone, "max_khz": 1, "hw_max_khz": 1}],
        devfreq=[],
    )
    line = status.board_status(board("king"), None, Answer(value, NOW), NOW)
    assert (line.celsius, line.cpu_mhz) == (gone, [gone])
    assert line.npu_mhz == {"missing": "no NPU or GPU clock"}
    assert "EAGAIN" in shown([line])


def test_a_campaign_from_elsewhere_is_told_by_lease_and_run_state_and_so_is_what_is_not_known() -> None:
    run = {"run": "89abcdef-001-a1", "campaign": HELD["campaign"], "phase": "started", "load_runs": True, "started": {}}
    line = status.board_status(board("king"), None, Answer(said(lease=HELD, runs=[run]), NOW), NOW)
    assert (line.campaign, line.controller, line.phase, line.in_window) == (
        HELD["campaign"],
        "bob@lab",
        "measure",
        True,
    )
    assert line.cell_number is None
    assert line.eta_s is None
    assert any("not known here" in note for note in line.notes)


def test_a_board_that_is_busy_for_somebody_unknown_is_asked_rarely() -> None:
    idle, held = Answer(said(), NOW - 10), Answer(said(lease=HELD), NOW - 10)
    assert status.may_ask(None, idle, NOW, every_s=5, busy_s=60)
    assert not status.may_ask(None, held, NOW, every_s=5, busy_s=60)
    assert status.may_ask(None, held, NOW + 50, every_s=5, busy_s=60)


def test_changes_that_a_dead_campaign_left_are_said_and_what_provision_changed_is_not() -> None:
    line = status.board_status(board("king"), None, Answer(said(scopes=["provision", "campaign-x"]), NOW), NOW)
    assert [note for note in line.notes if "campaign-x" in note]
    assert not [note for note in line.notes if "provision" in note]


def test_another_campaign_on_a_board_of_ours_is_said() -> None:
    line = status.board_status(board("king"), followed("collect"), Answer(said(lease=HELD), NOW), NOW)
    assert any("held for another campaign" in note for note in line.notes)


def test_a_silent_campaign_is_said() -> None:
    line = status.board_status(board("king"), followed("measure", updated_wall_unix_s=NOW - 75), None, NOW)
    assert line.notes == ["no news of the campaign for 75 s"]


def test_a_board_that_does_not_answer_is_an_error_in_its_line() -> None:
    error = UnreachableError("no route", where="king")
    line = status.board_status(board("king"), None, Answer(error, NOW), NOW)
    assert line.error == "king: no route"
    assert "no answer" in shown([line])


def shown(lines: list[status.BoardStatus]) -> str:
    console = Console(width=118, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(status_table(lines, ["a note"]))
    return console.export_text()


def test_the_table_and_json_hold_a_whole_line() -> None:
    line = status.board_status(board("king"), followed("measure"), None, NOW)
    text = shown([line])
    for part in ("king", "0123abcd 2/4", "3 of 8", "measure", "ada@desk", "1:30", "a note", "in its measured window"):
        assert part in text, part
    assert json.loads(json.dumps(line.as_json(), allow_nan=False))["in_window"] is True


class Doors:
    """Boards that answer `status`; whom was asked is kept."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def open(self, board: Board) -> Any:
        self.asked.append(board.name)
        return self

    def call(self, verb: str, args: dict[str, object], *, deadline_s: float) -> Any:
        assert verb == "status"
        return said()

    def __enter__(self) -> Doors:
        return self

    def __exit__(self, *_: object) -> None:
        return


def watch(tmp_path: Path, doors: Doors, phase: str, **more: Any) -> status_watch.Watch:
    folder = tmp_path / "small" / CAMPAIGN
    folder.mkdir(parents=True, exist_ok=True)
    news = {"phase": phase, "message": "m", "wall_unix_s": NOW, "since_wall_unix_s": NOW}
    document = {
        "matrix": "small", "owner": "ada", "controller": {"host": "elsewhere"}, "boards": {"king": "x"}, "wave": 1,
        "waves": 1, "ends_wall_unix_s": None, "updated_wall_unix_s": NOW, "news": news, "news_of": {},
        "in_window": {"king": phase == "measure"},
    }  # fmt: skip
    (folder / "progress.json").write_text(json.dumps(document))
    plan = {
        "cells": [{"name": "001-a-king", "number": 1, "wave": 1, "boards": ["king"]}],
        "wall_time": {"duration_s": 9.0},
    }
    (folder / "plan.json").write_text(json.dumps(plan))
    return status_watch.Watch([board("king"), board("jack")], tmp_path, doors.open, now=lambda: NOW, **more)


def test_watch_asks_only_boards_outside_of_windows(tmp_path: Path) -> None:
    doors = Doors()
    assert watch(tmp_path, doors, "measure").ask() == ["jack"]
    assert doors.asked == ["jack"]
    assert watch(tmp_path, doors, "measure", ask_all=True).ask() == ["king", "jack"]


def test_an_answer_from_before_the_window_does_not_count_in_it(tmp_path: Path) -> None:
    looking = watch(tmp_path, Doors(), "collect")
    assert looking.ask() == ["king", "jack"]
    assert looking.lines()[0].celsius == 61.2
    watch(tmp_path, Doors(), "measure")
    assert looking.lines()[0].celsius == {"missing": "not asked: in its measured window"}
    assert looking.ask() == []


def test_where_progress_cannot_be_read_no_board_is_asked_and_it_is_said(tmp_path: Path) -> None:
    doors = Doors()
    looking = watch(tmp_path, doors, "collect")
    (tmp_path / "small" / CAMPAIGN / "progress.json").write_text("{")
    assert looking.ask() == []
    assert doors.asked == []
    assert any("progress.json" in note for note in looking.notes())


def test_without_a_plan_the_window_still_holds(tmp_path: Path) -> None:
    looking = watch(tmp_path, Doors(), "measure")
    (tmp_path / "small" / CAMPAIGN / "plan.json").unlink()
    assert looking.ask() == []
    assert looking.lines()[0].asked == "not asked: in its measured window"


def test_where_no_campaign_runs_from_here_it_is_said_what_that_means(tmp_path: Path) -> None:
    looking = status_watch.Watch([board("jack")], tmp_path, Doors().open)
    assert "known by leases only" in looking.notes()[0]
