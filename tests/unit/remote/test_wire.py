"""The board's end of the wire, over real pipes; and whole calls, as real processes."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from boardbench.remote import facts
from boardbench.remote.failures import Failure
from boardbench.remote.main import run_verb
from boardbench.remote.places import Places
from boardbench.remote.wire import MAX_LINE_BYTES, Call, Reader, Writer


def reader_of(content: bytes) -> Reader:
    source, sink = os.pipe()
    threading.Thread(target=lambda: (os.write(sink, content), os.close(sink)), daemon=True).start()
    return Reader(source)


def test_messages_and_raw_bytes_are_read_in_order_to_the_last_byte() -> None:
    reader = reader_of(b'{"a": 1, "bytes": 6}\n\n{"x"}{"b": 2}\n')
    got: list[bytes] = []
    assert reader.message() == {"a": 1, "bytes": 6}
    reader.exactly(6, got.append)
    assert b"".join(got) == b'\n{"x"}'
    assert reader.message() == {"b": 2}
    assert reader.message() is None


@pytest.mark.parametrize(
    ("line", "word"),
    [
        (b"Welcome to Ubuntu\n", "Welcome to Ubuntu"),
        (b"[1, 2]\n", "[1, 2]"),
        (b'{"a": NaN}\n', "NaN"),
        (b"\xff\xfe\n", "not a message"),
        (b'{"bytes": -1}\n', "bytes: -1"),
        (b'{"bytes": true}\n', "bytes: True"),
        (b'{"a": 1', "ended inside a message"),
    ],
)
def test_what_is_no_message_is_a_clear_failure_of_the_rig(line: bytes, word: str) -> None:
    with pytest.raises(Failure) as caught:
        reader_of(line).message()
    assert caught.value.fault == "rig"
    assert word in caught.value.what


def test_a_line_without_end_is_refused_at_the_limit() -> None:
    source, sink = os.pipe()

    def flood() -> None:
        try:
            for _ in range(MAX_LINE_BYTES // 65536 + 8):
                os.write(sink, b"x" * 65536)
        except OSError:
            return

    threading.Thread(target=flood, daemon=True).start()
    with pytest.raises(Failure, match="longer than"):
        Reader(source).message()
    os.close(source)


def test_a_blob_that_breaks_off_says_how_much_is_missing() -> None:
    with pytest.raises(Failure, match="ended 5 bytes before the end"):
        reader_of(b"12345").exactly(10, [].append)


def test_messages_of_many_threads_are_never_torn() -> None:
    source, sink = os.pipe()
    writer = Writer(sink)
    senders = [
        threading.Thread(target=lambda n=n: [writer.send({"n": n}, bytes([n]) * 3000) for _ in range(20)])
        for n in range(1, 5)
    ]
    for sender in senders:
        sender.start()
    reader, seen = Reader(source), 0
    while seen < 80:
        message = reader.message()
        assert message is not None
        got: list[bytes] = []
        reader.exactly(message["bytes"], got.append)
        assert b"".join(got) == bytes([message["n"]]) * 3000
        seen += 1
    for sender in senders:
        sender.join()


def test_after_the_answer_nothing_more_is_said() -> None:
    source, sink = os.pipe()
    writer = Writer(sink)
    assert writer.send({"event": "result"}, last=True)
    assert not writer.send({"event": "error"}, last=True)
    os.close(sink)
    assert os.read(source, 1000) == b'{"event": "result"}\n'


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object()])
def test_a_value_that_is_no_json_is_our_own_bug(value: Any) -> None:
    with pytest.raises(Failure) as caught:
        Writer(1).send({"value": value})
    assert caught.value.fault == "bug"


class Ends:
    """A Call, and the controller's ends of its pipes."""

    def __init__(self, root: Path) -> None:
        source, self.to_board = os.pipe()
        self.from_board, sink = os.pipe()
        self.lost: list[str] = []
        request = {"call": "c1", "verb": "apply", "deadline_s": 10}
        self.call = Call(request, Reader(source), Writer(sink), Places(str(root)))
        threading.Thread(target=self.call.serve_input, args=(self.lost.append,), daemon=True).start()
        self.reader = Reader(self.from_board)

    def send(self, content: bytes, sha: str | None = None) -> None:
        sha = sha or hashlib.sha256(content).hexdigest()
        os.write(self.to_board, json.dumps({"blob": sha, "bytes": len(content)}).encode() + b"\n" + content)


