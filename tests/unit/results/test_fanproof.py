"""What a run's own log says of its fan: by its columns, by the curve, and against what the inventory expects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from boardbench.results.fanproof import Planned, curve_of, heating, reasons
from boardbench.results.raw import ThermalLog

WINDOW = (100.0, 110.0)
SCALE = 60.0
ZONES = ("soc-thermal",)


def log(**columns: Sequence[float | None]) -> ThermalLog:
    """A row a tenth of a second from 2 s before the load to 1 s after it; columns by name with `__` for `-`."""
    clock = [98.0 + row / 10 for row in range(131)]
    named = {name.replace("__", "-"): values for name, values in columns.items()}
    rows = list(zip(clock, clock, clock, [0.0] * len(clock), *named.values(), strict=True))
    header = ("wall_unix_s", "monotonic_s", "boottime_s", "lateness_s", *named)
    return ThermalLog(header, tuple(rows), ("",) * len(rows), tuple(range(2, len(rows) + 2)))


def warm(gain: float, fall_at_s: float | None = None) -> list[float | None]:
    """40 degC before the load, then the most of `gain` in the first two seconds; perhaps a fall by 15."""
    found: list[float | None] = []
    for row in range(131):
        at_s = row / 10 - 2.0
        celsius = 40.0 if at_s <= 0 else 40.0 + gain * min(1.0, at_s / 2.0)
        found.append(celsius - 15.0 if fall_at_s is not None and at_s > fall_at_s else celsius)
    return found


def planned(phase: str = "active", *, steady: bool = True) -> Planned:
    return Planned(phase, ZONES, SCALE, steady)


def said(made: ThermalLog, plan: Planned, evidence: Sequence[Mapping[str, Any]] = ()) -> list[str]:
    found = list(reasons(made, WINDOW, plan, evidence))
    assert {reason.code for reason in found} <= {"cooling-not-as-planned"}
    return [reason.detail for reason in found]


def expecting(**rise: float) -> list[dict[str, Any]]:
    return [{"gate": "cooling", "ok": True, "saw": {"expect": {"over_s": 300.0, **rise}}, "why": ""}]


def test_a_quiet_log_says_nothing() -> None:
    assert said(log(soc__thermal_celsius=warm(15)), planned()) == []


def test_a_fall_at_a_constant_load_is_a_switched_fan() -> None:
    (why,) = said(log(soc__thermal_celsius=warm(40, fall_at_s=6.0)), planned("fanless"))
    assert "a fall by" in why


def test_a_chained_load_is_not_judged_by_its_curve() -> None:
    assert said(log(soc__thermal_celsius=warm(40, fall_at_s=6.0)), planned("fanless", steady=False)) == []


@pytest.mark.parametrize(
    ("phase", "turns", "wrong"), [("active", 0.0, True), ("active", 5900.0, False), ("fanless", 900.0, True)]
)
def test_turns_in_the_window_must_fit_the_phase(phase: str, turns: float, wrong: bool) -> None:
    found = said(log(soc__thermal_celsius=warm(15), fan_rpm=[turns] * 131), planned(phase))
    assert (found != []) is wrong
    assert all("fan_rpm" in why for why in found)


def test_a_fan_that_is_shown_needs_no_guess_from_the_curve() -> None:
    made = log(soc__thermal_celsius=warm(40, fall_at_s=6.0), fan_pwm=[0.0] * 131)
    assert said(made, planned("fanless")) == []


def test_rows_outside_the_load_do_not_count() -> None:
    pwm: list[float | None] = [255.0 if 20 <= row <= 120 else 0.0 for row in range(131)]
    assert said(log(soc__thermal_celsius=warm(15), fan_pwm=pwm), planned()) == []


def test_a_rise_that_the_phase_cannot_have_is_found() -> None:
    made = log(soc__thermal_celsius=warm(15))
    assert said(made, planned(), expecting(below_celsius=18.0)) == []
    (why,) = said(made, planned("fanless"), expecting(above_celsius=22.0))
    assert "phase fanless must show more than 22" in why


def test_the_rise_is_evidence_also_when_nothing_is_expected() -> None:
    made = log(soc__thermal_celsius=warm(15))
    entry = heating(made, WINDOW, planned(), ())
    assert (entry["gate"], entry["ok"], entry["saw"]["when"]) == ("cooling", True, "during")
    assert entry["saw"]["rise_celsius"] == pytest.approx(15.0)
    short = heating(made, (100.0, 101.0), planned(), ())
    assert "missing" in short["saw"]["rise_celsius"]


def test_the_curve_counts_in_board_seconds_from_the_loads_start() -> None:
    curve = curve_of(log(soc__thermal_celsius=warm(15), policy0_cur_khz=[816000.0] * 131), WINDOW, planned())
    assert curve[0].at_s == pytest.approx(-120.0)
    assert curve[-1].at_s == pytest.approx(600.0)
    assert curve[5].khz == 816000.0
