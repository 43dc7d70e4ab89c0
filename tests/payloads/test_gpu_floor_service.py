"""The GPU floor service, run as on a board: real probes on a real library, the clock of a virtual Jetson."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from .floor_rig import (
    FLAGS,
    HIGHEST,
    LOWEST,
    OURS,
    PATIENCE_S,
    Caller,
    Floor,
    Jetson,
    build,
    build_caller,
    virtual_jetson,
)
from .sensors import children, running, until

LACKING = [name for name in ("bpftrace", "gcc", "unshare") if shutil.which(name) is None]
pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="probes and clocks need root"),
    pytest.mark.skipif(bool(LACKING), reason=f"needs {', '.join(LACKING)}"),
]
HOLD_S = 0.3


@pytest.fixture(scope="module")
def jetson(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jetson]:
    with virtual_jetson(tmp_path_factory.mktemp("jetson") / "fleet") as found:
        yield found


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_caller(tmp_path_factory.mktemp("caller"))


@pytest.fixture
def library(tmp_path: Path) -> Path:
    return build(tmp_path / "lib")


@pytest.fixture
def service(tmp_path: Path, jetson: Jetson, library: Path) -> Iterator[Floor]:
    """The service, which watches the library before anybody runs it."""
    text = f"{FLAGS}GPU_FLOOR_HOLD_S={HOLD_S}\nGPU_FLOOR_LIBRARIES={library}\nGPU_FLOOR_SEARCH_S=0.5\n"
    with Floor(tmp_path / "floor", jetson.sys, text) as started:
        started.await_watching(library)
        yield started
    jetson.write("min_freq", 0)


def _until_hz(jetson: Jetson, hz: int) -> None:
    until(lambda: jetson.read("min_freq") == hz, PATIENCE_S)


def test_the_floor_is_up_during_a_call_and_down_after_it(
    service: Floor, jetson: Jetson, program: Path, library: Path
) -> None:
    caller = Caller(program, library, OURS)
    called = caller.call("llama_process", 2000)
    _until_hz(jetson, HIGHEST)
    assert time.monotonic() < called + 2.0, "the floor came after the call"
    ended = caller.heard("out")
    assert jetson.read("min_freq") == HIGHEST
    _until_hz(jetson, LOWEST)
    assert time.monotonic() >= ended + HOLD_S
    service.await_line("floor 306 MHz (idle)")
    assert [line for line in service.lines if line.startswith("floor ")] == [
        f"floor 1020 MHz (pid {caller.pid} inference)",
        "floor 306 MHz (idle)",
    ]
    caller.end()


def test_every_entry_point_counts_and_one_that_the_library_lacks_is_said(
    tmp_path: Path, service: Floor, jetson: Jetson, program: Path, library: Path
) -> None:
    old = build(tmp_path / "old", "-DOLD")
    one, other = Caller(program, library, OURS), Caller(program, old, OURS)
    service.await_watching(old)
    service.await_line(f"{old} has no llama_process: it is not probed")
    for caller, function in ((one, "llama_decode"), (one, "llama_synchronize"), (other, "llama_decode")):
        caller.call(function, 500)
        _until_hz(jetson, HIGHEST)
        caller.heard("out")
        _until_hz(jetson, LOWEST)
    one.end()
    other.end()


def test_a_dense_model_and_an_idle_server_leave_the_clock_alone(service: Floor, program: Path, library: Path) -> None:
    idle, dense = Caller(program, library, OURS), Caller(program, library, "-ngl", "99")
    for _ in range(20):
        dense.call("llama_process", 20)
        dense.heard("out")
    # A call that counts, so that the events before it have been read.
    idle.call("llama_process", 100)
    service.await_line(f"(pid {idle.pid} inference)")
    assert not [line for line in service.lines if str(dense.pid) in line]
    assert service.await_status(lambda status: status["raises"] == 1)
    assert [one["pid"] for one in service.status()["processes"]] == [idle.pid]
    dense.end()
    idle.end()


def test_calls_of_processes_and_threads_overlap(service: Floor, jetson: Jetson, program: Path, library: Path) -> None:
    one, other = Caller(program, library, OURS), Caller(program, library, OURS)
    one.call("thread", 1500)
    one.call("thread", 100)
    other.call("llama_process", 2500)
    service.await_status(lambda status: status.get("in_call_pids") == sorted([one.pid, other.pid]))
    service.await_status(lambda status: status.get("in_call_pids") == [other.pid])
    assert jetson.read("min_freq") == HIGHEST
    other.heard("out")
    _until_hz(jetson, LOWEST)
    assert len([line for line in service.lines if line.startswith("floor 1020")]) == 1
    one.end()
    other.end()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGABRT])
def test_a_process_that_dies_in_a_call_gives_the_floor_back(
    service: Floor, jetson: Jetson, program: Path, library: Path, number: signal.Signals
) -> None:
    caller = Caller(program, library, OURS)
    caller.call("llama_process", 60_000)
    _until_hz(jetson, HIGHEST)
    caller.end(number)
    _until_hz(jetson, LOWEST)
    service.await_line("floor 306 MHz (idle)")


def test_a_rebuilt_library_is_watched_too_and_the_old_one_as_long_as_somebody_runs_it(
    service: Floor, jetson: Jetson, program: Path, library: Path
) -> None:
    old = Caller(program, library, OURS)
    service.await_status(lambda status: any(one["pid"] == old.pid for one in status.get("processes", [])))
    build(library.parent)
    service.await_watching(library)
    new = Caller(program, library, OURS)
    for caller in (old, new):
        caller.call("llama_process", 500)
        service.await_line(f"floor 1020 MHz (pid {caller.pid} inference)")
        _until_hz(jetson, LOWEST)
    old.end()
    service.await_line(f"no longer watching {library}")
    new.end()


def test_another_writer_is_told_and_keeps_its_value(
    service: Floor, jetson: Jetson, program: Path, library: Path
) -> None:
    jetson.write("min_freq", 510_000_000)
    caller = Caller(program, library, OURS)
    caller.call("llama_process", 1000)
    service.await_line("min_freq is 510 MHz and not 306 MHz: another program writes it")
    caller.heard("out")
    assert service.await_status(lambda status: status.get("state") == "yielded")["foreign_hz"] == 510_000_000
    assert service.stop() == 0
    assert jetson.read("min_freq") == 510_000_000
    caller.end()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_in_a_call_lowers_the_floor_and_ends_every_probe(
    service: Floor, jetson: Jetson, program: Path, library: Path, number: signal.Signals
) -> None:
    caller = Caller(program, library, OURS)
    caller.call("llama_process", 60_000)
    _until_hz(jetson, HIGHEST)
    helpers = children(service.pid)
    assert helpers
    assert service.stop(number) == 0
    assert jetson.read("min_freq") == LOWEST
    assert not [pid for pid in helpers if running(pid)]
    assert service.command("--status").returncode == 1
    caller.end()


def test_a_ctrl_c_in_a_call_reaches_its_helpers_too_and_lowers_the_floor(
    service: Floor, jetson: Jetson, program: Path, library: Path
) -> None:
    caller = Caller(program, library, OURS)
    caller.call("llama_process", 60_000)
    _until_hz(jetson, HIGHEST)
    assert service.interrupt() == 0
    assert jetson.read("min_freq") == LOWEST
    assert service.lines[-1] == "floor 306 MHz (idle)"
    caller.end()


def test_after_a_kill_no_probe_stays_and_restore_takes_the_floor_back(
    service: Floor, jetson: Jetson, program: Path, library: Path
) -> None:
    caller = Caller(program, library, OURS)
    caller.call("llama_process", 60_000)
    _until_hz(jetson, HIGHEST)
    helpers = children(service.pid)
    service.stop(signal.SIGKILL)
    until(lambda: not [pid for pid in helpers if running(pid)], PATIENCE_S)
    assert jetson.read("min_freq") == HIGHEST
    done = service.command("--restore")
    assert (done.returncode, jetson.read("min_freq")) == (0, LOWEST), done.stdout + done.stderr
    assert "floor 306 MHz (left over)" in done.stdout
    assert service.command("--restore").stdout == "no floor is left\n"
    caller.end()


def test_changed_settings_are_taken_and_wrong_ones_are_told(
    service: Floor, jetson: Jetson, program: Path, library: Path
) -> None:
    caller = Caller(program, library, f"{OURS}-too")
    good = service.settings.read_text()
    service.settings.write_text(good + "GPU_FLOOR_MHZ=none\n")
    service.await_line(f"{service.settings}:6: GPU_FLOOR_MHZ is 'none'")
    service.settings.write_text(good.replace(OURS, f"{OURS}-too") + "GPU_FLOOR_MHZ=612\n")
    service.await_line("starting over with the new settings")
    service.await_status(lambda status: status.get("floor_hz") == 612_000_000)
    service.await_watching(library)
    caller.call("llama_process", 2000)
    _until_hz(jetson, 612_000_000)
    caller.heard("out")
    _until_hz(jetson, LOWEST)
    caller.end()


def test_check_and_status_say_what_is_watched(service: Floor, program: Path, library: Path) -> None:
    counting, dense = Caller(program, library, OURS), Caller(program, library)
    said = service.command("--check")
    assert said.returncode == 0, said.stdout
    assert f"  {library}: llama_process, llama_decode, llama_synchronize" in said.stdout
    assert f"  {counting.pid}: {OURS}" in said.stdout
    assert f"  {dense.pid}: {program}" in said.stdout
    assert "service: idle" in said.stdout
    assert '"state": "idle"' in service.command("--status").stdout
    assert service.command("--health").returncode == 0
    counting.end()
    dense.end()
