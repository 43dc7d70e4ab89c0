"""How long a virtual fleet takes to come up. Timed alone; on a machine that does nothing else."""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from pathlib import Path

import pytest

from boardbench.virtual.fleet import Fleet

BOARDS = {"jetson": "jetson-orin-nano", "king": "nanopi-r76s", "queen": "nanopi-r76s", "jack": "nanopi-r76s"}
UP_LIMIT_S = 2.0


@pytest.mark.perf
@pytest.mark.boards
def test_four_bwrap_boards_are_up_in_two_seconds() -> None:
    folder = Path(tempfile.mkdtemp(dir="/var/tmp", prefix="boardbench-perf-"))
    took_s = []
    try:
        for _ in range(3):
            fleet = Fleet.open("perf", folder)
            began = time.monotonic()
            fleet.up(BOARDS, kind="bwrap", time_scale=60.0, on_progress=lambda _: None)
            took_s.append(time.monotonic() - began)
            fleet.down()
    finally:
        Fleet.open("perf", folder).down()
        shutil.rmtree(folder, ignore_errors=True)
    print(f"4 bwrap boards up in {statistics.median(took_s):.2f} s (median of 3)")
    assert statistics.median(took_s) < UP_LIMIT_S
