"""burn, run as on a board: it counts, it stops, it leaves nothing behind; and on a virtual board it says so."""

from __future__ import annotations

import fcntl
import json
import os
import resource
import signal
import subprocess
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from boardbench.workloads.burn import Burn

from .sensors import BURN, children, running, start, until, whole_lines


def _events(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in whole_lines(out / "burn.jsonl")]


def _burn(out: Path, *arguments: object, virtual_dir: Path | None = None) -> subprocess.Popen[str]:
    return start(BURN, "--out", out, "--virtual-dir", virtual_dir or out / "none", *arguments)


def test_every_interval_counts_operations_and_the_last_line_says_why(tmp_path: Path) -> None:
    process = _burn(tmp_path, "--threads", 2, "--interval-s", 0.2, "--duration-s", 1)
    assert process.communicate(timeout=20) == ("", "")
    first, *intervals, last = _events(tmp_path)
    assert (first["event"], first["threads"], first["interval_s"], first["virtual"]) == ("start", 2, 0.2, False)
    assert [interval["index"] for interval in intervals] == list(range(len(intervals)))
    assert 3 <= len(intervals) <= 5
    for interval in intervals:
        seconds = interval["end_monotonic_s"] - interval["start_monotonic_s"]
        assert interval["operations"] > 0
        assert interval["operations_per_s"] == pytest.approx(interval["operations"] / seconds, rel=1e-3)
    for before, after in pairwise(intervals):
        assert after["start_monotonic_s"] == before["end_monotonic_s"]
    assert (last["event"], last["why"]) == ("end", "duration")
    assert set(last["stamp"]) == {"wall_unix_s", "monotonic_s", "boottime_s"}


def test_our_reader_of_the_raw_output_accepts_it(tmp_path: Path) -> None:
    _burn(tmp_path, "--threads", 1, "--interval-s", 0.2, "--duration-s", 0.6).communicate(timeout=20)
    samples = Burn().read(tmp_path)
    assert samples.intervals
    assert samples.end_reason == "duration"


def test_it_loads_as_many_processes_as_asked_and_they_work(tmp_path: Path) -> None:
    process = _burn(tmp_path, "--threads", 3, "--interval-s", 0.2, "--duration-s", 30)
    until(lambda: len(children(process.pid)) == 3)
    workers = children(process.pid)
    until(lambda: all(_cpu_ticks(pid) > 2 for pid in workers))
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=10)
    assert not [pid for pid in workers if running(pid)]


def _cpu_ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def test_all_means_the_cores_that_this_process_may_use(tmp_path: Path) -> None:
    _burn(tmp_path, "--threads", "all", "--interval-s", 0.1, "--duration-s", 0.1).communicate(timeout=20)
    assert _events(tmp_path)[0]["threads"] == len(os.sched_getaffinity(0))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_signal_ends_it_with_0_and_a_last_line(tmp_path: Path, number: signal.Signals) -> None:
    process = _burn(tmp_path, "--threads", 1, "--interval-s", 0.1, "--duration-s", 600)
    until(lambda: len(_events(tmp_path)) > 2)
    process.send_signal(number)
    assert process.communicate(timeout=5) == ("", "")
    assert process.returncode == 0
    assert _events(tmp_path)[-1]["why"] == number.name


def test_a_signal_to_all_processes_at_once_is_the_same_clean_stop(tmp_path: Path) -> None:
    process = _burn(tmp_path, "--threads", 2, "--interval-s", 0.1, "--duration-s", 600)
    until(lambda: len(_events(tmp_path)) > 2)
    for pid in (*children(process.pid), process.pid):
        os.kill(pid, signal.SIGTERM)
    process.communicate(timeout=5)
    assert process.returncode == 0
    assert _events(tmp_path)[-1]["why"] == "SIGTERM"


def test_a_process_that_was_stopped_and_continued_goes_on(tmp_path: Path) -> None:
    process = _burn(tmp_path, "--threads", 1, "--interval-s", 0.1, "--duration-s", 600)
    until(lambda: len(_events(tmp_path)) > 1)
    process.send_signal(signal.SIGSTOP)
    time.sleep(0.3)
    process.send_signal(signal.SIGCONT)
    seen = len(_events(tmp_path))
    until(lambda: len(_events(tmp_path)) > seen + 2)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=5)
    assert _events(tmp_path)[-1]["why"] == "SIGTERM"


