"""Going on with a campaign: what is done stays done, what is left is made, and only by the plan that was locked."""

from __future__ import annotations

import json
import shutil
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_boards import Fleet

from boardbench.errors import InputError, RigError, UnreachableError
from boardbench.matrix import campaign, lease
from boardbench.matrix.heart import Heart
from boardbench.matrix.journal import Journal
from boardbench.matrix.lease import Holder
from boardbench.matrix.resume import newest_unfinished, read
from boardbench.results.validate import validate

Bench = Callable[..., Any]


@pytest.fixture
def resume(tmp_path: Path, fleet: Fleet) -> Callable[..., Any]:
    def run(folder: Path, **other: Any) -> campaign.CampaignOutcome:
        given: dict[str, Any] = {
            "open_door": fleet.open,
            "payloads_dir": tmp_path / "payloads",
            "timings": campaign.Timings(patience_s=0.1, retry_every_s=0.02),
        }
        return campaign.resume(folder, fleet.inventory, **(given | other))

    return run


def stop(*_: Any) -> None:
    ident = threading.main_thread().ident
    assert ident is not None
    signal.pthread_kill(ident, signal.SIGINT)


def interrupt(bench: Bench, fleet: Fleet, run_end: str = "003-a1") -> Path:
    """A campaign that a Ctrl-C ended at the start of that run of the king."""
    fleet["king"].on("start", lambda _, args: stop() if args["run"].endswith(run_end) else None)
    with pytest.raises(campaign.Interrupted) as stopped:
        bench()
    return stopped.value.folder


def as_if_killed(folder: Path) -> None:
    """No close, and half a line and half a file at the end."""
    for name in ("verdict.json", "MANIFEST.sha256"):
        (folder / name).unlink()
    journal = folder / "journal.jsonl"
    lines = [line for line in journal.read_bytes().splitlines(keepends=True) if b'"closed"' not in line]
    journal.write_bytes(b"".join(lines) + b'{"event": "prep')
    (folder / ".verdict.json.abcd.partial").write_text("{")
    (folder / "cells" / "001-active-king" / "attempt-7.partial").mkdir()


def test_done_cells_are_not_run_again_and_half_ones_get_the_next_number(
    bench: Bench, fleet: Fleet, resume: Bench
) -> None:
    folder = interrupt(bench, fleet)
    as_if_killed(folder)
    before = {path: path.read_bytes() for path in folder.glob("cells/*/*/run.json")}
    assert len(before) == 2
    started = [args["run"] for verb, args in fleet["king"].log if verb == "start"]
    outcome = resume(folder)
    assert (outcome.valid, outcome.missing) == (4, 0)
    assert {path: path.read_bytes() for path in before} == before
    again = [args["run"][-6:] for verb, args in fleet["king"].log if verb == "start"][len(started) :]
    assert again == ["003-a2"]
    assert validate(folder) == []
    assert json.loads((folder / "campaign.json").read_text())["resumes"][0]["controller"]["host"]


def test_nothing_is_left_to_do_for_a_whole_campaign(bench: Bench, fleet: Fleet, resume: Bench) -> None:
    folder = bench().path
    starts = fleet["king"].verbs().count("start")
    assert resume(folder).valid == 4
    assert fleet["king"].verbs().count("start") == starts
    assert validate(folder) == []


def test_a_run_that_ended_while_nobody_watched_is_collected_and_not_repeated(
    bench: Bench, fleet: Fleet, resume: Bench
) -> None:
    fleet["queen"].fail("watch", UnreachableError("the link is lost", where="queen"), times=10)
    outcome = bench()
    assert outcome.missing > 0
    fleet["queen"]._hooks.clear()
    starts = fleet["queen"].verbs().count("start")
    again = resume(outcome.path)
    assert again.valid == 4
    assert fleet["queen"].verbs().count("start") == starts
    assert not fleet["queen"].runs
    assert validate(outcome.path) == []


def test_a_start_that_was_never_answered_is_found_on_the_board(bench: Bench, fleet: Fleet, resume: Bench) -> None:
    """The controller died after the board had started the load, and before it could write that down."""
    fleet["queen"].fail("watch", UnreachableError("the link is lost", where="queen"), times=10)
    folder = bench().path
    fleet["queen"]._hooks.clear()
    journal = folder / "journal.jsonl"
    kept = [line for line in journal.read_text().splitlines(keepends=True) if '"event": "started"' not in line]
    journal.write_text("".join(kept))
    assert resume(folder).valid == 4
    run = json.loads((folder / "cells/002-active-queen/attempt-1/run.json").read_text())
    assert run["started"]["board"]["monotonic_s"] > 0


def test_it_is_known_on_which_boards_a_load_may_still_run(bench: Bench, fleet: Fleet) -> None:
    fleet["queen"].fail("watch", UnreachableError("the link is lost", where="queen"), times=10)
    past = read(bench().path)
    assert past.busy_s(1e6).keys() == {"queen"}
    assert past.busy_s(1e6)["queen"] <= 1e6
    assert past.busy_s(0.0) == {}


def test_a_changed_matrix_file_is_a_new_campaign(bench: Bench, fleet: Fleet, resume: Bench, tmp_path: Path) -> None:
    folder = interrupt(bench, fleet)
    matrix = tmp_path / "small.yml"
    matrix.write_text(matrix.read_text() + "# one more word\n")
    calls = len(fleet["king"].log)
    with pytest.raises(InputError, match="a changed file is a new campaign"):
        resume(folder)
    assert len(fleet["king"].log) == calls


