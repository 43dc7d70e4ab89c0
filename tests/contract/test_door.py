"""What the door promises, whatever carries it."""

from __future__ import annotations

import _thread
import hashlib
import os
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from boardbench.crew import each
from boardbench.errors import BenchError, BugError, DeadlineError, InputError, RigError, UnreachableError, WorkloadError
from boardbench.inventory import Board

from .conftest import Bench
from .local_sshd import running, until


def _sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_a_call_gives_the_verbs_value(bench: Bench) -> None:
    args = {"text": "naïve ✓ 'quoted' $(id) `id` \n ;", "number": 1.5, "list": [None, True]}
    with bench.open() as door:
        answer = door.call("echo", args, deadline_s=20)
    assert answer["args"] == args


def test_several_calls_use_one_connection_and_one_exec_each(bench: Bench) -> None:
    with bench.open() as door:
        first = door.call("echo", {}, deadline_s=20)
        second = door.call("echo", {}, deadline_s=20)
        assert (door.connections, door.execs) == (1, 2)
    assert first["pid"] != second["pid"]


def test_the_program_is_sent_once_and_then_found_on_the_board(bench: Bench, app: Any) -> None:
    home = bench.root / "var/lib/boardbench/programs" / app.sha256
    with bench.open() as door:
        door.call("echo", {}, deadline_s=20)
        first = (home / "boardbench_remote/wire.py").stat()
        answer = door.call("echo", {}, deadline_s=20)
    assert answer["path_has_program"] is True
    assert (home / "boardbench_remote/wire.py").stat().st_ino == first.st_ino
    assert [entry.name for entry in home.parent.iterdir()] == [app.sha256]


def test_events_arrive_in_order_and_phases_among_them(bench: Bench) -> None:
    events: list[dict[str, object]] = []
    with bench.open() as door:
        door.call("tell", {"count": 50}, deadline_s=20, on_event=events.append)
    assert [event["number"] for event in events if event["event"] == "step"] == list(range(50))
    assert events[0]["text"] == "naïve ✓"
    assert events[-1] == {"event": "phase", "name": "cooling", "message": "61.2 -> 45.0 degC"}


def test_blobs_are_sent_when_they_are_missing_and_not_again(bench: Bench, tmp_path: Path) -> None:
    small, large = b"", os.urandom(8 * 1024 * 1024)
    file = tmp_path / "large"
    file.write_bytes(large)
    wanted = [_sha(small), _sha(large)]
    blobs: dict[str, Path | bytes] = {_sha(small): small, _sha(large): file}
    with bench.open() as door:
        answer = door.call("take", {"blobs": wanted}, deadline_s=30, blobs=blobs)
        assert answer["got"] == {sha: sha for sha in wanted}
        # Nothing is offered now: a board that asked again would end this call with an error.
        assert door.call("take", {"blobs": wanted}, deadline_s=30)["got"] == {sha: sha for sha in wanted}


def test_a_blob_that_nobody_offered_is_our_own_fault_and_names_it(bench: Bench) -> None:
    sha = _sha(b"unknown")
    with bench.open() as door, pytest.raises(BugError, match=sha):
        door.call("take", {"blobs": [sha]}, deadline_s=20)


def test_a_blob_file_that_is_gone_is_named(bench: Bench, tmp_path: Path) -> None:
    sha = _sha(b"x")
    with bench.open() as door, pytest.raises(InputError, match=r"gone.*does not exist"):
        door.call("take", {"blobs": [sha]}, deadline_s=20, blobs={sha: tmp_path / "gone"})


def test_a_stream_of_8_mib_arrives_whole(bench: Bench) -> None:
    digest, names = hashlib.sha256(), set()

    def on_data(name: str, piece: bytes) -> None:
        names.add(name)
        digest.update(piece)

    with bench.open() as door:
        answer = door.call("flood", {"pieces": 32, "byte": 7}, deadline_s=30, on_data=on_data)
    assert answer == {"bytes": 8 * 1024 * 1024}
    assert digest.hexdigest() == _sha(b"\7" * (8 * 1024 * 1024))
    assert names == {"zeros"}


def test_megabytes_on_standard_error_neither_block_nor_disturb(bench: Bench) -> None:
    with bench.open() as door:
        assert door.call("chatter", {"kib": 6000}, deadline_s=30) == {}
        assert door.call("echo", {}, deadline_s=20)["args"] == {}


@pytest.mark.parametrize(
    ("fault", "kind"),
    [("bad-input", InputError), ("rig", RigError), ("workload", WorkloadError), ("bug", BugError)],
)
def test_an_error_of_the_board_keeps_whose_fault_it_is(bench: Bench, fault: str, kind: type[BenchError]) -> None:
    with bench.open() as door, pytest.raises(BenchError) as caught:
        door.call("fail", {"fault": fault, "transient": True}, deadline_s=20)
    assert type(caught.value) is kind
    assert caught.value.as_dict() == {
        "fault": fault,
        "transient": True,
        "what": "it is so",
        "where": "king: /some/path",
        "advice": "do this",
    }


def test_a_traceback_on_the_board_is_one_sentence_with_its_place(bench: Bench) -> None:
    with bench.open() as door, pytest.raises(BugError, match=r"king: contract_verbs\.py:\d+: ZeroDivisionError"):
        door.call("stumble", {"zero": 0}, deadline_s=20)