@pytest.fixture
def ends(tmp_path: Path) -> Iterator[Ends]:
    made = Ends(tmp_path)
    yield made
    for fd in (made.to_board, made.from_board):
        try:
            os.close(fd)
        except OSError:
            pass


def in_thread(work: Any) -> tuple[threading.Thread, list[Any]]:
    result: list[Any] = []

    def run() -> None:
        try:
            result.append(work())
        except Failure as failure:
            result.append(failure)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, result


def test_only_missing_blobs_are_asked_for_each_once(ends: Ends, tmp_path: Path) -> None:
    contents = [b"one", b"two" * 100_000, b""]
    hashes = [hashlib.sha256(content).hexdigest() for content in contents]
    blobs = tmp_path / "var/lib/boardbench/blobs"
    blobs.mkdir(parents=True)
    (blobs / hashes[0]).write_bytes(contents[0])
    thread, result = in_thread(lambda: ends.call.need([*hashes, hashes[1]]))
    assert ends.reader.message() == {"event": "need", "blobs": hashes[1:]}
    ends.send(contents[1])
    ends.send(contents[2])
    thread.join(5)
    assert result == [None]
    assert [(blobs / sha).read_bytes() for sha in hashes] == contents
    assert not list(blobs.glob("*.partial"))
    ends.call.need(hashes)  # asks nothing: it would wait for ever


def test_a_blob_with_another_hash_is_refused_and_not_kept(ends: Ends, tmp_path: Path) -> None:
    sha = hashlib.sha256(b"right").hexdigest()
    thread, result = in_thread(lambda: ends.call.need([sha]))
    ends.reader.message()
    ends.send(b"wrong", sha)
    thread.join(5)
    assert "another hash" in result[0].what
    assert list((tmp_path / "var/lib/boardbench/blobs").iterdir()) == []


def test_the_link_that_breaks_within_a_blob_ends_the_waiting(ends: Ends) -> None:
    sha = hashlib.sha256(b"right").hexdigest()
    thread, result = in_thread(lambda: ends.call.need([sha]))
    ends.reader.message()
    os.write(ends.to_board, json.dumps({"blob": sha, "bytes": 5}).encode() + b"\nri")
    os.close(ends.to_board)
    thread.join(5)
    assert result[0].transient
    assert ends.lost


def test_a_blob_that_nobody_asked_for_ends_the_call(ends: Ends) -> None:
    ends.send(b"surprise")
    for _ in range(100):
        if ends.lost:
            break
        time.sleep(0.01)
    assert "nobody asked for" in ends.lost[0]


@pytest.mark.parametrize("name", ["../../etc/passwd", "ABC", "", "0" * 63])
def test_a_blob_name_that_is_no_hash_is_refused(ends: Ends, name: str) -> None:
    with pytest.raises(Failure, match="not a SHA-256"):
        ends.call.blob_path(name)


# Whole calls


