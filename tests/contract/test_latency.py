"""How long it takes to come in and be answered, measured against plain `ssh` on the same machine in the same run."""

from __future__ import annotations

import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from boardbench.board import Door
from boardbench.program import Program
from boardbench.ssh import SshLink

from .local_sshd import Sshd


def _median_s(work: Callable[[], object], times: int = 7) -> float:
    taken = []
    for _ in range(times):
        began = time.monotonic()
        work()
        taken.append(time.monotonic() - began)
    return statistics.median(taken)


@pytest.mark.perf
def test_a_call_costs_no_more_than_ssh_that_starts_the_same_python(
    sshd: Sshd, pinned: Path, app: Program, tmp_path: Path
) -> None:
    board = sshd.board()
    options = ["-F", "none", "-i", str(sshd.key_file), "-p", str(sshd.port), "-o", f"UserKnownHostsFile={pinned}"]

    def plain() -> None:
        target = f"{board.access.user}@127.0.0.1"
        # What the board's side cannot do without: the interpreter, JSON, threads.
        code = '"import json, os, re, signal, sys, threading, queue"'
        subprocess.run(["ssh", *options, "-o", "BatchMode=yes", target, f"python3 -IS -c {code}"], check=True)

    def whole() -> None:
        link = SshLink.open(board.access, pinned, where=board.name, deadline_s=20)
        with Door(board, link, app=app, root=str(tmp_path / "root")) as door:
            door.call("echo", {}, deadline_s=20)

    whole()  # the first call brings the program
    ssh_s, door_s = _median_s(plain), _median_s(whole)
    link = SshLink.open(board.access, pinned, where=board.name, deadline_s=20)
    with Door(board, link, app=app, root=str(tmp_path / "root")) as door:
        again_s = _median_s(lambda: door.call("echo", {}, deadline_s=20))
    print(
        f"ssh {ssh_s * 1e3:.0f} ms; connect and call {door_s * 1e3:.0f} ms; call on an open door {again_s * 1e3:.0f} ms"
    )
    assert door_s < 1.25 * ssh_s
    assert again_s < 1.0 * ssh_s