def test_no_worker_outlives_a_parent_that_is_killed(tmp_path: Path) -> None:
    process = _burn(tmp_path, "--threads", 2, "--interval-s", 0.1, "--duration-s", 600)
    until(lambda: len(_events(tmp_path)) > 1)
    workers = children(process.pid)
    assert len(workers) == 2
    process.kill()
    process.communicate(timeout=5)
    until(lambda: not [pid for pid in workers if running(pid)], 3)


def test_a_worker_that_somebody_else_ended_is_an_error_and_not_a_slower_board(tmp_path: Path) -> None:
    process = _burn(tmp_path, "--threads", 2, "--interval-s", 0.1, "--duration-s", 600)
    until(lambda: len(_events(tmp_path)) > 1)
    workers = children(process.pid)
    os.kill(workers[0], signal.SIGKILL)
    _, said = process.communicate(timeout=5)
    assert process.returncode == 1
    assert said == "burn: a worker ended by signal 9\n"
    assert _events(tmp_path)[-1]["why"] == "failed: a worker ended by signal 9"
    assert not [pid for pid in workers if running(pid)]


def test_a_full_disk_ends_it_with_a_clear_line_and_no_worker(tmp_path: Path) -> None:
    process = start(
        BURN,
        *("--out", tmp_path / "out", "--virtual-dir", tmp_path / "none", "--threads", 1),
        *("--interval-s", 0.05, "--duration-s", 600),
        command_prefix=("/bin/sh", "-c", 'ulimit -f 1; exec "$@"', "sh"),
    )
    _, said = process.communicate(timeout=20)
    assert process.returncode == 1
    assert said == f"burn: cannot write {tmp_path}/out/burn.jsonl: File too large\n"
    assert all(event["event"] in ("start", "interval") for event in _events(tmp_path / "out"))


def test_a_log_that_is_there_is_never_written_over(tmp_path: Path) -> None:
    (tmp_path / "burn.jsonl").write_text("precious\n")
    process = _burn(tmp_path, "--duration-s", 1)
    _, said = process.communicate(timeout=10)
    assert process.returncode == 1
    assert "File exists" in said
    assert (tmp_path / "burn.jsonl").read_text() == "precious\n"


@pytest.mark.parametrize(
    "arguments", [["--threads", "0"], ["--threads", "many"], ["--interval-s", "0"], ["--duration-s", "-1"]]
)
def test_a_wrong_command_line_ends_with_2(tmp_path: Path, arguments: list[str]) -> None:
    process = _burn(tmp_path, "--duration-s", 1, *arguments)
    process.communicate(timeout=10)
    assert process.returncode == 2


# --- on a virtual board -----------------------------------------------------------------------------------------------


def _status(folder: Path, **values: object) -> Path:
    (folder / "load").mkdir(parents=True, exist_ok=True)
    status = {
        "kind": "bwrap",
        "board_kind": "nanopi-r76s",
        "time_scale": 60.0,
        "clock_factor": 1.0,
        "cpu_share": 1.0,
        **values,
    }
    (folder / "new").write_text(json.dumps(status))
    (folder / "new").rename(folder / "status.json")
    return folder


def test_a_virtual_boards_rate_follows_its_clock_and_share(tmp_path: Path) -> None:
    virtual = _status(tmp_path / "virtual")
    process = _burn(tmp_path, "--threads", 8, "--interval-s", 0.3, "--duration-s", 600, virtual_dir=virtual)
    until(lambda: len(_events(tmp_path)) > 2)
    _status(virtual, clock_factor=0.5, cpu_share=0.5)
    seen = len(_events(tmp_path))
    until(lambda: len(_events(tmp_path)) >= seen + 3)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=5)
    first, *intervals, last = _events(tmp_path)
    assert (first["virtual"], first["time_scale"], first["threads"]) == (True, 60.0, 8)
    assert intervals[0]["operations_per_s"] == pytest.approx(8000, rel=0.01)
    # A piece of work stands for twenty operations: one more or less in 0.3 s are 3 %.
    assert intervals[-1]["operations_per_s"] == pytest.approx(2000, rel=0.04)
    assert last["why"] == "SIGTERM"


