"""The board's own guard: it cools first, then ends the load, and says what it saw."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from boardbench.remote import gates, guard_request, supervise
from boardbench.remote.failures import Failure
from boardbench.remote.heat_guard import BLIND_LOOKS, HeatGuard
from boardbench.remote.places import Places

PERIOD_S = 0.01


def watched(readings: Callable[[], dict[str, float]], fan: list[Any] | None = None) -> tuple[list[str], dict[str, Any]]:
    """A guard that looks until it acts, or for a while; in which order it did what, and what it says."""
    done: list[str] = []
    request = {"zone_types": ["tj", "cpu"], "above_celsius": 95.0, "period_s": PERIOD_S, "fan": fan or []}
    guard = HeatGuard(request, readings, lambda: done.append("ended"))
    guard.start()
    guard.join(0.5)
    return done, guard.stop()


def series(*values: float | None) -> Callable[[], dict[str, float]]:
    """Readings of zone tj, the last one for ever; None is a look at which nothing answers."""
    left: Iterator[float | None] = iter(values)
    last: list[float | None] = [None]

    def read() -> dict[str, float]:
        last[0] = next(left, last[0])
        return {"other": 200.0} if last[0] is None else {"tj": last[0], "other": 200.0}

    return read


def test_a_load_that_stays_below_is_left_alone_and_its_highest_is_told() -> None:
    done, seen = watched(series(60.0, 95.0, 80.0))
    assert done == []
    assert (seen["highest_celsius"], seen["tripped"], seen["above_celsius"]) == (95.0, None, 95.0)
    assert gates.guard({"guard": seen})["ok"]


def test_one_odd_reading_ends_nothing_and_two_do() -> None:
    assert watched(series(60.0, 120.0, 60.0))[0] == []
    done, seen = watched(series(60.0, 96.0, 97.0))
    assert done == ["ended"]
    assert (seen["tripped"]["zone"], seen["tripped"]["celsius"]) == ("tj", 97.0)
    told = gates.guard({"guard": seen})
    assert (told["ok"], "tj was at 97.0 degC, above 95" in told["why"]) == (False, True)


def test_the_fan_is_put_back_before_the_load_ends_and_a_fan_that_fails_does_not_save_the_load(tmp_path: Path) -> None:
    fan = tmp_path / "pwm1"
    fan.write_text("0\n")
    seen_at_end: list[str] = []
    request = {
        "zone_types": ["tj"], "above_celsius": 95.0, "period_s": PERIOD_S,
        "fan": [{"path": str(tmp_path / "no" / "pwm1"), "value": "255"}, {"path": str(fan), "value": "255"},
                {"argv": [sys.executable, "-c", "raise SystemExit(3)"]}],
    }  # fmt: skip
    guard = HeatGuard(request, lambda: {"tj": 99.0}, lambda: seen_at_end.append(fan.read_text()))
    guard.start()
    guard.join(10)
    seen = guard.stop()
    assert seen_at_end == ["255\n"]
    assert [action["ok"] for action in seen["tripped"]["fan"]] == [False, True, False]
    assert "the fan could not be put back" in gates.guard({"guard": seen})["why"]


def test_a_guard_that_sees_nothing_any_more_ends_the_load() -> None:
    done, seen = watched(series(60.0, *[None] * BLIND_LOOKS))
    assert done == ["ended"]
    assert "no zone could be read" in gates.guard({"guard": seen})["why"]


def test_no_record_of_a_guard_is_no_proof() -> None:
    assert not gates.guard(None)["ok"]
    assert not gates.guard({"code": 0})["ok"]


def board(tmp_path: Path, *zones: str) -> Places:
    """A root with these thermal zones and a fan."""
    for number, kind in enumerate(zones):
        zone = tmp_path / f"sys/class/thermal/thermal_zone{number}"
        zone.mkdir(parents=True)
        (zone / "type").write_text(kind + "\n")
    hwmon = tmp_path / "sys/class/hwmon/hwmon3"
    hwmon.mkdir(parents=True)
    (hwmon / "name").write_text("pwmfan\n")
    (hwmon / "pwm1").write_text("0\n")
    return Places(str(tmp_path))


ASKED = {"zone_types": ["tj-thermal"], "above_celsius": 95, "period_s": 1.0, "fan": []}


def test_the_request_gets_the_files_of_this_board(tmp_path: Path) -> None:
    places = board(tmp_path, "tj-thermal")
    steps = [
        {"resource": "fan", "args": {"hwmon": "pwmfan", "level": 255, "zone": "tj-thermal"}},
        {"resource": "sysfs", "args": {"path": "/run/fan", "value": "1"}},
        {"resource": "command", "args": {"argv": ["/bin/fan", "on"]}},
    ]
    found = guard_request.parse({**ASKED, "fan": steps}, places)
    assert found is not None
    assert [entry.get("value") for entry in found["fan"]] == ["255", "1", None]
    assert found["fan"][0]["path"].endswith("hwmon3/pwm1")
    assert found["fan"][2] == {"argv": ["/bin/fan", "on"]}
    assert guard_request.parse(None, places) is None


@pytest.mark.parametrize(
    ("change", "fault"),
    [({"above_celsius": "hot"}, "bad-input"), ({"period_s": 0}, "bad-input"), ({"more": 1}, "bad-input"),
     ({"fan": [{"resource": "file", "args": {}}]}, "bad-input"), ({"zone_types": ["soc-thermal"]}, "rig")],
)  # fmt: skip
def test_a_guard_that_cannot_guard_is_refused(tmp_path: Path, change: dict[str, Any], fault: str) -> None:
    with pytest.raises(Failure) as error:
        guard_request.parse({**ASKED, **change}, board(tmp_path, "tj-thermal"))
    assert error.value.fault == fault


def test_the_supervisor_ends_its_program_by_its_guard_with_nobody_there(tmp_path: Path) -> None:
    """As a plain file, as the board's unit starts it; the hot zone is a file, and the fan too."""
    zone = tmp_path / "zones" / "thermal_zone0"
    zone.mkdir(parents=True)
    (zone / "type").write_text("tj-thermal\n")
    (zone / "temp").write_text("40000\n")
    fan = tmp_path / "pwm1"
    fan.write_text("0\n")
    request = {
        "argv": ["/bin/sleep", "60"], "env": {}, "cwd": "/", "deadline_s": 50.0, "grace_s": 5.0, "replace": False,
        "started_path": str(tmp_path / "started.json"), "exit_path": str(tmp_path / "exit.json"),
        "guard": {"zone_types": ["tj-thermal"], "above_celsius": 95.0, "period_s": 0.05,
                  "fan": [{"path": str(fan), "value": "255"}]},
    }  # fmt: skip
    (tmp_path / "request.json").write_text(json.dumps(request))
    source = Path(supervise.__file__)
    patched = tmp_path / "supervise.py"
    patched.write_text(source.read_text())
    guard = source.with_name("heat_guard.py").read_text()
    (tmp_path / "heat_guard.py").write_text(guard.replace('"/sys/class/thermal"', repr(str(tmp_path / "zones"))))
    process = subprocess.Popen([sys.executable, "-IS", str(patched), str(tmp_path / "request.json")])
    try:
        deadline = time.monotonic() + 20
        while not (tmp_path / "started.json").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        (zone / "temp").write_text("98000\n")
        process.wait(20)
    finally:
        process.kill()
        process.wait()
    ended = json.loads((tmp_path / "exit.json").read_text())
    assert (ended["ended_by"], ended["signal"], fan.read_text()) == ("guard", 15, "255\n")
    assert gates.load({"started": {}}, ended, {"signal": 15})["why"] == "the board's guard ended the load"
    assert "98.0 degC" in gates.guard(ended)["why"]
