"""The run loop against fake boards: what a campaign leaves behind, whatever goes wrong."""

from __future__ import annotations

import json
import signal
import tarfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_boards import TIME_SCALE, Fleet

from boardbench.errors import InputError, RigError, UnreachableError
from boardbench.results.validate import validate

Bench = Callable[..., Any]


def lost() -> UnreachableError:
    return UnreachableError("the link is lost", where="queen")


def verdict(outcome: Any) -> Any:
    return json.loads((outcome.path / "verdict.json").read_text())


def only_campaign(tmp_path: Path) -> Path:
    (folder,) = (tmp_path / "results" / "small").iterdir()
    return folder


def events(folder: Path) -> list[str]:
    return [json.loads(line)["event"] for line in (folder / "journal.jsonl").read_text().splitlines()]


def as_before(fleet: Fleet) -> bool:
    return all(
        board.fan == "1" and board.governor == "ondemand" and board.lease is None and board.open_doors == 0
        for board in fleet.fakes.values()
    )


def test_all_cells_valid_and_the_folder_validates(bench: Bench, fleet: Fleet) -> None:
    outcome = bench()
    assert (outcome.cells, outcome.valid, outcome.invalid, outcome.missing) == (4, 4, 0, 0)
    assert outcome.good
    assert validate(outcome.path) == []
    assert as_before(fleet)
    assert all(not board.runs for board in fleet.fakes.values())


def test_run_json_holds_the_conditions_of_the_run(bench: Bench) -> None:
    outcome = bench()
    run = json.loads((outcome.path / "cells/003-fanless-king/attempt-1/run.json").read_text())
    assert run["arm"] == {"cooling": "fanless"}
    assert run["virtual"] is True
    assert run["time_scale"] == TIME_SCALE
    assert run["logger_period_s"] == pytest.approx(0.1)
    assert run["valid"] is True
    start_s, end_s = run["load_window_monotonic_s"]
    assert end_s - start_s == pytest.approx(0.02, rel=0.01)


def test_times_on_the_wire_are_divided_by_the_time_scale(bench: Bench, fleet: Fleet) -> None:
    bench()
    calls = dict(fleet["king"].log)
    argv = calls["start"]["exec"]
    assert argv[argv.index("--duration-s") + 1] == "0.02"
    assert calls["prepare"]["cool"]["timeout_s"] == pytest.approx(600 / TIME_SCALE)


def test_the_fan_follows_the_phase(bench: Bench, fleet: Fleet) -> None:
    seen: list[str] = []
    fleet["king"].on("start", lambda board, _: seen.append(board.fan))
    bench()
    assert seen == ["1", "0"]


def test_a_fan_that_somebody_switched_during_the_load_takes_the_run_out(bench: Bench, fleet: Fleet) -> None:
    def switch_on(board: Any, args: Any) -> None:
        if args["run"].endswith("003-a1"):
            board.fan = "1"

    fleet["king"].on("start", switch_on)
    outcome = bench()
    first = json.loads((outcome.path / "cells/003-fanless-king/attempt-1/run.json").read_text())
    assert [reason["code"] for reason in first["invalid_reasons"]] == ["cooling-not-as-planned"]
    assert outcome.valid == 4


def test_the_plan_is_on_disk_before_a_board_is_touched(bench: Bench, fleet: Fleet, tmp_path: Path) -> None:
    there: list[bool] = []
    fleet["king"].on("lease", lambda *_: there.append((only_campaign(tmp_path) / "plan.json").exists()))
    bench()
    assert there
    assert all(there)


def test_no_connection_is_open_while_the_load_runs(bench: Bench, fleet: Fleet, monkeypatch: Any) -> None:
    from boardbench.matrix import wave

    open_doors: list[int] = []
    real = wave._Wave._leave_alone

    def spy(self: Any) -> None:
        open_doors.append(sum(board.open_doors for board in fleet.fakes.values()))
        real(self)

    monkeypatch.setattr(wave._Wave, "_leave_alone", spy)
    bench()
    assert open_doors == [0, 0]


def test_no_board_starts_before_all_are_prepared(bench: Bench, fleet: Fleet) -> None:
    order: list[tuple[str, str]] = []
    for board in fleet.fakes.values():
        for verb in ("prepare", "start"):
            board.on(verb, lambda b, _, verb=verb: order.append((verb, b.name)))
    bench()
    assert [verb for verb, _ in order] == ["prepare", "prepare", "start", "start"] * 2


