"""A host that traces for a board: spoken to as a board's bpftrace does, from this very process."""

from __future__ import annotations

import ctypes
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from boardbench.virtual import processes, tracing
from boardbench.virtual.tracing import Tracing

LACKING = tracing.why_not()
CAN_TRACE = pytest.mark.skipif(bool(LACKING), reason=f"no calls can be seen here: {LACKING}")
PATIENCE_S = 30.0


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Tracing]:
    # The folder of a fleet may lie deeper than the longest path of a socket.
    folder = tmp_path / ("f" * 120)
    folder.mkdir()
    found = Tracing(folder)
    found.start()
    yield found
    found.stop()
    assert list(folder.iterdir()) == []


class Client:
    """A board's bpftrace: `out` and `err` are what it prints."""

    def __init__(self, folder: Path, request: bytes) -> None:
        at = os.open(folder, os.O_PATH)
        self.door = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.door.settimeout(PATIENCE_S)
        self.door.connect(f"/proc/self/fd/{at}/{tracing.DOOR}")
        os.close(at)
        out, theirs_out = os.pipe()
        err, theirs_err = os.pipe()
        socket.send_fds(self.door, [request], [theirs_out, theirs_err])
        os.close(theirs_out)
        os.close(theirs_err)
        self.out, self.err = os.fdopen(out), os.fdopen(err)

    def close(self) -> None:
        for one in (self.door, self.out, self.err):
            one.close()


def _libc() -> str:
    for line in Path("/proc/self/maps").read_text().splitlines():
        if "/libc.so" in line or "/libc-" in line:
            return line.split()[-1]
    raise AssertionError("this Python runs without a libc.so")


def _program() -> bytes:
    text = f'uprobe:"{_libc()}":"getpgid" {{ printf("call %d %d 1 %llu\\n", pid, tid, nsecs); }}\n'
    text += 'interval:s:1 { printf("tick %llu\\n", nsecs); }'
    return json.dumps({"program": text, "buffering": "line"}).encode()


def _tracers() -> list[processes.Mark]:
    return [
        mark
        for mark in processes.descendants(os.getpid())
        if (processes.executable(mark.pid) or "").endswith("bpftrace")
    ]


def test_a_machine_that_cannot_trace_says_why_and_opens_no_door(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracing, "why_not", lambda: "the controller does not run as root")
    host = Tracing(tmp_path)
    host.start()
    about = json.loads((tmp_path / tracing.ABOUT).read_text())
    assert about == {"possible": False, "why": "the controller does not run as root"}
    assert not (tmp_path / tracing.DOOR).exists()
    host.stop()
    assert list(tmp_path.iterdir()) == []


@CAN_TRACE
def test_a_call_is_told_with_the_callers_ids_until_the_board_ends_it(host: Tracing) -> None:
    client = Client(host.folder, _program())
    assert client.out.readline().startswith("tick ")
    told = threading.Event()
    caller = threading.Thread(target=lambda: (ctypes.CDLL(None).getpgid(0), told.wait(PATIENCE_S)))
    caller.start()
    mine = f"call {os.getpid()} {caller.native_id} 1 "
    deadline = time.monotonic() + PATIENCE_S
    while not client.out.readline().startswith(mine):
        assert time.monotonic() < deadline
    told.set()
    caller.join()
    assert _tracers()
    client.door.shutdown(socket.SHUT_WR)
    assert client.door.recv(64) == b"0"
    assert _tracers() == []
    client.close()


@CAN_TRACE
def test_a_client_that_is_gone_takes_its_bpftrace_with_it(host: Tracing) -> None:
    client = Client(host.folder, _program())
    assert client.out.readline().startswith("tick ")
    client.close()
    assert processes.wait_gone(_tracers(), PATIENCE_S) == []


@CAN_TRACE
def test_a_stop_ends_every_bpftrace(tmp_path: Path) -> None:
    host = Tracing(tmp_path)
    host.start()
    client = Client(host.folder, _program())
    assert client.out.readline().startswith("tick ")
    host.stop()
    assert _tracers() == []
    assert client.door.recv(64) in (b"0", b"143")
    client.close()


@CAN_TRACE
@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (b"no json", "ERROR: the request of the board's bpftrace cannot be read\n"),
        (b'{"program": 1, "buffering": "line"}', "ERROR: the request of the board's bpftrace has wrong values\n"),
        (
            b'{"program": "kprobe:vfs_read { }", "buffering": "line"}',
            "ERROR: a virtual board's bpftrace does not know 'kprobe'\n",
        ),
    ],
)
def test_a_bad_request_ends_with_an_error_that_says_why(host: Tracing, request_: bytes, said: str) -> None:
    client = Client(host.folder, request_)
    assert client.door.recv(64) == b"1"
    assert client.err.readline() == said
    client.close()