@pytest.mark.parametrize(("kind", "npu", "gpu"), [("nanopi-r76s", 1.0, 0.0), ("jetson-orin-nano", 0.0, 1.0)])
def test_the_load_is_registered_under_a_lock_and_taken_away(tmp_path: Path, kind: str, npu: float, gpu: float) -> None:
    virtual = _status(tmp_path / "virtual", board_kind=kind)
    process = _burn(tmp_path, "--threads", 8, "--interval-s", 0.1, "--duration-s", 600, virtual_dir=virtual)
    load = virtual / f"load/{process.pid}.json"
    until(load.exists)
    assert json.loads(load.read_text()) == {
        "cpu_threads": 8,
        "cpu_activity": 1.0,
        "npu_activity": npu,
        "gpu_activity": gpu,
    }
    with load.open() as file, pytest.raises(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=5)
    assert list((virtual / "load").iterdir()) == []


def test_the_lock_ends_with_a_killed_load(tmp_path: Path) -> None:
    virtual = _status(tmp_path / "virtual")
    process = _burn(tmp_path, "--threads", 8, "--duration-s", 600, virtual_dir=virtual)
    load = virtual / f"load/{process.pid}.json"
    until(load.exists)
    process.kill()
    process.communicate(timeout=5)
    with load.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_virtual_load_costs_the_host_little(tmp_path: Path) -> None:
    virtual = _status(tmp_path / "virtual")
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    process = _burn(tmp_path, "--threads", 8, "--interval-s", 0.5, "--duration-s", 3, virtual_dir=virtual)
    process.communicate(timeout=20)
    after, seconds = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic() - began
    used_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    # Starting Python is most of it; over a longer run only the duty is left.
    assert (used_s - 0.15) / seconds < 0.04


def test_a_virtual_board_whose_status_is_gone_is_an_error(tmp_path: Path) -> None:
    virtual = _status(tmp_path / "virtual")
    (virtual / "status.json").write_text("{")
    process = _burn(tmp_path, "--threads", 8, "--duration-s", 600, virtual_dir=virtual)
    _, said = process.communicate(timeout=10)
    assert process.returncode == 1
    assert said == f"burn: cannot read {virtual}/status.json\n"


def test_a_chain_has_gaps_without_load_and_goes_on_counting(tmp_path: Path) -> None:
    process = _burn(
        tmp_path, "--threads", 2, "--interval-s", 0.1, "--duration-s", 1.4, "--run-s", 0.4, "--gap-s", 0.3
    )  # fmt: skip
    assert process.wait(timeout=60) == 0
    first, *intervals, last = _events(tmp_path)
    assert (first["run_s"], first["gap_s"]) == (0.4, 0.3)
    assert last["why"] == "duration"
    assert [line["index"] for line in intervals] == list(range(len(intervals)))
    holes = [late["start_monotonic_s"] - early["end_monotonic_s"] for early, late in pairwise(intervals)]
    assert sum(hole > 0.25 for hole in holes) >= 1
    assert all(line["operations"] > 0 for line in intervals)
    assert intervals[-1]["end_monotonic_s"] - intervals[0]["start_monotonic_s"] < 1.4 + 0.5


def test_the_lead_comes_before_the_load_and_can_be_stopped(tmp_path: Path) -> None:
    process = _burn(tmp_path, "--threads", 1, "--interval-s", 0.1, "--duration-s", 60, "--lead-s", 60)
    until(lambda: (tmp_path / "burn.jsonl").exists())
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=20) == 0
    assert [line["event"] for line in _events(tmp_path)] == ["start", "end"]


@pytest.mark.parametrize(
    "words",
    [("--run-s", 1), ("--gap-s", 1), ("--run-s", 0.01, "--gap-s", 1), ("--run-s", 1, "--gap-s", 0), ("--lead-s", -1)],
)
def test_half_a_chain_is_refused(tmp_path: Path, words: tuple[object, ...]) -> None:
    process = _burn(tmp_path, "--threads", 1, "--interval-s", 0.1, "--duration-s", 1, *words)
    assert process.wait(timeout=60) == 2