@pytest.mark.parametrize("verb", ["prepare", "start", "watch", "finish", "fetch"])
def test_a_board_that_stays_lost_costs_only_its_own_cells(bench: Bench, fleet: Fleet, verb: str) -> None:
    fleet["queen"].fail(verb, lost(), times=1000)
    outcome = bench()
    assert (outcome.valid, outcome.missing) == (2, 2)
    assert not outcome.good
    said = verdict(outcome)
    assert [entry["cell"] for entry in said["missing"]] == ["002-active-queen", "004-fanless-queen"]
    assert all("the link is lost" in entry["why"] for entry in said["missing"])
    assert as_before(fleet)


@pytest.mark.parametrize("verb", ["prepare", "start", "watch", "finish", "fetch", "forget"])
def test_a_link_lost_once_costs_nothing(bench: Bench, fleet: Fleet, verb: str) -> None:
    fleet["queen"].fail(verb, lost())
    outcome = bench()
    assert outcome.valid == 4
    assert validate(outcome.path) == []


def test_a_board_that_is_down_at_the_start_costs_only_its_own_cells(bench: Bench, fleet: Fleet) -> None:
    fleet.unreachable["queen"] = lost()
    outcome = bench()
    assert (outcome.valid, outcome.missing) == (2, 2)
    assert "not reached at the start" in verdict(outcome)["missing"][0]["why"]


def test_nothing_runs_when_no_board_answers(bench: Bench, fleet: Fleet, tmp_path: Path) -> None:
    fleet.unreachable = {"king": lost(), "queen": lost()}
    with pytest.raises(UnreachableError):
        bench()
    assert not (tmp_path / "results").exists()


def test_an_invalid_attempt_is_kept_and_tried_again(bench: Bench, fleet: Fleet) -> None:
    def fail_first(board: Any, args: Any) -> None:
        board.exit = {"code": 3} if args["run"].endswith("001-a1") else {"code": 0}

    fleet["king"].on("watch", fail_first)
    outcome = bench()
    assert outcome.valid == 4
    first = json.loads((outcome.path / "cells/001-active-king/attempt-1/run.json").read_text())
    assert first["valid"] is False
    assert "workload-failed" in [reason["code"] for reason in first["invalid_reasons"]]
    assert (outcome.path / "cells/001-active-king/attempt-2/run.json").exists()
    assert validate(outcome.path) == []


def test_attempts_end(bench: Bench, fleet: Fleet) -> None:
    fleet["king"].exit = {"signal": 9}
    outcome = bench()
    assert (outcome.valid, outcome.invalid) == (2, 2)
    assert fleet["king"].verbs().count("start") == 4
    assert any("has no valid attempt: workload-failed" in problem.what for problem in validate(outcome.path))


def test_a_board_that_does_not_get_cool_is_not_measured(bench: Bench, fleet: Fleet) -> None:
    fleet["king"].cool_ok = False
    outcome = bench()
    assert (outcome.valid, outcome.missing) == (2, 2)
    assert "start" not in fleet["king"].verbs()
    assert "cool: soc-thermal is at 61.0 degC" in verdict(outcome)["missing"][0]["why"]
    assert as_before(fleet)


def test_a_reboot_during_the_load_makes_the_run_invalid(bench: Bench, fleet: Fleet) -> None:
    def reboot(board: Any, args: Any) -> None:
        if args["run"].endswith("001-a1"):
            board.boot_id, board.lease = "another-boot", None

    fleet["king"].on("watch", reboot)
    outcome = bench()
    first = json.loads((outcome.path / "cells/001-active-king/attempt-1/run.json").read_text())
    assert "rebooted" in [reason["code"] for reason in first["invalid_reasons"]]
    assert outcome.valid == 4


def test_a_byte_lost_once_in_transfer_is_fetched_again(bench: Bench, fleet: Fleet) -> None:
    fleet["king"].corrupt = 1
    outcome = bench()
    assert outcome.valid == 4
    assert fleet["king"].verbs().count("fetch") == 3


def test_files_that_stay_wrong_are_recorded_and_stay_on_the_board(bench: Bench, fleet: Fleet) -> None:
    fleet["king"].corrupt = 2
    outcome = bench()
    first = json.loads((outcome.path / "cells/001-active-king/attempt-1/run.json").read_text())
    assert "hash-mismatch" in [reason["code"] for reason in first["invalid_reasons"]]
    assert len(fleet["king"].runs) == 1
    assert outcome.valid == 4


@pytest.mark.parametrize("name", ["../../evil", "/tmp/evil", "run.json", "a/../../b"])
def test_names_that_lead_out_of_the_folder_are_refused(bench: Bench, fleet: Fleet, tmp_path: Path, name: str) -> None:
    fleet["king"].extra_members = [tarfile.TarInfo(name)]
    outcome = bench()
    assert outcome.missing == 2
    assert "unsafe name" in verdict(outcome)["missing"][0]["why"]
    assert not list(tmp_path.rglob("evil"))


