"""The GPU floor service where something is missing: a clear word, a clear exit code, never a silent success."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .floor_rig import PATIENCE_S, SERVICE, Floor

NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="the service itself needs root")


def _gpu(root: Path, table: str = "306000000 624750000") -> Path:
    folder = root / "class/devfreq/17000000.gpu"
    (folder / "device/of_node").mkdir(parents=True)
    (folder / "device/of_node/name").write_bytes(b"gpu\0")
    (folder / "available_frequencies").write_text(f"{table}\n")
    (folder / "min_freq").write_text("306000000\n")
    (folder / "max_freq").write_text("624750000\n")
    return root


def test_check_says_all_that_is_missing_and_needs_no_root(tmp_path: Path) -> None:
    floor = Floor(tmp_path, tmp_path / "none", f"GPU_FLOOR_BPFTRACE=/none\nGPU_FLOOR_LIBRARIES={tmp_path}/x.so\n")
    # In a user namespace root is nobody.
    prefix = ["unshare", "--user"] if os.geteuid() == 0 else []
    argv = [*prefix, sys.executable, "-IS", str(SERVICE), "--check", *floor.options()]
    done = subprocess.run(argv, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, "")
    assert "GPU clock: not found" in done.stdout
    assert "to do: /none is not installed: no call can be seen; install the package bpftrace" in done.stdout
    assert f"to do: {tmp_path}/x.so of GPU_FLOOR_LIBRARIES is not there (yet)" in done.stdout
    assert "service: not running" in done.stdout
    assert "note: not root" in done.stdout


def test_check_names_a_floor_that_the_table_does_not_have(tmp_path: Path) -> None:
    floor = Floor(tmp_path / "f", _gpu(tmp_path / "sys"), "GPU_FLOOR_MHZ=1020\n")
    done = floor.command("--check")
    assert done.returncode == 1
    assert "a floor of 1020 MHz is not among the GPU's frequencies (306 624.75 MHz)" in done.stdout


def test_status_without_a_service_is_no_success(tmp_path: Path) -> None:
    done = Floor(tmp_path, tmp_path).command("--status")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "gpu-floor: the service does not run\n")


def test_wrong_settings_end_with_2_and_one_line(tmp_path: Path) -> None:
    done = Floor(tmp_path, tmp_path, "GPU_FLOOR_HOLD=1\n").command()
    said = f"gpu-floor: {tmp_path}/default:1: unknown setting 'GPU_FLOOR_HOLD'; did you mean GPU_FLOOR_HOLD_S?\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", said)


@NEEDS_ROOT
def test_a_floor_above_the_tables_end_ends_the_service_with_2(tmp_path: Path) -> None:
    done = Floor(tmp_path / "f", _gpu(tmp_path / "sys"), "GPU_FLOOR_MHZ=1020\n").command()
    assert done.returncode == 2
    assert "1020 MHz is not among" in done.stderr


@NEEDS_ROOT
def test_a_service_without_bpftrace_says_that_it_is_blind_and_goes_on_looking(tmp_path: Path) -> None:
    with Floor(tmp_path / "f", _gpu(tmp_path / "sys"), "GPU_FLOOR_BPFTRACE=/none\n") as floor:
        floor.await_line("/none is not installed: no call can be seen; install the package bpftrace")
        floor.await_status(lambda status: status.get("state") == "blind")
        assert floor.process is not None
        assert floor.process.poll() is None


@NEEDS_ROOT
@pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no C compiler here")
def test_what_bpftrace_complains_of_is_in_the_log_and_in_the_status(tmp_path: Path) -> None:
    from .floor_rig import build

    library = build(tmp_path / "lib")
    fake = tmp_path / "bpftrace"
    fake.write_text("#!/bin/sh\necho 'ERROR: failed to create map: Operation not permitted' >&2\nexit 1\n")
    fake.chmod(0o755)
    text = f"GPU_FLOOR_BPFTRACE={fake}\nGPU_FLOOR_LIBRARIES={library}\n"
    with Floor(tmp_path / "f", _gpu(tmp_path / "sys"), text) as floor:
        said = "bpftrace ended with 1: ERROR: failed to create map: Operation not permitted; the kernel or a sandbox"
        floor.await_line(f"{library} cannot be watched: {said} forbids BPF here")
        status = floor.await_status(lambda status: status.get("state") == "blind")
        assert any("forbids BPF" in problem for problem in status["problems"])


@NEEDS_ROOT
def test_a_clock_that_never_answers_does_not_hold_the_service(tmp_path: Path) -> None:
    root = _gpu(tmp_path / "sys")
    node = root / "class/devfreq/17000000.gpu/min_freq"
    node.unlink()
    os.mkfifo(node)  # opening it waits for a writer that never comes
    with Floor(tmp_path / "f", root) as floor:
        floor.await_line("the driver has not answered within 2 s")
        assert floor.stop() == 0
    assert floor.process is not None
    assert floor.process.wait(PATIENCE_S) == 0
