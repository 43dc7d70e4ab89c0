"""The GPU floor service on a virtual Jetson: acts where the host can trace, says so where not, leaves nothing."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from boardbench.board import Door
from boardbench.inventory import Inventory
from boardbench.playbook import apply, load
from boardbench.playbook.recap import Outcome
from boardbench.virtual import processes, tracing
from boardbench.virtual.fleet import Fleet

from .floor_calls import FOLDER, HIGHEST, LIBRARY, LOWEST, PATIENCE_S, Caller, min_hz, put_on, until_hz
from .lab import Lab, recap_of
from .rig import ssh

pytestmark = pytest.mark.boards
PROJECT = Path(__file__).resolve().parents[2]
# The interpreter and the payload's command.
GPU_FLOOR = ("python3", "-IS", "/opt/boardbench/payloads/gpu-floor/gpu-floor")
UNIT = "gpu-floor.service"
LACKING = tracing.why_not() or ("" if shutil.which("gcc") else "there is no C compiler")
CAN_TRACE = pytest.mark.skipif(bool(LACKING), reason=f"no calls on virtual boards can be seen here: {LACKING}")


@pytest.fixture
def lab(fleet: Fleet, tmp_path: Path) -> Iterator[Lab]:
    found = Lab(fleet, tmp_path)
    yield found
    found.clean()


@pytest.fixture
def nspawn_lab(nspawn_fleet: Fleet, tmp_path: Path) -> Iterator[Lab]:
    """Only there a service manager looks after a service that was killed."""
    found = Lab(nspawn_fleet, tmp_path)
    yield found
    found.clean()


def _provision(lab: Lab) -> Outcome:
    inventory: Inventory = lab.inventory()
    playbook = load.load(PROJECT / "playbooks/provision.yml", inventory)
    boards = [inventory.boards["jetson"]]
    return apply.run(
        inventory,
        boards,
        playbook,
        tags=["gpu-floor"],
        open_door=lambda board: Door.open(board, inventory.known_hosts, deadline_s=20.0),
    )


def _on(fleet: Fleet, *words: str, code: int = 0) -> str:
    done = ssh(fleet, "jetson", *words, timeout_s=60.0)
    assert done.code == code, (done.out, done.err)
    return done.out


def _status(fleet: Fleet) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(_on(fleet, *GPU_FLOOR, "--status"))
    return found


def _await_status(fleet: Fleet, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        done = ssh(fleet, "jetson", *GPU_FLOOR, "--status", timeout_s=60.0)
        status: dict[str, Any] = json.loads(done.out) if done.code == 0 else {"libraries": []}
        if condition(status):
            return status
        assert time.monotonic() < deadline, (status, _log(fleet))
        time.sleep(0.2)


def _watches(status: dict[str, Any]) -> bool:
    return any((one["path"], one["state"]) == (LIBRARY, "watching") for one in status["libraries"])


def _log(fleet: Fleet) -> list[str]:
    text = _on(fleet, "sudo", "-n", "journalctl", "-u", UNIT, "--no-pager", "-o", "cat")
    return text.splitlines()


def _tracers(fleet: Fleet) -> list[int]:
    """The host's bpftrace processes of the fleet."""
    daemon = json.loads((fleet.folder / "daemon.json").read_text())["pid"]
    return [mark.pid for mark in processes.descendants(daemon)]


def test_provision_installs_and_starts_it_and_a_second_time_changes_nothing(lab: Lab, fleet: Fleet) -> None:
    first = _provision(lab)
    assert first.exit_code == 0, first.boards["jetson"].steps
    assert recap_of(first)["jetson"]["changed"] >= 2
    assert _on(fleet, "sudo", "-n", "systemctl", "is-active", UNIT) == "active"
    assert recap_of(_provision(lab))["jetson"]["changed"] == 0

    why = tracing.why_not()
    checked = _on(fleet, *GPU_FLOOR, "--check", code=1 if why else 0)
    assert "GPU clock: /sys/class/devfreq/17000000.gpu" in checked
    assert "min_freq 306 MHz, max_freq 1020 MHz, floor 1020 MHz" in checked
    assert f"calls: {'cannot' if why else 'can'} be seen here" in checked
    assert "note: virtual board: the clock is a file, there is no GPU to speed up" in checked
    status, said = _status(fleet), _on(fleet, *GPU_FLOOR, "--health")
    if why:
        blind = f"this is a virtual board, and its host sees no calls for it: {why}"
        assert (status["state"], status["problems"]) == ("blind", [blind])
        assert said == f"virtual board: the service runs and is blind: {blind}"
    else:
        assert (status["state"], status["problems"]) == ("idle", [])
        assert said == "idle; virtual board: the clock is a file, there is no GPU to speed up"
    assert min_hz(fleet) == LOWEST


