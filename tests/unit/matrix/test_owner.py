"""A controller is called dead only where that is proved: on its own machine, by its own pid and start."""

from __future__ import annotations

import dataclasses
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from boardbench.matrix import owner
from boardbench.matrix.owner import Process, proof_of_death

HERE = socket.gethostname()


def lease_of(process: Process | None, host: str = HERE) -> dict[str, Any]:
    said = None if process is None else process.as_dict()
    return {"owner": "ann", "host": host, "campaign": "c-1", "process": said}


@pytest.fixture
def other() -> Iterator[tuple[subprocess.Popen[bytes], Process]]:
    """A process that runs, and how it would name itself in a lease."""
    program = "import sys\nsys.stdout.write('up')\nsys.stdout.flush()\nsys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.read(2) == b"up"
        me = Process.here()
        assert me is not None
        _, ticks = owner._stat(child.pid)
        yield child, dataclasses.replace(me, pid=child.pid, start_time_ticks=ticks)
        child.kill()


def test_this_process_knows_itself_and_is_alive() -> None:
    me = Process.here()
    assert me is not None
    assert me.pid == os.getpid()
    assert Process.of(me.as_dict()) == me
    assert proof_of_death(lease_of(me)) == ""


def test_a_killed_process_is_proved_to_be_gone(other: tuple[subprocess.Popen[bytes], Process]) -> None:
    child, process = other
    assert proof_of_death(lease_of(process)) == ""
    child.kill()
    child.wait()
    assert proof_of_death(lease_of(process)) == f"its controller, process {process.pid} of this machine, is gone"


def test_a_killed_process_that_nobody_has_buried_yet_has_ended(other: tuple[subprocess.Popen[bytes], Process]) -> None:
    child, process = other
    child.kill()
    deadline = time.monotonic() + 10
    while owner._stat(child.pid)[0] != "Z" and time.monotonic() < deadline:
        time.sleep(0.01)
    assert "has ended" in proof_of_death(lease_of(process))


def test_a_process_that_stands_still_is_alive(other: tuple[subprocess.Popen[bytes], Process]) -> None:
    child, process = other
    child.send_signal(signal.SIGSTOP)
    os.waitpid(child.pid, os.WUNTRACED)
    assert proof_of_death(lease_of(process)) == ""


def test_a_pid_that_was_given_to_another_process_is_no_owner(other: tuple[subprocess.Popen[bytes], Process]) -> None:
    _, process = other
    earlier = dataclasses.replace(process, start_time_ticks=process.start_time_ticks - 1)
    assert f"pid {process.pid} of this machine is another process now" in proof_of_death(lease_of(earlier))


@pytest.mark.parametrize("field", ["boot_id", "pid_namespace", "time_namespace"])
def test_a_process_of_another_boot_or_namespace_is_never_called_dead(
    other: tuple[subprocess.Popen[bytes], Process], field: str
) -> None:
    child, process = other
    child.kill()
    child.wait()
    assert proof_of_death(lease_of(process)) != ""
    assert proof_of_death(lease_of(dataclasses.replace(process, **{field: "another"}))) == ""


def test_a_pid_that_no_kernel_gives_proves_nothing(other: tuple[subprocess.Popen[bytes], Process]) -> None:
    _, process = other
    assert proof_of_death(lease_of(dataclasses.replace(process, pid=2**40))) == ""


def test_a_process_of_another_host_is_never_called_dead(other: tuple[subprocess.Popen[bytes], Process]) -> None:
    child, process = other
    child.kill()
    child.wait()
    assert proof_of_death(lease_of(process, host="elsewhere")) == ""


def test_another_users_process_that_proc_hides_is_not_called_dead(
    other: tuple[subprocess.Popen[bytes], Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, process = other

    def refused(_pid: int, _number: int) -> None:
        raise PermissionError

    real = owner._stat

    def hidden(pid: int) -> tuple[str, int]:
        if pid == process.pid:
            raise FileNotFoundError(pid)
        return real(pid)

    with monkeypatch.context() as patch:
        # Put back before the process is ended, whatever came first of the two.
        patch.setattr(os, "kill", refused)
        patch.setattr(owner, "_stat", hidden)
        assert proof_of_death(lease_of(process)) == ""


def test_where_proc_shows_another_namespace_nothing_is_told_and_nothing_proved(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, other: tuple[subprocess.Popen[bytes], Process]
) -> None:
    child, process = other
    child.kill()
    child.wait()
    (tmp_path / "self").symlink_to("1")
    monkeypatch.setattr(owner, "_PROC", tmp_path)
    assert Process.here() is None
    assert proof_of_death(lease_of(process)) == ""


@pytest.mark.parametrize(
    "bad",
    [
        None,
        [],
        {},
        {"pid": "7"},
        {"pid": True, "start_time_ticks": 1, "boot_id": "b", "pid_namespace": "p", "time_namespace": "t"},
        {"pid": -1, "start_time_ticks": 1, "boot_id": "b", "pid_namespace": "p", "time_namespace": "t"},
        {"pid": 7, "start_time_ticks": 1, "boot_id": "", "pid_namespace": "p", "time_namespace": "t"},
    ],
)
def test_a_lease_that_does_not_say_whose_process_proves_nothing(bad: object) -> None:
    assert Process.of(bad) is None
    assert proof_of_death({"host": HERE, "process": bad}) == ""
