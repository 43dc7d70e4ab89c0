"""Strays are found by what they are, and ended so that they stay away."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from boardbench.remote import processes, strays
from boardbench.remote.failures import Failure
from boardbench.remote.places import Places

from .fakes import FakeCall, FakeManager, board_places


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return board_places(tmp_path)


@pytest.fixture
def manager(places: Places, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeManager]:
    fake = FakeManager(places)
    monkeypatch.setattr(strays.services, "detect", lambda _places: fake)
    monkeypatch.setattr(strays, "SETTLE_S", 0.0)
    yield fake
    fake.close()


@pytest.fixture
def children() -> Iterator[list[subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for child in started:
        if child.poll() is None:
            child.kill()
        child.wait()


def look(places: Places, **args: Any) -> list[dict[str, Any]]:
    return strays.strays(args, FakeCall(places))["found"]  # type: ignore[arg-type]


def tool(folder: Path, name: str) -> Path:
    """A program of its own: /bin/sleep under another path."""
    path = folder / name
    shutil.copy("/bin/sleep", path)
    return path


def wait_for_exe(pid: int, path: Path) -> None:
    for _ in range(200):
        if processes.exe(Places(), pid) == str(path):
            return
        time.sleep(0.01)
    raise AssertionError(f"{path} did not start")


def script(folder: Path) -> Path:
    path = folder / "burn.py"
    path.write_text("import time\ntime.sleep(60)\n")
    return path


def wait_for_argv(pid: int, word: str) -> None:
    for _ in range(200):
        if word in processes.argv(Places(), pid):
            return
        time.sleep(0.01)
    raise AssertionError(f"{word} did not start")


@pytest.mark.usefixtures("manager")
def test_nothing_found_is_a_success(places: Places, tmp_path: Path) -> None:
    assert look(places, harness={"executables": [str(tmp_path / "none")]}, end=True, grace_s=1.0) == []


@pytest.mark.usefixtures("manager")
def test_a_program_is_found_by_its_file_though_its_name_is_cut_at_15(
    places: Places, tmp_path: Path, children: list[subprocess.Popen[bytes]]
) -> None:
    path = tool(tmp_path, "npuforge-scheduler-long")
    children.append(subprocess.Popen([str(path), "60"]))
    children.append(subprocess.Popen(["sleep", "60"]))
    wait_for_exe(children[0].pid, path)
    found = look(places, harness={"executables": [str(path)]}, end=False)
    assert [(stray["pid"], stray["how"], stray["ended"]) for stray in found] == [(children[0].pid, "executable", False)]
    assert children[0].poll() is None
    found = look(places, harness={"executables": [str(path)]}, end=True, grace_s=2.0)
    assert [stray["ended"] for stray in found] == [True]
    assert children[1].poll() is None


@pytest.mark.usefixtures("manager")
def test_a_replaced_program_is_still_found(
    places: Places, tmp_path: Path, children: list[subprocess.Popen[bytes]]
) -> None:
    path = tool(tmp_path, "node")
    children.append(subprocess.Popen([str(path), "60"]))
    wait_for_exe(children[0].pid, path)
    path.unlink()
    assert [stray["exe"] for stray in look(places, harness={"executables": [str(path)]})] == [str(path)]


@pytest.mark.usefixtures("manager")
def test_a_script_is_found_by_one_whole_argument_also_a_relative_one(
    places: Places, tmp_path: Path, children: list[subprocess.Popen[bytes]]
) -> None:
    path = script(tmp_path)
    children.append(subprocess.Popen([sys.executable, str(path)]))
    children.append(subprocess.Popen([sys.executable, "-u", "./burn.py"], cwd=tmp_path))
    wait_for_argv(children[1].pid, "./burn.py")
    found = look(places, harness={"scripts": [str(path)]})
    assert {(stray["pid"], stray["how"]) for stray in found} == {(child.pid, "script") for child in children}


@pytest.mark.usefixtures("manager")
def test_a_command_line_that_only_speaks_of_a_script_is_no_stray(
    places: Places, tmp_path: Path, children: list[subprocess.Popen[bytes]]
) -> None:
    path = script(tmp_path)
    words = f"import time; time.sleep(60)  # {path}"
    children.append(subprocess.Popen([sys.executable, "-c", words]))
    # No interpreter: it only has the path as an argument, as an editor has.
    children.append(subprocess.Popen([str(tool(tmp_path, "editor")), "60", "0" * 3]))
    children.append(subprocess.Popen(["tail", "-f", str(path)], stdout=subprocess.DEVNULL))
    wait_for_argv(children[0].pid, words)
    wait_for_argv(children[2].pid, str(path))
    assert look(places, harness={"scripts": [str(path)]}) == []


@pytest.mark.usefixtures("manager")
def test_our_own_ancestors_are_no_strays(places: Places) -> None:
    harness = {"executables": [os.path.realpath(sys.executable)]}
    assert os.getpid() not in [stray["pid"] for stray in look(places, harness=harness)]


@pytest.mark.usefixtures("manager")
def test_a_recorded_process_is_found_and_a_reused_pid_is_not(
    places: Places, children: list[subprocess.Popen[bytes]]
) -> None:
    children.append(subprocess.Popen(["sleep", "60"]))
    pid = children[0].pid
    process = processes.stat(places, pid)
    assert process is not None
    folder = Path(places.started)
    folder.mkdir(parents=True)
    record = {"run": "old", "unit": "x.service", "pid": pid, "start_time_ticks": process.start_time_ticks}
    (folder / "old.json").write_text(json.dumps(record))
    assert [(stray["pid"], stray["how"]) for stray in look(places)] == [(pid, "record")]
    assert look(places, except_runs=["old"]) == []
    (folder / "old.json").write_text(json.dumps(dict(record, start_time_ticks=1)))
    assert look(places) == []


def test_a_stray_in_a_service_is_stopped_as_a_service(places: Places, manager: FakeManager, tmp_path: Path) -> None:
    path = tool(tmp_path, "npu-node")
    child = manager.add("npu-node.service", [str(path), "60"], enabled=True)
    wait_for_exe(child.pid, path)
    found = look(places, harness={"executables": [str(path)]}, end=True, grace_s=1.0)
    assert manager.calls == ["stop npu-node.service"]
    assert [(stray["unit"], stray["ended"], stray["why"]) for stray in found] == [
        ("npu-node.service", True, "enabled service stopped, not noted")
    ]


def test_an_enabled_service_is_noted_before_it_is_stopped(places: Places, manager: FakeManager) -> None:
    manager.add("npu-node.service", ["sleep", "60"], enabled=True)
    manager.add("by-hand.service", ["sleep", "60"])
    harness = strays.Harness(units=frozenset({"npu-node.service", "by-hand.service"}))
    found = strays.find(places, manager, harness, frozenset())
    noted: list[tuple[str, bool]] = []
    strays.end(places, manager, found, 1.0, lambda unit: noted.append((unit, manager.state(unit).active)))
    assert noted == [("npu-node.service", True)]
    assert sorted(stray.why for stray in found) == ["enabled service stopped, to be started again", "service stopped"]


def test_a_restarting_service_without_a_process_is_stopped_too(
    places: Places, manager: FakeManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = strays.services.UnitState(True, True, False, 0, "", None, sub_state="auto-restart")
    stopped: list[str] = []
    monkeypatch.setattr(manager, "state", lambda _unit: state)
    monkeypatch.setattr(manager, "stop", stopped.append)
    found = strays.find(places, manager, strays.Harness(units=frozenset({"a.service"})), frozenset())
    assert [(stray.pid, stray.state) for stray in found] == [(None, "auto-restart")]
    strays.end(places, manager, found, 1.0, None)
    assert stopped == ["a.service"]
    assert found[0].ended


def test_units_of_earlier_runs_are_strays_but_not_those_of_this_run(places: Places, manager: FakeManager) -> None:
    old = manager.add("boardbench-run-old.service", ["sleep", "60"])
    new = manager.add("boardbench-run-new.service", ["sleep", "60"])
    found = look(places, end=True, grace_s=1.0, except_runs=["new"])
    assert [(stray["pid"], stray["how"], stray["ended"]) for stray in found] == [(old.pid, "unit", True)]
    assert manager.calls == ["stop boardbench-run-old.service", "remove boardbench-run-old.service"]
    assert new.poll() is None


@pytest.mark.parametrize("unit", ["ssh.service", "cron.service", "user@0.service", "getty@tty1.service"])
def test_a_stray_in_a_login_or_a_job_does_not_take_the_service_with_it(
    places: Places, manager: FakeManager, tmp_path: Path, unit: str
) -> None:
    path = tool(tmp_path, "bench")
    child = manager.add(unit, [str(path), "60"])
    wait_for_exe(child.pid, path)
    found = look(places, harness={"executables": [str(path)]}, end=True, grace_s=2.0)
    assert [stray["ended"] for stray in found] == [True]
    assert manager.calls == []


def test_a_service_that_holds_this_call_is_not_stopped(
    places: Places, manager: FakeManager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tool(tmp_path, "bench")
    child = manager.add("agent.service", [str(path), "60"])
    wait_for_exe(child.pid, path)
    monkeypatch.setattr(manager, "unit_of", lambda _pid: "agent.service")
    found = strays.find(places, manager, strays.Harness(executables=frozenset({str(path)})), frozenset())
    assert [stray.stop_unit for stray in found] == [False]


def test_what_comes_back_is_told(places: Places, manager: FakeManager, tmp_path: Path) -> None:
    path = tool(tmp_path, "phoenix")
    child = manager.add("ssh.service", [str(path), "60"])
    wait_for_exe(child.pid, path)
    harness = strays.Harness(executables=frozenset({str(path)}))
    found = strays.find(places, manager, harness, frozenset())
    strays.end(places, manager, found, 2.0, None)
    again = manager.add("ssh.service", [str(path), "60"])
    wait_for_exe(again.pid, path)
    strays.verify(places, manager, harness, frozenset(), found)
    assert [(stray.ended, stray.why) for stray in found] == [
        (True, ""),
        (False, "it came back: something starts it again"),
    ]


@pytest.mark.usefixtures("manager")
def test_installed_payloads_say_what_their_harness_is(
    places: Places, tmp_path: Path, children: list[subprocess.Popen[bytes]]
) -> None:
    path = tool(tmp_path, "llama-perplexity-main")
    folder = Path(places.payload_records)
    folder.mkdir(parents=True)
    (folder / "llama.json").write_text(json.dumps({"name": "llama", "harness": {"executables": [str(path)]}}))
    (folder / "plain.json").write_text(json.dumps({"name": "plain"}))
    children.append(subprocess.Popen([str(path), "60"]))
    wait_for_exe(children[0].pid, path)
    assert [stray["pid"] for stray in look(places)] == [children[0].pid]


@pytest.mark.parametrize(
    "harness",
    [{"executables": ["sleep"]}, {"units": ["--all"]}, {"units": ["a b.service"]}, {"patterns": ["x"]}, ["x"]],
)
def test_a_harness_has_absolute_paths_and_unit_names_and_no_patterns(harness: object) -> None:
    with pytest.raises(Failure) as error:
        strays.parse_harness(harness)
    assert error.value.fault == "bad-input"