def test_a_link_in_the_stream_is_refused(bench: Bench, fleet: Fleet) -> None:
    link = tarfile.TarInfo("logs/link")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    fleet["king"].extra_members = [link]
    assert "no plain file" in verdict(bench())["missing"][0]["why"]


def test_a_held_board_stops_the_campaign_and_gives_the_others_back(bench: Bench, fleet: Fleet) -> None:
    other = {"owner": "ann", "host": "lab", "campaign": "another"}
    fleet["queen"].lease = other
    with pytest.raises(RigError, match="ann"):
        bench()
    assert fleet["queen"].lease == other
    assert fleet["king"].lease is None
    for board in fleet.fakes.values():
        assert not {"prepare", "strays", "restore"} & set(board.verbs())


def test_a_wrong_machine_behind_a_name_stops_everything(bench: Bench, fleet: Fleet, tmp_path: Path) -> None:
    fleet["king"].hostname = "jack"
    with pytest.raises(RigError, match="hostname 'jack'"):
        bench()
    assert not (tmp_path / "results").exists()


def test_two_names_for_one_machine_are_refused(bench: Bench, fleet: Fleet) -> None:
    fleet["king"].boot_id = fleet["queen"].boot_id
    with pytest.raises(RigError, match="same machine"):
        bench()


def test_a_board_without_the_payload_as_it_is_here_stops_everything(bench: Bench, fleet: Fleet, tmp_path: Path) -> None:
    fleet["queen"].installed = {"0" * 64}
    with pytest.raises(RigError, match=r"queen: payload burn is not on the board .*inv provision"):
        bench()
    assert not (tmp_path / "results").exists()


def test_a_board_without_room_stops_everything(bench: Bench, fleet: Fleet) -> None:
    fleet["king"].free_bytes = 1000
    with pytest.raises(RigError, match="MB are needed"):
        bench()


def test_boards_of_different_time_scales_are_refused(bench: Bench, fleet: Fleet) -> None:
    fleet["king"].virtual = None
    with pytest.raises(InputError, match="do not run on one time"):
        bench()


def test_boards_are_put_back_after_an_error_of_ours(bench: Bench, fleet: Fleet, tmp_path: Path) -> None:
    def break_it(*_: Any) -> None:
        raise ZeroDivisionError("a bug")

    fleet["king"].on("start", break_it)
    with pytest.raises(Exception, match="a bug"):
        bench()
    assert as_before(fleet)
    assert json.loads((only_campaign(tmp_path) / "verdict.json").read_text())["interrupted"] is True
    assert (only_campaign(tmp_path) / "MANIFEST.sha256").exists()


def test_ctrl_c_abandons_the_wave_and_puts_the_boards_back(bench: Bench, fleet: Fleet, tmp_path: Path) -> None:
    def interrupt(*_: Any) -> None:
        ident = threading.main_thread().ident
        assert ident is not None
        signal.pthread_kill(ident, signal.SIGINT)

    fleet["king"].on("start", interrupt)
    with pytest.raises(KeyboardInterrupt):
        bench()
    assert as_before(fleet)
    assert all(not board.runs for board in fleet.fakes.values())
    folder = only_campaign(tmp_path)
    assert {"abandoned", "restored", "closed"} <= set(events(folder))
    said = json.loads((folder / "verdict.json").read_text())
    assert said["interrupted"] is True
    assert said["counts"]["missing"] == 4


def test_a_board_that_is_not_put_back_is_said(bench: Bench, fleet: Fleet) -> None:
    fleet["king"].fail("restore", RigError("the file cannot be written", where="king"), times=9)
    outcome = bench()
    assert outcome.valid == 4
    assert not outcome.good
    assert "cannot be written" in outcome.not_restored["king"]
    assert any("was not put back" in problem.what for problem in validate(outcome.path))


def test_a_board_taken_over_meanwhile_is_not_touched_any_more(bench: Bench, fleet: Fleet) -> None:
    other = {"owner": "ann", "host": "lab", "campaign": "another"}

    def take_over(board: Any, args: Any) -> None:
        if args["run"].endswith("003-a1"):
            board.lease = other

    fleet["king"].on("start", take_over)
    outcome = bench()
    after = fleet["king"].verbs()[fleet["king"].verbs().index("start", fleet["king"].verbs().index("start") + 1) :]
    assert not {"strays", "restore", "finish"} & set(after)
    assert fleet["king"].lease == other
    assert "king" in outcome.not_restored
