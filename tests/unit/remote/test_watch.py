"""The supervisor's second pair of eyes: does the load run, has the disk room, how hot was it at the end."""

from __future__ import annotations

import fcntl
import time
from pathlib import Path
from typing import Any

import pytest

from boardbench.remote import gates, supervise

STARTED = {"started": {"monotonic_s": 100.0}}


def ended(**watch: Any) -> dict[str, Any]:
    seen = {"registered_looks": 0, "registered_held": 0, "cpu_used_s": 60.0, "free_bytes_min": 10**9, **watch}
    return {"ended": {"monotonic_s": 160.0}, "watch": seen}


def test_a_load_that_used_the_cpu_runs_and_one_that_slept_does_not() -> None:
    assert gates.load_runs(STARTED, ended())["ok"]
    entry = gates.load_runs(STARTED, ended(cpu_used_s=0.3))
    assert not entry["ok"]
    assert "0.30 s of CPU time in 60.0 s" in entry["why"]


@pytest.mark.parametrize(("held", "ok"), [(40, True), (1, True), (0, False)])
def test_on_a_virtual_board_the_registered_load_tells(held: int, ok: bool) -> None:
    entry = gates.load_runs(STARTED, ended(registered_looks=40, registered_held=held, cpu_used_s=0.0))
    assert entry["ok"] is ok


def test_a_load_between_two_looks_is_said_to_be_unseen() -> None:
    short = {"ended": {"monotonic_s": 100.5}, "watch": ended(registered_looks=3)["watch"]}
    entry = gates.load_runs(STARTED, short)
    assert entry["ok"]
    assert "too short" in entry["why"]


def test_an_end_that_nobody_recorded_proves_no_load() -> None:
    assert not gates.load_runs(STARTED, None)["ok"]
    assert not gates.load_runs(None, None)["ok"]


def test_a_disk_that_filled_up_during_the_run_is_named_and_one_not_looked_at_is_said_to_be_so() -> None:
    assert gates.disk(ended())["ok"]
    assert not gates.disk(ended(free_bytes_min=1_000_000))["ok"]
    assert gates.disk(ended(free_bytes_min=None))["why"]
    assert gates.disk(None)["why"]


def test_the_end_reading_is_evidence_with_its_time() -> None:
    reading = {"celsius": {"soc-thermal": 86.8}, "monotonic_s": 160.0}
    assert gates.instruments({"end_reading": reading})["saw"] == reading
    assert gates.instruments(None)["why"]


def test_zones_are_read_by_type_and_one_that_fails_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, (kind, content) in enumerate(
        [("soc-thermal", "86800"), ("gpu-thermal", "nonsense"), ("soc-thermal", "1")]
    ):
        zone = tmp_path / f"thermal_zone{number}"
        zone.mkdir()
        (zone / "type").write_text(kind + "\n")
        (zone / "temp").write_text(content + "\n")
    monkeypatch.setattr(supervise.heat_guard, "ZONES", str(tmp_path))
    assert supervise.heat_guard.zones_celsius() == {"soc-thermal": 86.8}


def test_the_watch_counts_held_loads_and_keeps_the_least_free_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads = tmp_path / "virtual" / "load"
    loads.mkdir(parents=True)
    (loads / "7.json").write_text("{}")
    monkeypatch.setattr(supervise, "VIRTUAL_LOADS", str(loads))
    with (loads / "7.json").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        watch = supervise.Watch(str(tmp_path))
        watch.start()
        deadline = time.monotonic() + 20
        while len(watch._looks) < 3 and time.monotonic() < deadline:
            time.sleep(0.02)
        early = time.monotonic()
        seen = watch.stop(early)
    assert seen["registered_looks"] == seen["registered_held"] == seen["looks"]
    assert seen["idle_at_monotonic_s"] == []
    assert watch.stop(0.0)["looks"] == 0
    assert isinstance(seen["free_bytes_min"], int)
    assert not watch.is_alive()