def test_a_changed_plan_is_refused(bench: Bench, fleet: Fleet, resume: Bench) -> None:
    folder = interrupt(bench, fleet)
    plan = json.loads((folder / "plan.json").read_text())
    plan["attempts"] = 9
    (folder / "plan.json").write_text(json.dumps(plan))
    with pytest.raises(InputError, match="not the plan that the campaign has locked"):
        resume(folder)


def test_a_changed_payload_is_a_new_campaign(bench: Bench, fleet: Fleet, resume: Bench, tmp_path: Path) -> None:
    folder = interrupt(bench, fleet)
    (tmp_path / "payloads" / "burn" / "program.py").write_text("# burns hotter\n")
    with pytest.raises(InputError, match="payload burn has changed"):
        resume(folder)


def test_other_pinned_libraries_are_a_new_campaign_too(bench: Bench, fleet: Fleet, resume: Bench) -> None:
    folder = interrupt(bench, fleet)
    began = json.loads((folder / "campaign.json").read_text())
    (folder / "campaign.json").write_text(json.dumps({**began, "libraries": {"burn": ["small==0.9"]}}))
    with pytest.raises(InputError, match="payload burn has changed"):
        resume(folder)


def test_a_campaign_that_still_runs_is_not_gone_on_with(bench: Bench, fleet: Fleet, resume: Bench) -> None:
    folder = interrupt(bench, fleet)
    with Journal(folder / "journal.jsonl"), pytest.raises(InputError, match="is being run by another process"):
        resume(folder)


def test_the_newest_unfinished_campaign_is_found(bench: Bench, fleet: Fleet, tmp_path: Path) -> None:
    folder = interrupt(bench, fleet)
    fleet["king"]._hooks.clear()
    time.sleep(1.1)  # names are told apart by the second
    finished = bench().path
    assert finished.name > folder.name
    assert newest_unfinished(tmp_path / "results") == folder
    shutil.rmtree(folder)
    with pytest.raises(InputError, match="no campaign is unfinished"):
        newest_unfinished(tmp_path / "results")


def test_a_refused_campaign_leaves_no_folder(bench: Bench, fleet: Fleet, tmp_path: Path) -> None:
    fleet["queen"].lease = {"owner": "ann", "host": "lab", "campaign": "another"}
    with pytest.raises(RigError, match="ann"):
        bench()
    assert list((tmp_path / "results" / "small").iterdir()) == []


def test_a_torn_last_line_is_cut_off_and_numbers_go_on(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    with Journal(path) as journal:
        journal.note("planned", cells=4)
        journal.note("lease", boards=[])
    path.write_bytes(path.read_bytes() + b'{"event": "prep')
    with Journal(path) as journal:
        journal.note("resumed")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["sequence"], line["event"]) for line in lines] == [(1, "planned"), (2, "lease"), (3, "resumed")]


def test_a_journal_whose_last_whole_line_is_damaged_is_not_gone_on_with(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b"\x00\x00\n")
    with pytest.raises(InputError, match=r"journal.jsonl:1"):
        Journal(path)


def beats(fleet: Fleet, board: str) -> int:
    return fleet[board].verbs().count("lease")


def test_the_heart_renews_and_is_silent_in_the_window(fleet: Fleet) -> None:
    holder = Holder.here("c-1")
    boards = {board.name: board for board in fleet.boards}
    lease.take_all(holder, fleet.boards, 1.0, fleet.open)
    heart = Heart(holder, boards, 0.06, fleet.open)
    heart.start()
    try:
        until = time.monotonic() + 5
        while beats(fleet, "king") < 4:
            assert time.monotonic() < until, "no heartbeat"
            time.sleep(0.01)
        with heart.silent(5.0, ["king"]):
            king, queen = beats(fleet, "king"), beats(fleet, "queen")
            asked_for_s = fleet["queen"].log[-1][1]["ttl_s"]
            time.sleep(0.3)
            assert (beats(fleet, "king"), beats(fleet, "queen")) == (king, queen)
        assert asked_for_s >= 5.0
    finally:
        heart.stop()


def test_the_heart_leaves_a_board_alone_that_was_taken_away(fleet: Fleet) -> None:
    holder = Holder.here("c-1")
    lease.take_all(holder, fleet.boards, 1.0, fleet.open)
    fleet["king"].lease = {"owner": "ann", "host": "lab", "campaign": "another"}
    heart = Heart(holder, {board.name: board for board in fleet.boards}, 0.06, fleet.open)
    heart.start()
    until = time.monotonic() + 5
    while "king" not in heart.lost:
        assert time.monotonic() < until
        time.sleep(0.01)
    calls = len(fleet["king"].log)
    time.sleep(0.2)
    heart.stop()
    assert len(fleet["king"].log) == calls
    assert "ann" in heart.lost["king"]


def test_a_stop_while_files_are_fetched_lets_that_end(bench: Bench, fleet: Fleet) -> None:
    fleet["king"].on("fetch", lambda _, args: stop() if args["run"].endswith("001-a1") else None)
    with pytest.raises(campaign.Interrupted) as stopped:
        bench()
    said = json.loads((stopped.value.folder / "verdict.json").read_text())
    assert (said["counts"]["valid"], said["counts"]["missing"]) == (2, 2)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_signals_are_given_back(bench: Bench) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    bench()
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == before
