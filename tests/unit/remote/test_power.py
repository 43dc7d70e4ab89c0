"""The board goes down after the answer, by a process that the end of the call does not take with it."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from boardbench.remote import power, processes, services

from .fakes import FakeCall, FakeManager, board_places


def test_the_answer_is_the_old_boot_id_and_comes_before_the_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = FakeManager(board_places(tmp_path))
    mark = tmp_path / "went down"
    code = "import os,sys; open(sys.argv[1],'w').write('%d %d' % (os.getsid(0), os.getppid()))"
    monkeypatch.setattr(manager, "reboot_command", lambda: [sys.executable, "-c", code, str(mark)])
    monkeypatch.setattr(services, "detect", lambda _places: manager)
    monkeypatch.setattr(power, "DELAY_S", 0.2)
    monkeypatch.setattr(os, "sync", lambda: None)
    call: Any = FakeCall(manager._places)
    # Fleets of other tests may be children of this process.
    before = {process.pid for process in processes.descendants(call.places, os.getpid())}
    answer = power.reboot({}, call)
    assert answer == {"boot_id": Path("/proc/sys/kernel/random/boot_id").read_text().strip()}
    assert not mark.exists()
    # The end of a call ends its descendants: the restart must be none.
    new = {process.pid for process in processes.descendants(call.places, os.getpid())} - before
    assert new == set()
    until = time.monotonic() + 10
    while not mark.exists() or not mark.read_text():
        assert time.monotonic() < until
        time.sleep(0.02)
    session, parent = map(int, mark.read_text().split())
    assert session != os.getsid(0)
    assert parent != os.getpid()