class Board:
    """The board's side as a process whose `/` is a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, verb: str, args: dict[str, Any], deadline_s: float = 20, call: str = "call-7") -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "boardbench.remote", "--root", str(self.root)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self.process.stdin is not None
        request = {"call": call, "verb": verb, "deadline_s": deadline_s, "args": args}
        self.process.stdin.write(json.dumps(request).encode() + b"\n")
        self.process.stdin.flush()

    def events(self) -> list[dict[str, Any]]:
        """All that it says until its end; every line of its output is a message."""
        assert self.process is not None
        assert self.process.stdout is not None
        found = [json.loads(line) for line in self.process.stdout]
        self.process.wait(10)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()
        return found

    @property
    def record(self) -> Path:
        return self.root / "run/boardbench/calls/call-7.json"


@pytest.fixture
def board(tmp_path: Path) -> Iterator[Board]:
    made = Board(tmp_path)
    yield made
    if made.process is not None and made.process.poll() is None:
        made.process.kill()
        made.process.wait()


def sleeper(pid_file: Path) -> dict[str, Any]:
    """A step that writes its pid and then sleeps, deaf to polite requests."""
    code = (
        "import os, signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        "open(sys.argv[1] + '.partial', 'w').write(str(os.getpid())); os.rename(sys.argv[1] + '.partial', sys.argv[1]);"
        " print('noise'); time.sleep(60)"
    )
    step = {"id": "sleep", "resource": "command", "args": {"argv": [sys.executable, "-c", code, str(pid_file)]}}
    return {"scope": "provision", "steps": [step]}


def wait_for(path: Path) -> int:
    for _ in range(500):
        if path.exists():
            return int(path.read_text())
        time.sleep(0.02)
    raise AssertionError("the step did not start")


def gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state == "Z"


def test_a_call_answers_and_leaves_no_record(board: Board) -> None:
    board.start("scopes", {})
    assert board.events() == [{"event": "result", "value": {"scopes": []}}]
    assert not board.record.exists()


def test_at_the_deadline_the_work_ends_and_says_so(board: Board, tmp_path: Path) -> None:
    board.start("apply", sleeper(tmp_path / "pid"), deadline_s=1.5)
    pid = wait_for(tmp_path / "pid")
    record = json.loads(board.record.read_text())
    assert record["pgid"] == record["pid"]
    assert record["start_time_ticks"] > 0
    last = board.events()[-1]
    assert (last["event"], last["fault"]) == ("error", "rig")
    assert "deadline" in last["what"]
    assert gone(pid)
    assert not board.record.exists()


def test_when_the_link_is_lost_the_work_ends_too(board: Board, tmp_path: Path) -> None:
    board.start("apply", sleeper(tmp_path / "pid"))
    pid = wait_for(tmp_path / "pid")
    assert board.process is not None
    assert board.process.stdin is not None
    board.process.stdin.close()
    assert board.process.wait(10) != 0
    assert gone(pid)
    assert not board.record.exists()
    for stream in (board.process.stdout, board.process.stderr):
        assert stream is not None
        stream.close()


def test_a_link_that_is_lost_in_all_directions_still_ends_the_work(board: Board, tmp_path: Path) -> None:
    """sshd closes all three streams at once: nobody is left to write to."""
    board.start("apply", sleeper(tmp_path / "pid"))
    pid = wait_for(tmp_path / "pid")
    assert board.process is not None
    for stream in (board.process.stdout, board.process.stderr, board.process.stdin):
        assert stream is not None
        stream.close()
    board.process.wait(10)
    assert gone(pid)
    assert not board.record.exists()


@pytest.mark.parametrize(
    ("request_line", "word"),
    [
        (b'{"call": "x", "verb": "format-disk", "deadline_s": 1}\n', "unknown verb 'format-disk'"),
        (b'{"call": "../x", "verb": "facts", "deadline_s": 1}\n', "no usable id"),
        (b'{"call": "x", "verb": "facts", "deadline_s": "soon"}\n', "deadline_s is 'soon'"),
        (b'{"call": "x", "verb": "facts", "deadline_s": 1, "args": 3}\n', "args is not an object"),
        (b"GET / HTTP/1.1\n", "not a message"),
    ],
)
def test_a_wrong_request_is_answered_in_one_sentence(tmp_path: Path, request_line: bytes, word: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "boardbench.remote", "--root", str(tmp_path)],
        input=request_line,
        capture_output=True,
        check=False,
    )
    (event,) = [json.loads(line) for line in done.stdout.splitlines()]
    assert event["event"] == "error"
    assert word in event["what"]
    assert b"Traceback" not in done.stderr


def test_a_bug_is_named_with_its_place_in_the_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr(facts, "read_facts", broken)
    request = {"call": "x", "verb": "facts", "deadline_s": 5, "args": {}}
    call = Call(request, Reader(0), Writer(1), Places(str(tmp_path)))
    with pytest.raises(Failure) as caught:
        run_verb(request, call)
    assert caught.value.fault == "bug"
    assert caught.value.what == "ZeroDivisionError: by zero"
    assert caught.value.where.startswith("test_wire.py:")
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "Traceback" in shown.err
