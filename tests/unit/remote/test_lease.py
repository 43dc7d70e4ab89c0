"""One campaign at a time holds a board."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from boardbench.remote import lease as lease_module
from boardbench.remote import stamps
from boardbench.remote.failures import Failure

from .fakes import FakeCall, board_places

ADA = {"owner": "ada", "host": "desk", "campaign": "c-1"}
BOB = {"owner": "bob", "host": "lab", "campaign": "c-2"}


@pytest.fixture
def call(tmp_path: Path) -> FakeCall:
    return FakeCall(board_places(tmp_path))


def do(call: FakeCall, action: str, who: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
    return lease_module.lease({"action": action, "ttl_s": 60.0, **(who or {}), **more}, call)  # type: ignore[arg-type]


def later(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    now = stamps.boottime_s()
    monkeypatch.setattr(stamps, "boottime_s", lambda: now + seconds)


def test_a_free_board_is_taken_and_shown(call: FakeCall) -> None:
    nobody = {"held": False, "lease": None, "note": "nobody holds it", "left_s": None, "history": []}
    assert do(call, "show") == nobody
    taken = do(call, "take", ADA)
    assert taken["held"]
    assert do(call, "show")["lease"]["owner"] == "ada"
    assert 55 < taken["lease"]["expires_boottime_s"] - stamps.boottime_s() <= 60


def test_a_second_taker_hears_who_holds_it_and_for_how_long(call: FakeCall) -> None:
    do(call, "take", ADA)
    with pytest.raises(Failure, match=r"held by ada@desk \(campaign c-1\), (60|59) s left") as error:
        do(call, "take", BOB)
    assert error.value.fault == "rig"
    assert error.value.transient


def test_the_holder_takes_it_again(call: FakeCall) -> None:
    first = do(call, "take", ADA)["lease"]
    again = do(call, "take", ADA)["lease"]
    assert again["taken_unix_s"] == first["taken_unix_s"]
    assert again["heartbeats"] == 1


def test_only_the_holder_renews_and_releases(call: FakeCall) -> None:
    do(call, "take", ADA)
    assert do(call, "renew", ADA)["lease"]["heartbeats"] == 1
    for action in ("renew", "release"):
        with pytest.raises(Failure, match="held by ada@desk"):
            do(call, action, BOB)
    same_owner = dict(ADA, campaign="c-9")
    with pytest.raises(Failure, match="held by ada@desk"):
        do(call, "renew", same_owner)
    assert do(call, "release", ADA)["held"] is False
    assert do(call, "release", ADA)["held"] is False


def test_an_expired_lease_is_free_and_cannot_be_renewed(call: FakeCall, monkeypatch: pytest.MonkeyPatch) -> None:
    do(call, "take", ADA)
    later(monkeypatch, 61)
    assert "has expired" in do(call, "show")["note"]
    with pytest.raises(Failure, match="no lease to renew"):
        do(call, "renew", ADA)
    assert do(call, "take", BOB)["lease"]["owner"] == "bob"


def test_a_wall_clock_that_jumps_changes_nothing(call: FakeCall, monkeypatch: pytest.MonkeyPatch) -> None:
    do(call, "take", ADA)
    monkeypatch.setattr("time.time", lambda: 4e9)
    assert do(call, "show")["held"]


def test_a_lease_from_before_a_reboot_does_not_hold(call: FakeCall, monkeypatch: pytest.MonkeyPatch) -> None:
    do(call, "take", ADA)
    monkeypatch.setattr(stamps, "boot_id", lambda _places: "another-boot")
    assert "before a reboot" in do(call, "show")["note"]
    assert do(call, "take", BOB)["held"]


def test_stealing_needs_a_reason_and_is_recorded(call: FakeCall) -> None:
    do(call, "take", ADA)
    with pytest.raises(Failure, match="held by ada"):
        do(call, "take", BOB, steal_why="  ")
    stolen = do(call, "take", BOB, steal_why="ada's desk is off")["lease"]
    assert stolen["why"] == "taken away from ada@desk (campaign c-1): ada's desk is off"
    with pytest.raises(Failure, match="now held by bob"):
        do(call, "renew", ADA)


def test_the_history_says_how_each_hold_ended(call: FakeCall, monkeypatch: pytest.MonkeyPatch) -> None:
    do(call, "take", ADA)
    assert do(call, "take", BOB, steal_why="ada's desk is off")["taken_from"]["campaign"] == "c-1"
    do(call, "release", BOB)
    do(call, "take", ADA)
    later(monkeypatch, 61)
    assert do(call, "take", BOB)["taken_from"] is None
    ends = [(entry["campaign"], entry["how"]) for entry in do(call, "show")["history"]]
    assert ends == [
        ("c-1", "taken away from ada@desk (campaign c-1): ada's desk is off, by bob@lab (campaign c-2)"),
        ("c-2", "given back"),
        ("c-1", "the lease of ada@desk (campaign c-1) has expired"),
    ]


def test_the_history_is_bounded_and_half_a_line_costs_only_itself(call: FakeCall) -> None:
    for _ in range(lease_module.HISTORY_LINES + 5):
        do(call, "take", ADA)
        do(call, "release", ADA)
    path = Path(call.places.state) / "leases.jsonl"
    assert len(path.read_text().splitlines()) == lease_module.HISTORY_LINES
    with path.open("a") as file:
        file.write('{"owner": "a')
    do(call, "take", BOB)
    do(call, "release", BOB)
    assert do(call, "show")["history"][-1]["campaign"] == "c-2"


def test_the_same_campaign_from_another_host_is_another_holder(call: FakeCall) -> None:
    do(call, "take", ADA)
    with pytest.raises(Failure, match="held by ada@desk"):
        do(call, "take", dict(ADA, host="cellar"))


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", json.dumps({"owner": "x"}).encode()])
def test_a_file_that_is_no_lease_does_not_count(call: FakeCall, content: bytes) -> None:
    path = Path(call.places.run) / "lease.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    assert "does not count" in do(call, "show")["note"]
    assert do(call, "take", ADA)["held"]


@pytest.mark.parametrize(
    "bad", [{"action": "grab"}, {"ttl_s": 0}, {"ttl_s": True}, {"ttl_s": "60"}, {"owner": ""}, {"campaign": None}]
)
def test_bad_arguments_are_bad_input(call: FakeCall, bad: dict[str, Any]) -> None:
    with pytest.raises(Failure) as error:
        lease_module.lease({"action": "take", "ttl_s": 60.0, **ADA, **bad}, call)  # type: ignore[arg-type]
    assert error.value.fault == "bad-input"


def test_of_many_who_take_at_once_one_gets_it(call: FakeCall) -> None:
    got: list[str] = []
    refused: list[str] = []

    def work(number: int) -> None:
        who = {"owner": f"o{number}", "host": "h", "campaign": f"c{number}"}
        try:
            got.append(do(FakeCall(call.places), "take", who)["lease"]["owner"])
        except Failure as failure:
            refused.append(failure.what)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 1
    assert len(refused) == 11
    assert all(f"held by {got[0]}@h" in what for what in refused)


DEAD = {"pid": 4711, "start_time_ticks": 12, "boot_id": "b", "pid_namespace": "pid:[1]", "time_namespace": "time:[2]"}
PROOF = {"why": "its controller, process 4711 of this machine, is gone", "by": "bob@desk"}


def test_a_hold_whose_controller_is_dead_is_ended_and_the_history_says_by_whom(call: FakeCall) -> None:
    do(call, "take", ADA, process=DEAD)
    ended = do(call, "end", of={**ADA, "process": DEAD}, **PROOF)
    assert (ended["held"], ended["stopped"]) == (False, [])
    assert do(call, "show")["history"][-1]["how"] == f"{PROOF['why']}; ended by bob@desk"
    assert do(call, "take", BOB)["held"]


def test_the_loads_of_the_dead_campaign_that_still_run_are_finished_first_and_no_others(
    call: FakeCall, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(name: str, campaign: str, running: bool) -> dict[str, Any]:
        return {"run": name, "campaign": campaign, "running": running}

    found = [run("a", "c-1", True), run("b", "c-1", False), run("c", "c-2", True)]
    finished: list[tuple[str, bool]] = []

    def finish(args: dict[str, Any], _call: Any) -> dict[str, Any]:
        held = (Path(call.places.run) / "lease.json").exists()
        finished.append((args["run"], held))
        return {}

    monkeypatch.setattr("boardbench.remote.staged.staged", lambda _args, _call: {"runs": found})
    monkeypatch.setattr("boardbench.remote.runs.finish", finish)
    do(call, "take", ADA, process=DEAD)
    assert do(call, "end", of={**ADA, "process": DEAD}, **PROOF)["stopped"] == ["a"]
    assert finished == [("a", True)], "the board is held until its load is stopped"


def test_a_hold_that_another_process_renews_by_now_is_not_ended(call: FakeCall) -> None:
    """Somebody goes on with the campaign between the proof and the end: that controller lives."""
    do(call, "take", ADA, process=DEAD)
    do(call, "renew", ADA, process=dict(DEAD, pid=4712))
    with pytest.raises(Failure, match="now held by ada@desk"):
        do(call, "end", of={**ADA, "process": DEAD}, **PROOF)
    assert do(call, "show")["held"]
    do(call, "take", ADA, process=dict(DEAD, pid=4713))
    assert do(call, "show")["lease"]["process"]["pid"] == 4713


def test_a_hold_that_has_gone_by_itself_is_no_trouble_to_end(call: FakeCall) -> None:
    assert do(call, "end", of={**ADA, "process": DEAD}, **PROOF)["held"] is False


@pytest.mark.parametrize("bad", [{"of": None}, {"of": ADA}, {"of": {**ADA, "process": None}}, {"why": " "}, {"by": ""}])
def test_only_a_hold_that_names_its_process_can_be_ended_and_only_with_the_proof(
    call: FakeCall, bad: dict[str, Any]
) -> None:
    do(call, "take", ADA)
    with pytest.raises(Failure) as error:
        do(call, "end", **{"of": {**ADA, "process": DEAD}, **PROOF, **bad})
    assert error.value.fault == "bad-input"
    assert do(call, "show")["held"]


@pytest.mark.parametrize("process", [[], {}, {"pid": [1]}, {"pid": "x" * 101}, {f"f{n}": 1 for n in range(9)}])
def test_a_process_that_is_none_is_bad_input(call: FakeCall, process: Any) -> None:
    with pytest.raises(Failure) as error:
        do(call, "take", ADA, process=process)
    assert error.value.fault == "bad-input"
