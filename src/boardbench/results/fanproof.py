"""What a run's own log says of its fan: the fan's columns where there are some, else the temperature curve."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from boardbench.results import fanwatch
from boardbench.results.problems import Reason
from boardbench.results.raw import ThermalLog, read_thermal

CODE = "cooling-not-as-planned"
_CLOCK = re.compile(r"policy[0-9]+_cur_khz")


@dataclass(frozen=True)
class Planned:
    """The phase that the run was to have, and how to read its log: zones that count, time scale, `steady` load."""

    phase: str
    zone_types: tuple[str, ...]
    time_scale: float
    steady: bool


def reasons(
    log: ThermalLog, window: tuple[float, float], planned: Planned, evidence: Sequence[Mapping[str, Any]]
) -> Iterator[Reason]:
    """Why the fan was not as planned, as far as the log shows it."""
    for column in ("fan_pwm", "fan_rpm"):
        if wrong := wrong_rows(log, window, column, planned.phase):
            yield Reason(CODE, wrong)
    curve = curve_of(log, window, planned)
    if planned.steady and not _shown(log) and (broken := fanwatch.find_break([p for p in curve if p.at_s >= 0])):
        yield Reason(CODE, f"the temperature shows {broken}, as when a fan is switched")
    why = _against(curve, expected(evidence), planned)
    if why:
        yield Reason(CODE, why)


class Known(Protocol):
    """What is known of a run: its evidence so far, and the window of its load."""

    @property
    def evidence(self) -> tuple[Mapping[str, Any], ...]: ...
    @property
    def window_monotonic_s(self) -> tuple[float, float] | None: ...


def heating_of(folder: Path, known: Known, planned: Planned | None) -> tuple[dict[str, Any], ...]:
    """`heating` of the log in an attempt's folder; nothing without a phase, a load or a log that can be read."""
    if planned is None or known.window_monotonic_s is None or not (folder / "thermal.csv").is_file():
        return ()
    log, _ = read_thermal(folder / "thermal.csv")
    if log is None or not log.rows:
        return ()
    return (heating(log, known.window_monotonic_s, planned, known.evidence),)


def heating(
    log: ThermalLog, window: tuple[float, float], planned: Planned, evidence: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Evidence of gate `cooling`, from the log: how much the board heated up in the first minutes of its load."""
    expect = expected(evidence)
    over_s = float(expect.get("over_s", 300.0))
    seen = fanwatch.rise(curve_of(log, window, planned), over_s)
    found = list(reasons(log, window, planned, evidence))
    saw = {
        "phase": planned.phase,
        "when": "during",
        "over_board_s": over_s,
        "rise_celsius": {"missing": "the load is shorter than that"} if seen is None else round(seen, 3),
        "fan_columns": _shown(log),
    }
    return {"gate": "cooling", "ok": not found, "saw": saw, "why": "; ".join(reason.detail for reason in found)}


def expected(evidence: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The rise that the inventory expects of this phase, as it was noted before the run; empty without one."""
    for entry in evidence:
        saw = entry.get("saw")
        if entry.get("gate") == "cooling" and isinstance(saw, Mapping) and isinstance(saw.get("expect"), Mapping):
            return dict(saw["expect"])
    return {}


def _against(curve: Sequence[fanwatch.Point], expect: Mapping[str, Any], planned: Planned) -> str:
    over_s = float(expect.get("over_s", 300.0))
    return fanwatch.against_expected(
        fanwatch.rise(curve, over_s), expect.get("above_celsius"), expect.get("below_celsius"), over_s, planned.phase
    )


def wrong_rows(log: ThermalLog, window: tuple[float, float], column: str, phase: str) -> str:
    """Rows in which the fan's column is not as the phase wants it, in words; empty when there are none."""
    if column not in log.columns:
        return ""
    clock = log.clock("monotonic_s")
    values = [
        v for at, v in zip(clock, log.column(column), strict=True) if window[0] <= at <= window[1] and v is not None
    ]
    wrong = [value for value in values if (value > 0) != (phase == "active")]
    # A level is set before the load. Turns lag: a fan that runs down shows a few, one that stays so shows many.
    if not wrong or (column == "fan_rpm" and len(wrong) < max(2, 0.02 * len(values))):
        return ""
    return f"{column} is {wrong[0]:g} in {len(wrong)} of {len(values)} rows of phase {phase}"


def _shown(log: ThermalLog) -> list[str]:
    """The fan's columns that have readings."""
    return [
        name
        for name in ("fan_pwm", "fan_rpm")
        if name in log.columns and any(value is not None for value in log.column(name))
    ]


def curve_of(log: ThermalLog, window: tuple[float, float], planned: Planned) -> list[fanwatch.Point]:
    """The log as a temperature curve; time counts from the load's start, in board seconds, and ends with the load."""
    zones = log.temperatures()
    zone = next((z for kind in planned.zone_types for z in zones if z.split("_celsius")[0] == kind), None)
    zone = zone or next(iter(zones), None)
    if zone is None:
        return []
    clocks = [log.column(name) for name in log.columns if _CLOCK.fullmatch(name)]
    points = []
    for row, (at_s, celsius) in enumerate(zip(log.clock("monotonic_s"), log.column(zone), strict=True)):
        if celsius is None or at_s > window[1]:
            continue
        khz = [column[row] for column in clocks]
        known = [value for value in khz if value is not None]
        total = sum(known) if known and len(known) == len(khz) else None
        points.append(fanwatch.Point((at_s - window[0]) * planned.time_scale, celsius, total))
    return points