@CAN_TRACE
def test_calls_of_a_process_with_experts_on_the_cpu_raise_the_boards_floor(
    lab: Lab, fleet: Fleet, tmp_path: Path
) -> None:
    put_on(fleet, tmp_path)
    assert _provision(lab).exit_code == 0
    # As the board's runs and services do; the service finds their library by itself.
    moe, dense = Caller(fleet, "--cpu-moe", root=True), Caller(fleet, "-ngl", "99", root=True)
    _await_status(fleet, _watches)

    dense.call(200)
    dense.ended()
    moe.call(3000)
    until_hz(fleet, HIGHEST)
    assert _status(fleet)["in_call_pids"] == [moe.pid]
    ended = moe.ended()
    assert until_hz(fleet, LOWEST) >= ended + 1.0
    floors = [line for line in _log(fleet) if line.startswith("floor ")]
    assert floors[-2:] == [f"floor 1020 MHz (pid {moe.pid} inference)", "floor 306 MHz (idle)"]
    assert not [line for line in floors if f"pid {dense.pid} " in line]
    assert any(line.startswith("watching llama_process") and line.endswith(LIBRARY) for line in _log(fleet))
    moe.end()
    dense.end()
    assert _status(fleet)["raises"] == 1
    _on(fleet, "rm", "-r", FOLDER)


@CAN_TRACE
def test_on_a_bwrap_board_the_library_of_another_user_has_to_be_named(bwrap_fleet: Fleet, tmp_path: Path) -> None:
    fleet, lab = bwrap_fleet, Lab(bwrap_fleet, tmp_path)
    put_on(fleet, tmp_path)
    assert _provision(lab).exit_code == 0
    moe = Caller(fleet, "--cpu-moe")
    status = _await_status(fleet, lambda found: bool(found.get("problems")))
    (problem,) = status["problems"]
    assert problem.startswith(f"process {moe.pid} counts and the library that it runs may not be looked at")
    assert "on a virtual board of kind bwrap root may not look into other users' processes" in problem
    assert problem.endswith("name its library in GPU_FLOOR_LIBRARIES")
    assert problem in _on(fleet, "sudo", "-n", *GPU_FLOOR, "--check", code=1)
    line = f"GPU_FLOOR_LIBRARIES={LIBRARY}\n"
    assert ssh(fleet, "jetson", "sudo", "-n", "tee", "-a", "/etc/default/gpu-floor", stdin=line).code == 0
    _await_status(fleet, _watches)
    moe.call(1500)
    until_hz(fleet, HIGHEST)
    moe.ended()
    moe.end()
    until_hz(fleet, LOWEST)
    _on(fleet, "rm", "-r", FOLDER)
    lab.clean()


@CAN_TRACE
@pytest.mark.nspawn
def test_after_a_kill_of_the_service_its_unit_takes_the_floor_back(nspawn_lab: Lab, tmp_path: Path) -> None:
    fleet = nspawn_lab.fleet
    put_on(fleet, tmp_path)
    assert _provision(nspawn_lab).exit_code == 0
    moe = Caller(fleet, "--cpu-moe")
    _await_status(fleet, _watches)
    moe.call(8000)
    until_hz(fleet, HIGHEST)
    killed = int(_on(fleet, "systemctl", "show", "--property=MainPID", "--value", UNIT))
    tracers = _tracers(fleet)
    assert tracers
    _on(fleet, "sudo", "-n", "kill", "-KILL", str(killed))
    until_hz(fleet, LOWEST)
    # The unit starts it again; a record of the floor would have been taken back by that start, not by the unit.
    status = _await_status(fleet, lambda found: found.get("pid", killed) != killed)
    log = _log(fleet)
    assert any(line.startswith("a floor of 1020 MHz was left") for line in log)
    assert "floor 306 MHz (left over)" in log
    assert _on(fleet, "ls", "/run/gpu-floor") == "status.json"
    assert status["raises"] == 0
    assert not set(tracers) & set(_tracers(fleet))
    moe.ended()
    moe.end()
    _on(fleet, "rm", "-r", FOLDER)


def test_teardown_stops_it_and_leaves_nothing(lab: Lab, fleet: Fleet) -> None:
    assert _provision(lab).exit_code == 0
    lab.clean()
    _on(fleet, *GPU_FLOOR, "--status", code=2)
    assert ssh(fleet, "jetson", "test", "-e", "/etc/default/gpu-floor").code == 1
    assert ssh(fleet, "jetson", "sudo", "-n", "systemctl", "is-active", UNIT).out != "active"
    assert min_hz(fleet) == LOWEST
    assert _tracers(fleet) == []
