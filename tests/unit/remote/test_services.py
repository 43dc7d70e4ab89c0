"""What the two service managers say, as we read it; and what we ask of them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from boardbench.remote import processes, services
from boardbench.remote.failures import Failure
from boardbench.remote.places import Places


def board(tmp_path: Path, comm: str | None) -> Places:
    places = Places(str(tmp_path))
    if comm is not None:
        (tmp_path / "proc/1").mkdir(parents=True)
        (tmp_path / "proc/1/comm").write_text(comm + "\n")
    return places


def program(tmp_path: Path, text: str) -> str:
    path = tmp_path / "systemctl"
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def test_running_systemd_is_recognised(tmp_path: Path) -> None:
    places = board(tmp_path, "systemd")
    assert services.kind(places) != services.SYSTEMD
    (tmp_path / "run/systemd/system").mkdir(parents=True)
    assert services.kind(places) == services.SYSTEMD


def test_the_folder_alone_is_no_systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The replacement makes the folder too, for transient units.
    (tmp_path / "run/systemd/system").mkdir(parents=True)
    script = program(tmp_path, "#!/usr/bin/env python3\n")
    monkeypatch.setattr(services, "_systemctl", lambda: script)
    assert services.kind(board(tmp_path, "bwrap")) == services.REPLACEMENT


def test_a_board_without_a_manager_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    binary = program(tmp_path, "\x7fELF")
    for found in (None, binary):
        monkeypatch.setattr(services, "_systemctl", lambda found=found: found)
        with pytest.raises(Failure, match="no running service manager"):
            services.detect(board(tmp_path / str(bool(found)), "sh"))


def systemd(tmp_path: Path, *, show: str = "", code: int = 0) -> services.Systemd:
    """Systemd with a systemctl that notes its arguments and prints what it should."""
    (tmp_path / "show.txt").write_text(show)
    script = (
        f'#!/bin/sh\nprintf "%s\\n" "$*" >> {tmp_path}/calls\ncat {tmp_path}/show.txt\necho "no way" >&2\nexit {code}\n'
    )
    return services.Systemd(Places(str(tmp_path)), program(tmp_path, script))


@pytest.mark.parametrize(
    ("shown", "state"),
    [
        (
            "LoadState=loaded\nActiveState=active\nSubState=running\nUnitFileState=enabled\nMainPID=12\n"
            "Result=success\nExecMainCode=0\nExecMainStatus=0\n",
            services.UnitState(True, True, True, 12, "success", None, None, "running"),
        ),
        (
            "LoadState=loaded\nActiveState=failed\nSubState=failed\nUnitFileState=static\nMainPID=0\n"
            "Result=exit-code\nExecMainCode=1\nExecMainStatus=7\n",
            services.UnitState(True, False, False, 0, "exit-code", 7, None, "failed"),
        ),
        (
            "LoadState=loaded\nActiveState=failed\nSubState=failed\nUnitFileState=\nMainPID=0\n"
            "Result=signal\nExecMainCode=2\nExecMainStatus=9\n",
            services.UnitState(True, False, False, 0, "signal", None, 9, "failed"),
        ),
        (
            "LoadState=loaded\nActiveState=activating\nSubState=auto-restart\nUnitFileState=enabled\nMainPID=0\n"
            "Result=exit-code\nExecMainCode=1\nExecMainStatus=1\n",
            services.UnitState(True, True, True, 0, "exit-code", 1, None, "auto-restart"),
        ),
        (
            "LoadState=not-found\nActiveState=inactive\nSubState=dead\nUnitFileState=\nMainPID=0\nResult=success\n"
            "ExecMainCode=0\nExecMainStatus=0\n",
            services.UnitState(False, False, False, 0, "success", None, None, "dead"),
        ),
    ],
)
def test_systemd_says_how_a_unit_is(tmp_path: Path, shown: str, state: services.UnitState) -> None:
    assert systemd(tmp_path, show=shown).state("a.service") == state


def test_a_refusal_carries_the_managers_words(tmp_path: Path) -> None:
    with pytest.raises(Failure, match=r"systemctl start a\.service: exit code 5: no way") as error:
        systemd(tmp_path, code=5).start("a.service")
    assert error.value.where == "a.service"


def test_stopping_a_unit_that_is_not_there_is_a_success_and_any_other_refusal_is_not(tmp_path: Path) -> None:
    systemd(tmp_path, show="LoadState=not-found\nActiveState=inactive\n")
    script = tmp_path / "systemctl"
    script.write_text(f'#!/bin/sh\ncat {tmp_path}/show.txt\ntest "$1" = show || exit 5\n')
    manager = services.Systemd(Places(str(tmp_path)), str(script))
    manager.stop("a.service")
    (tmp_path / "show.txt").write_text("LoadState=loaded\nActiveState=active\n")
    with pytest.raises(Failure, match="exit code 5"):
        manager.stop("a.service")


@pytest.mark.parametrize("unit", ["", "a", "-a.service", "--now.service", "a b.service", "../a.service", "a.service\n"])
def test_a_unit_name_is_checked_before_it_becomes_an_argument(tmp_path: Path, unit: str) -> None:
    manager = systemd(tmp_path)
    with pytest.raises(Failure) as error:
        manager.start(unit)
    assert error.value.fault == "bad-input"
    assert not (tmp_path / "calls").exists()


def test_a_transient_unit_is_written_whole_and_removed_without_a_trace(tmp_path: Path) -> None:
    manager = systemd(tmp_path)
    manager.write_transient("boardbench-run-1.service", "[Service]\n")
    folder = tmp_path / "run/systemd/system"
    assert os.listdir(folder) == ["boardbench-run-1.service"]
    manager.remove_transient("boardbench-run-1.service")
    manager.remove_transient("boardbench-run-1.service")
    assert os.listdir(folder) == []
    assert (tmp_path / "calls").read_text().splitlines() == ["reset-failed boardbench-run-1.service"]


def test_a_transient_unit_that_changes_under_its_name_is_made_known(tmp_path: Path) -> None:
    manager = systemd(tmp_path)
    manager.write_transient("boardbench-run-1.service", "[Service]\nExecStart=/bin/true\n")
    manager.write_transient("boardbench-run-1.service", "[Service]\nExecStart=/bin/false\n")
    assert (tmp_path / "calls").read_text().splitlines() == ["daemon-reload"]


def test_the_processes_of_a_unit_are_those_of_its_control_group(tmp_path: Path) -> None:
    manager = systemd(tmp_path, show="ControlGroup=/system.slice/a.service\n")
    for pid, path in (
        (7, "/system.slice/a.service"),
        (8, "/system.slice/a.service/x"),
        (9, "/system.slice/a.service.d.service"),
    ):
        folder = tmp_path / f"proc/{pid}"
        folder.mkdir(parents=True)
        (folder / "stat").write_text(f"{pid} (x) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 5 0 0\n")
        (folder / "cgroup").write_text(f"0::{path}\n")
    assert manager.processes("a.service") == [7, 8]
    assert manager.unit_of(9) == "a.service.d.service"


def test_the_replacement_knows_a_service_by_its_session(tmp_path: Path) -> None:
    places = Places(str(tmp_path))
    places.proc = "/proc"
    child = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        manager = services.Replacement(places, program(tmp_path, f'#!/bin/sh\nprintf "MainPID={child.pid}\\n"\n'))
        (tmp_path / "run").mkdir()
        (tmp_path / "run/a.service.status").write_text(f"ActiveState=active\nMainPID={child.pid}\n")
        (tmp_path / "run/b.service.status").write_text("MainPID=1\n")
        assert manager.unit_of(child.pid) == "a.service"
        assert manager.unit_of(os.getpid()) is None
        assert manager.processes("a.service") == [child.pid]
        assert processes.stat(places, child.pid) is not None
    finally:
        child.kill()
        child.wait()
