"""How soon the GPU floor is up after the first call, and what a hundred starts and stops leave behind."""

from __future__ import annotations

import ctypes
import errno
import importlib.util
import os
import shutil
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
LACKING = [name for name in ("bpftrace", "gcc", "unshare") if shutil.which(name) is None]
pytestmark = [
    pytest.mark.perf,
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="probes and clocks need root"),
    pytest.mark.skipif(bool(LACKING), reason=f"needs {', '.join(LACKING)}"),
]
RAISES, CYCLES = 25, 100
# Of the kernel's bpf(2): commands, and the type of programs for kprobes and uprobes.
_NEXT_ID, _FD_BY_ID, _PROBE = 11, 13, 2


@pytest.fixture(scope="module")
def rig() -> ModuleType:
    """`payloads/floor_rig.py`, loaded with its package: packages of tests cannot see each other."""
    for name, path in (("payload_rigs", "__init__.py"), ("payload_rigs.floor_rig", "floor_rig.py")):
        where = ROOT / "tests/payloads" / path
        search = [str(where.parent)] if path == "__init__.py" else None
        spec = importlib.util.spec_from_file_location(name, where, submodule_search_locations=search)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return module


@pytest.fixture
def jetson(rig: ModuleType, tmp_path: Path) -> Iterator[object]:
    with rig.virtual_jetson(tmp_path / "fleet") as found:
        yield found


def _busy_s() -> float:
    """What a task of 1 ms takes on this machine now, at the worst of some: the price of a loaded host."""
    took = []
    for _ in range(30):
        began = time.monotonic()
        subprocess.run(["true"], check=True)
        took.append(time.monotonic() - began)
    return sorted(took)[len(took) // 2]


def test_the_floor_is_up_within_50_ms_of_the_first_call_and_down_a_second_after_the_last(
    rig: ModuleType, jetson: object, tmp_path: Path
) -> None:
    library, program = rig.build(tmp_path / "lib"), rig.build_caller(tmp_path)
    up_s, down_s, own_s = [], [], []
    with rig.Floor(tmp_path / "floor", jetson.sys, f"{rig.FLAGS}GPU_FLOOR_LIBRARIES={library}\n") as service:  # type: ignore[attr-defined]
        service.await_watching(library)
        caller = rig.Caller(program, library, rig.OURS)
        for _ in range(RAISES):
            called = caller.call("llama_process", 300)
            up_s.append(_seen(jetson, rig.HIGHEST) - called)
            ended = caller.heard("out")
            down_s.append(_seen(jetson, rig.LOWEST) - ended)
            own_s.append(service.status()["last_raise_latency_s"])
        caller.end()
    print(f"up: {_words(up_s)}; by the service's own clock: {_words(own_s)}; down: {_words(down_s)}")
    print(f"starting a process takes {_busy_s() * 1e3:.1f} ms on this machine now")
    assert statistics.median(up_s) < 0.050
    assert min(down_s) >= 1.0
    assert statistics.median(down_s) < 1.1


def _seen(jetson: object, hz: int) -> float:
    until = time.monotonic() + 30
    while jetson.read("min_freq") != hz:  # type: ignore[attr-defined]
        assert time.monotonic() < until
        time.sleep(0.0005)
    return time.monotonic()


def _words(seconds: list[float]) -> str:
    ordered = [value * 1e3 for value in sorted(seconds)]
    return (
        f"median {statistics.median(ordered):.1f} ms, p90 {ordered[int(len(ordered) * 0.9)]:.1f}, max {ordered[-1]:.1f}"
    )


def test_a_hundred_starts_and_stops_leave_no_process_program_or_file(
    rig: ModuleType, jetson: object, tmp_path: Path
) -> None:
    library, program = rig.build(tmp_path / "lib"), rig.build_caller(tmp_path)
    caller = rig.Caller(program, library, rig.OURS)
    service = rig.Floor(tmp_path / "floor", jetson.sys, f"{rig.FLAGS}GPU_FLOOR_LIBRARIES={library}\n")  # type: ignore[attr-defined]
    helpers: set[int] = set()
    before = _probe_programs()
    for cycle in range(CYCLES):
        service.start()
        if cycle % 10 == 0:
            # A whole life: watching, a call, a stop in the middle of it.
            service.await_watching(library)
            caller.call("llama_process", 200)
            _seen(jetson, rig.HIGHEST)
            assert _probe_programs() - before, "the probes of a service that watches are not seen: the look is blind"
        else:
            # Stopped at any moment of its start.
            time.sleep(0.01 * (cycle % 37))
        helpers |= set(_children(service.pid))
        assert service.stop() in (0, -15), service.lines[-3:]
        assert jetson.read("min_freq") == rig.LOWEST  # type: ignore[attr-defined]
        if cycle % 10 == 0:
            caller.heard("out")
    assert not [pid for pid in helpers if Path(f"/proc/{pid}/exe").exists() and _is_ours(pid)]
    assert sorted(path.name for path in (tmp_path / "floor/run").iterdir()) == []
    # Those of other tests come and go in seconds; a leak would stay.
    left = _probe_programs() - before
    rig.until(lambda: not left & _probe_programs(), rig.PATIENCE_S)
    caller.end()


def test_a_rebuilt_library_is_watched_within_five_seconds_and_costs_no_file_or_process(
    rig: ModuleType, jetson: object, tmp_path: Path
) -> None:
    library = rig.build(tmp_path / "lib")
    took_s = []
    with rig.Floor(tmp_path / "floor", jetson.sys, f"{rig.FLAGS}GPU_FLOOR_LIBRARIES={library}\n") as service:  # type: ignore[attr-defined]
        service.await_watching(library)
        before = _files(service.pid), len(_children(service.pid))
        for _ in range(8):
            rig.build(tmp_path / "lib")
            began = time.monotonic()
            service.await_watching(library)
            took_s.append(time.monotonic() - began)
        service.await_status(lambda status: len(status["libraries"]) == 1)
        assert (_files(service.pid), len(_children(service.pid))) == before
    print(f"watched again after: {_words(took_s)}")
    assert statistics.median(took_s) < 5.0


def _files(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def _children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _is_ours(pid: int) -> bool:
    words = Path(f"/proc/{pid}/cmdline").read_bytes()
    return b"gpu-floor" in words or b"bpftrace" in words


def _probe_programs() -> set[int]:
    """The ids of all BPF programs for probes that the kernel holds now."""
    number = {"x86_64": 321, "aarch64": 280}[os.uname().machine]
    libc, found, last = ctypes.CDLL(None, use_errno=True), set(), 0
    while True:
        ask = ctypes.create_string_buffer(struct.pack("<III", last, 0, 0) + bytes(100))
        if libc.syscall(number, _NEXT_ID, ask, 112) != 0:
            assert ctypes.get_errno() == errno.ENOENT, os.strerror(ctypes.get_errno())
            return found
        last = struct.unpack_from("<I", ask, 4)[0]
        handle = libc.syscall(number, _FD_BY_ID, ctypes.create_string_buffer(struct.pack("<I", last) + bytes(108)), 112)
        if handle < 0:
            continue  # it went in this moment
        try:
            kind = Path(f"/proc/self/fdinfo/{handle}").read_text().split("prog_type:")[1].split()[0]
        finally:
            os.close(handle)
        if int(kind) == _PROBE:
            found.add(last)
