"""The burn workload: its command line and the reader of its raw output."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from boardbench.errors import InputError
from boardbench.workloads.base import Durations
from boardbench.workloads.burn import Burn
from boardbench.workloads.registry import workload

STAMP = {"wall_unix_s": 1.5, "monotonic_s": 10.0, "boottime_s": 20.0}


def interval(index: int, start_s: float, end_s: float) -> dict[str, Any]:
    return {
        "event": "interval", "index": index, "start_monotonic_s": start_s, "end_monotonic_s": end_s,
        "operations": 100 * (end_s - start_s), "operations_per_s": 100.0,
    }  # fmt: skip


LINES: list[dict[str, Any]] = [
    {"event": "start", "threads": 8, "interval_s": 1.0, "stamp": STAMP, "virtual": True},
    interval(0, 10.0, 11.0),
    interval(1, 11.0, 12.5),
    {"event": "end", "why": "duration", "stamp": STAMP},
]


def write(folder: Path, lines: list[dict[str, Any]], tail: str = "") -> Path:
    (folder / "burn.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + tail)
    return folder


def test_the_command_line_is_plain_words_without_exponents() -> None:
    argv = Burn().argv("r1", {"threads": "all"}, Durations(31.0, 1e-05))
    assert argv == [
        "/usr/bin/python3", "/opt/boardbench/payloads/burn/burn.py", "--out",
        "/var/lib/boardbench/runs/r1/workload", "--threads", "all", "--interval-s", "0.00001", "--duration-s", "31",
    ]  # fmt: skip


def test_a_whole_run_is_read(tmp_path: Path) -> None:
    samples = Burn().read(write(tmp_path, LINES))
    assert samples.window_monotonic_s == (10.0, 12.5)
    assert [i.rate_per_s for i in samples.intervals] == [100.0, 100.0]
    assert samples.ended_by_itself
    assert samples.end_stamp == STAMP
    assert samples.virtual


def test_a_run_that_was_killed_keeps_its_whole_intervals(tmp_path: Path) -> None:
    samples = Burn().read(write(tmp_path, LINES[:2], '{"event": "interv'))
    assert samples.window_monotonic_s == (10.0, 11.0)
    assert not samples.ended_by_itself
    assert samples.end_stamp is None


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (LINES[1:], "no start event"),
        ([LINES[0], interval(0, 11.0, 11.0)], "ends before it starts"),
        ([LINES[0], LINES[2], LINES[1]], "before the last one ended"),
        ([*LINES, LINES[1]], "after the end"),
        ([LINES[0], {"event": "interval", "index": 0}], "start_monotonic_s is not a number"),
        ([LINES[0], {"event": "pause"}], "unknown event"),
    ],
)
def test_malformed_output_is_refused_with_its_reason(tmp_path: Path, lines: list[dict[str, Any]], said: str) -> None:
    with pytest.raises(InputError, match=said):
        Burn().read(write(tmp_path, lines))


def test_no_output_is_an_error_and_not_an_empty_result(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="missing"):
        Burn().read(tmp_path)


def test_an_unknown_workload_names_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'burn'"):
        workload("burns")