def test_an_unknown_verb_is_refused_with_the_known_ones(bench: Bench) -> None:
    with bench.open() as door, pytest.raises(InputError, match=r"unknown verb 'no-such'.*facts"):
        door.call("no-such", {}, deadline_s=20)


def _pids(file: Path) -> list[int]:
    assert until(file.exists, 15)
    return [int(word) for word in file.read_text().split()]


def test_the_deadline_ends_the_call_and_its_processes_on_the_board(bench: Bench, tmp_path: Path) -> None:
    pid_file = tmp_path / "pids"
    with bench.open() as door:
        began = time.monotonic()
        with pytest.raises(DeadlineError, match=r"`hang` was not done within 3 s; its work on the board has ended"):
            door.call("hang", {"pid_file": str(pid_file)}, deadline_s=3)
        assert time.monotonic() - began < 12
        pids = _pids(pid_file)
        assert len(pids) == 2
        assert not [pid for pid in pids if running(pid)]
        assert door.call("echo", {}, deadline_s=20)["args"] == {}


def test_closing_the_door_ends_the_work_on_the_board(bench: Bench, tmp_path: Path) -> None:
    pid_file = tmp_path / "pids"
    door = bench.open()
    caught: list[BenchError] = []

    def call() -> None:
        try:
            door.call("hang", {"pid_file": str(pid_file)}, deadline_s=60)
        except BenchError as error:
            caught.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    pids = _pids(pid_file)
    door.close()
    thread.join(10)
    assert isinstance(caught[0], UnreachableError)
    assert caught[0].transient
    assert until(lambda: not [pid for pid in pids if running(pid)], 15)


def test_ctrl_c_ends_the_call_and_the_work_on_the_board(bench: Bench, tmp_path: Path) -> None:
    pid_file = tmp_path / "pids"
    door = bench.open()

    def interrupt() -> None:
        _pids(pid_file)
        _thread.interrupt_main()

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        door.call("hang", {"pid_file": str(pid_file)}, deadline_s=60)
    assert until(lambda: not [pid for pid in _pids(pid_file) if running(pid)], 15)


def test_ctrl_c_of_a_crew_ends_every_call_of_it(bench: Bench, tmp_path: Path) -> None:
    boards = [replace(bench.board, name=name) for name in ("king", "queen")]
    doors = {board.name: bench.open() for board in boards}

    def work(board: Board) -> object:
        return doors[board.name].call("hang", {"pid_file": str(tmp_path / board.name)}, deadline_s=60)

    def interrupt() -> None:
        for board in boards:
            _pids(tmp_path / board.name)
        _thread.interrupt_main()

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        each(boards, work)
    pids = [pid for board in boards for pid in _pids(tmp_path / board.name)]
    assert len(pids) == 4
    assert until(lambda: not [pid for pid in pids if running(pid)], 15)


def test_arguments_that_are_no_json_are_our_own_fault(bench: Bench) -> None:
    with bench.open() as door, pytest.raises(BugError, match="arguments of `echo` cannot be sent"):
        door.call("echo", {"x": float("nan")}, deadline_s=20)


def test_a_board_that_dies_in_mid_call_is_reported_with_its_last_words(bench: Bench) -> None:
    with bench.open() as door:
        with pytest.raises(RigError, match=r"ended with exit code 7 before `die` was answered: last words"):
            door.call("die", {"code": 7}, deadline_s=20)
        with pytest.raises(RigError, match=r"ended by (a signal|signal 9) before `die`") as caught:
            door.call("die", {"signal": 9, "code": 0}, deadline_s=20)
    assert caught.value.transient


def test_garbage_in_the_answer_is_shown(bench: Bench) -> None:
    with (
        bench.open() as door,
        pytest.raises(RigError, match=r"`garbage` was answered with a line that is not JSON: 'W"),
    ):
        door.call("garbage", {"hex": b"Welcome to NanoPi\n".hex()}, deadline_s=20)


def test_bytes_that_are_not_utf8_are_shown_escaped(bench: Bench) -> None:
    with bench.open() as door, pytest.raises(RigError, match=r"not UTF-8: .*xff.*xfe"):
        door.call("garbage", {"hex": "7b22fffe7d0a"}, deadline_s=20)


@pytest.mark.parametrize("line", ["[1]", '{"event": NaN}', '{"no": "event"}', '{"event": 3}'])
def test_json_that_is_no_event_is_refused(bench: Bench, line: str) -> None:
    with bench.open() as door, pytest.raises(RigError, match="`garbage` was answered with"):
        door.call("garbage", {"hex": f"{line}\n".encode().hex()}, deadline_s=20)


def test_a_deadline_of_zero_does_not_touch_the_board(bench: Bench) -> None:
    with bench.open() as door:
        with pytest.raises(DeadlineError):
            door.call("ended", {"call": "x"}, deadline_s=0)
        assert door.execs == 0


def test_an_answer_is_never_taken_for_code_or_shell(bench: Bench, tmp_path: Path) -> None:
    marker = tmp_path / "touched"
    with bench.open() as door:
        door.call("echo", {"evil": f"'; touch {marker}; '"}, deadline_s=20)
    assert not marker.exists()


def test_what_is_left_on_the_board_is_only_the_program(bench: Bench) -> None:
    with bench.open() as door:
        door.call("echo", {}, deadline_s=20)
    kept = [path for top in ("var", "run") for path in (bench.root / top).rglob("*") if path.is_file()]
    assert {path.relative_to(bench.root).parts[:4] for path in kept} == {("var", "lib", "boardbench", "programs")}
