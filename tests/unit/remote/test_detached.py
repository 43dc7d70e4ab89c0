"""A unit of ours is started without the slow `systemctl` replacement, and is in every way what that would have made."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from boardbench.remote import detached, processes, run_units, services, transient
from boardbench.remote.failures import Failure
from boardbench.remote.places import Places
from boardbench.remote.run_state import Run

NAPPER = "import os, time; print(os.getsid(0) == os.getpid(), os.getpgid(0) == os.getpid()); time.sleep(60)"


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_the_program_leads_a_session_and_is_nobodys_child_here(tmp_path: Path) -> None:
    log = tmp_path / "log"
    pid = detached.start([sys.executable, "-u", "-c", NAPPER], {"LC_ALL": "C"}, str(log))
    try:
        until(lambda: log.exists() and log.read_text())
        assert log.read_text() == "True True\n"
        assert pid not in {child.pid for child in processes.descendants(Places(), os.getpid())}
        assert set(os.listdir(f"/proc/{pid}/fd")) == {"0", "1", "2"}
    finally:
        os.kill(pid, signal.SIGKILL)


def test_a_program_that_is_not_there_is_an_error_that_says_so(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        detached.start([str(tmp_path / "none")], {}, str(tmp_path / "log"))


@pytest.mark.parametrize("name", ["plain", "with space", "per%cent", 'quo"te', "dol$lar", "back\\slash"])
def test_the_command_of_our_own_unit_file_is_read_back_as_it_was(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    run = Run(Places(str(folder)), "run-1")
    request = str(folder / "request.json")
    unit = tmp_path / "boardbench-run-run-1.service"
    unit.write_text(run_units.unit_text(run, "workload", request, run_units.Program(("/bin/true",), {}, "/")))
    found = transient.command_of(str(unit))
    assert found is not None
    assert found.argv[0] == sys.executable
    assert found.argv[-1] == request
    assert found.log == os.path.join(run.logs, "workload.log")


@pytest.mark.parametrize("text", ["", "[Service]\nType=oneshot\nExecStart=/bin/true\n", "[Service]\nExecStart=x\n"])
def test_any_other_unit_is_the_managers_business(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.service").write_text(text)
    assert transient.command_of(str(tmp_path / "x.service")) is None
    assert transient.command_of(str(tmp_path / "none.service")) is None


def test_the_manager_knows_a_unit_that_was_started_so_and_stops_it(tmp_path: Path) -> None:
    (tmp_path / "proc").symlink_to("/proc")
    places = Places(str(tmp_path))
    manager = services.Replacement(places, "/bin/false")
    unit = "boardbench-logger-run-1.service"
    lines = ["[Service]", "Type=simple", f"ExecStart={sys.executable} -c 'import time;time.sleep(60)'"]
    manager.write_transient(unit, "\n".join([*lines, f"StandardOutput=append:{tmp_path}/log", ""]))
    manager.start(unit)
    state = manager.state(unit)
    assert state.active
    assert manager.unit_of(state.main_pid) == unit
    manager.start(unit)  # runs already
    assert manager.state(unit).main_pid == state.main_pid
    manager.stop(unit)
    assert not manager.state(unit).active
    bad = "boardbench-run-run-2.service"
    manager.write_transient(bad, f"[Service]\nType=simple\nExecStart=/none\nStandardOutput=append:{tmp_path}/log\n")
    with pytest.raises(Failure, match="cannot be started: No such file"):
        manager.start(bad)
