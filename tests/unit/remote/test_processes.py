"""Processes are named by pid and start time, and ended with bounded patience."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from boardbench.remote import processes
from boardbench.remote.places import Places

PLACES = Places()
STUBBORN = (
    "import signal,time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(60)"
)


def python(code: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True)


def identity(pid: int) -> tuple[int, int]:
    found = processes.stat(PLACES, pid)
    assert found is not None
    return pid, found.start_time_ticks


def stop(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is None:
        child.kill()
    child.wait()
    if child.stdout:
        child.stdout.close()


@pytest.mark.parametrize("name", ["cat", "a b", "a) S 1 (b", "((sd-pam))"])
def test_a_name_with_spaces_and_brackets_does_not_shift_the_fields(name: str) -> None:
    rest = "S 7 8 9 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 100 200"
    found = processes.parse_stat(f"42 ({name}) {rest}")
    assert found == processes.Process(42, 4711, "S", 7, 8, 9)


def test_a_process_with_another_start_time_is_another_process() -> None:
    pid, ticks = identity(os.getpid())
    assert processes.alive(PLACES, pid, ticks)
    assert not processes.alive(PLACES, pid, ticks + 1)


def test_a_zombie_is_dead_and_not_waited_for() -> None:
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    pid, ticks = identity(child.pid)
    for _ in range(200):
        found = processes.stat(PLACES, child.pid)
        if found is not None and found.state == "Z":
            break
        time.sleep(0.02)
    assert found is not None
    assert found.state == "Z"
    before = time.monotonic()
    assert processes.end(PLACES, pid, ticks, 5.0) == processes.Ending(True)
    assert time.monotonic() - before < 1.0
    assert child.pid not in [process.pid for process in processes.each(PLACES)]
    child.wait()


def test_ending_what_is_gone_is_a_success() -> None:
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    pid, ticks = identity(child.pid)
    child.wait()
    assert processes.end(PLACES, pid, ticks, 0.1).ended


def test_a_pid_that_was_given_away_is_not_signalled() -> None:
    child = python("import time; time.sleep(60)")
    try:
        pid, ticks = identity(child.pid)
        assert processes.end(PLACES, pid, ticks - 1, 0.1).ended
        assert child.poll() is None
    finally:
        stop(child)


def test_term_is_tried_before_kill() -> None:
    polite, stubborn = python("import time; time.sleep(60)"), python(STUBBORN)
    try:
        assert stubborn.stdout is not None
        stubborn.stdout.readline()
        wanted = [identity(polite.pid), identity(stubborn.pid)]
        endings = processes.end_all(PLACES, wanted, 0.3)
        assert endings[polite.pid] == processes.Ending(True)
        assert endings[stubborn.pid] == processes.Ending(True, "had to be killed")
        assert polite.wait() == -signal.SIGTERM
        assert stubborn.wait() == -signal.SIGKILL
    finally:
        stop(polite)
        stop(stubborn)


def test_our_own_ancestry_is_never_ended() -> None:
    pid, ticks = identity(os.getppid())
    ending = processes.end(PLACES, pid, ticks, 0.1)
    assert not ending.ended
    assert "ancestor" in ending.why
    assert {os.getpid(), os.getppid()} <= processes.ancestry(PLACES)


def frozen_proc(root: Path, pid: int, state: str) -> Places:
    """A /proc in which one process never leaves a state."""
    places = Places(str(root))
    folder = root / "proc" / str(pid)
    folder.mkdir(parents=True)
    (folder / "stat").write_text(f"{pid} (dd) {state} 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 555 0 0\n")
    return places


def test_an_uninterruptible_process_ends_in_reboot_needed_and_not_in_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []
    monkeypatch.setattr(os, "kill", lambda _pid, number: sent.append(number))
    places = frozen_proc(tmp_path, 999_999, "D")
    ending = processes.end(places, 999_999, 555, 0.1, kill_wait_s=0.1)
    assert not ending.ended
    assert ending.why == "uninterruptible (state D), reboot needed"
    assert sent == [signal.SIGTERM, signal.SIGKILL]


def test_a_replaced_program_keeps_its_path(tmp_path: Path) -> None:
    program = tmp_path / "tool"
    shutil.copy("/bin/sleep", program)
    child = subprocess.Popen([str(program), "60"])
    try:
        for _ in range(100):
            if processes.argv(PLACES, child.pid)[:1] == [str(program)]:
                break
            time.sleep(0.01)
        program.unlink()
        assert processes.exe(PLACES, child.pid) == str(program)
        assert processes.argv(PLACES, child.pid) == [str(program), "60"]
    finally:
        stop(child)


def test_a_program_whose_file_may_not_be_read_is_known_by_its_first_argument(tmp_path: Path) -> None:
    places = frozen_proc(tmp_path, 7, "S")
    line = tmp_path / "proc/7/cmdline"
    line.write_bytes(b"/bin/sh\0-c\0x\0")
    assert processes.exe(places, 7) is None
    assert processes.program(places, 7) == os.path.realpath("/bin/sh")
    line.write_bytes(b"sh\0")
    assert processes.program(places, 7) == os.path.realpath("/bin/sh")
    line.write_bytes(b"sshd: pi [priv]\0")
    assert processes.program(places, 7) is None


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("0::/system.slice/npu-node.service\n", "npu-node.service"),
        ("0::/system.slice/npu-node.service/worker\n", "npu-node.service"),
        ("9:name=systemd:/system.slice/a.service\n4:memory:/x\n0::/\n", "a.service"),
        ("0::/user.slice/user-0.slice/user@0.service/app.slice/b.service\n", "user@0.service"),
        ("0::/user.slice/user-0.slice/session-3.scope\n", None),
        ("9:name=systemd:/\n0::/\n", None),
        ("", None),
    ],
)
def test_the_unit_comes_from_the_control_group(text: str, unit: str | None) -> None:
    assert processes.unit_of_path(processes.parse_control_group(text)) == unit


def test_a_family_is_ended_with_its_grandchildren_and_without_its_head() -> None:
    code = (
        "import os,subprocess,sys,time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'], start_new_session=True)\n"
        "print(child.pid, flush=True); time.sleep(60)"
    )
    head = python(code)
    try:
        assert head.stdout is not None
        grandchild = int(head.stdout.readline())
        assert [process.pid for process in processes.descendants(PLACES, head.pid)] == [grandchild]
        assert processes.end_family(PLACES, head.pid) == []
        assert head.poll() is None
        assert not [process for process in processes.each(PLACES) if process.pid == grandchild]
    finally:
        stop(head)
