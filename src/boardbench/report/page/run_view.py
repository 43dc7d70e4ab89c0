"""One run, reduced to what a page draws: made while its raw files are at hand, small enough to keep thousands of."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from boardbench.analysis import clocks, steady
from boardbench.analysis.estimates import Unknown
from boardbench.analysis.rig_definition import RigFigures, rig_figures
from boardbench.analysis.series import Series
from boardbench.analysis.sketch import Sketch
from boardbench.analysis.thermal import Heat, Throughput
from boardbench.report.page.drawing import ALLOWED
from boardbench.report.page.thinning import thin
from boardbench.results import columns, requests
from boardbench.results.figures import CHIP_ZONES, Figures
from boardbench.results.raw import ThermalLog

TEMPERATURE, CLOCK, POWER, VOLTS = "temperature", "clock", "power", "volts"
_UNITS = (
    (re.compile(r"(.+)_celsius(_\d+)?"), TEMPERATURE, 1.0),
    (re.compile(r"(.+_(?:cur|max))_khz(_\d+)?"), CLOCK, 1e-3),
    (re.compile(r"(.+_cur)_hz(_\d+)?"), CLOCK, 1e-6),
    (re.compile(r"(.+)_watts(_\d+)?"), POWER, 1.0),
    (re.compile(r"(input)_volts"), VOLTS, 1.0),
)
_POLICY = re.compile(r"policy(\d+)_cur_khz")


@dataclass(frozen=True)
class Track:
    """A column of a log: monotonic seconds and readings in degC, MHz, W or V, thinned with its extremes kept."""

    name: str
    group: str
    times_s: tuple[float, ...]
    values: tuple[float | None, ...]


@dataclass(frozen=True)
class RunView:
    """What is drawn of one attempt. Times are monotonic seconds of the board's clock; `scale`: board s per such s."""

    cell: str
    board: str
    arm: str
    repetition: int
    run: Mapping[str, Any]
    scale: float
    unit: str
    window: tuple[float, float] | None
    rates: tuple[tuple[float, float, float], ...]
    tracks: tuple[Track, ...]
    throughput: Throughput | None
    heat: Heat | None
    rig: RigFigures | Unknown
    steady: steady.SteadyState | None
    held: clocks.Throttling | Unknown
    held_times: tuple[tuple[float, float], ...]
    residency: clocks.Residency | Unknown
    requests: Sketch | None
    decode: tuple[tuple[float, float], ...]
    notes: tuple[str, ...]

    @property
    def valid(self) -> bool:
        """Whether the run counts."""
        return bool(self.run["valid"])


def view(cell: Mapping[str, Any], attempt: Path, run: Mapping[str, Any], found: Figures, scale: float, buckets: int
         ) -> RunView:  # fmt: skip
    """The run of `cell` in the folder `attempt`; `buckets`: how finely its log is kept (see `thinning.thin`)."""
    samples, log = found.samples, found.log
    rates = (
        tuple((one.start_monotonic_s, one.end_monotonic_s, one.rate_per_s) for one in samples.intervals)
        if samples
        else ()
    )
    window = samples.window_monotonic_s if samples else None
    times, columns_of_log, column = _readings(log)
    held, residency, held_times = clock_of(times, columns_of_log, column, window, scale)
    notes: list[str] = []
    return RunView(
        cell=str(cell["name"]),
        board="+".join(cell["boards"]),
        arm=str(cell["arm"]),
        repetition=int(cell["repetition"]),
        run=run,
        scale=scale,
        unit=found.unit or "operations",
        window=window,
        rates=_thin_rates(rates, buckets),
        tracks=tracks_of(times, columns_of_log, column, buckets),
        throughput=found.throughput,
        heat=found.heat,
        rig=rig_figures([rate for _, _, rate in rates]),
        steady=_settled(rates, found.unit or "operations", scale),
        held=held,
        held_times=held_times,
        residency=residency,
        requests=requests.latencies(attempt / "workload", notes),
        decode=columns.decode_points(attempt / "workload", notes),
        notes=(*found.notes, *notes),
    )


def _readings(
    log: ThermalLog | None,
) -> tuple[list[float], tuple[str, ...], Callable[[str], Sequence[float | None]]]:
    """Times, names and readings of a log; nothing of one that is not there or has no row."""
    if log is None or not log.rows:
        return [], (), lambda _: []
    return log.clock("monotonic_s"), log.columns, log.column


def _settled(rates: Sequence[tuple[float, float, float]], unit: str, scale: float) -> steady.SteadyState | None:
    if not rates:
        return None
    first = rates[0][0]
    return steady.steady_state(
        [(end - first) * scale for _, end, _ in rates], [rate for _, _, rate in rates], f"{unit}/s"
    )


def _thin_rates(rates: Sequence[tuple[float, float, float]], buckets: int) -> tuple[tuple[float, float, float], ...]:
    if len(rates) <= 4 * buckets:
        return tuple(rates)
    ends, values = thin([end for _, end, _ in rates], [rate for _, _, rate in rates], buckets)
    kept = set(ends)
    return tuple(rate for rate in rates if rate[1] in kept and rate[2] in values)


def big_policy(columns: Sequence[str]) -> str | None:
    """The CPU policy of the big cores: the last one."""
    found = [int(match[1]) for name in columns if (match := _POLICY.fullmatch(name))]
    return f"policy{max(found)}" if found else None


def tracks_of(
    times: Sequence[float], columns: Sequence[str], column: Callable[[str], Sequence[float | None]], buckets: int
) -> tuple[Track, ...]:
    """The columns of a log that a page draws, thinned; those without any reading are left out."""
    found: list[Track] = []
    for name in columns:
        named = _named(name)
        values = column(name) if named else []
        if named is None or all(value is None for value in values):
            continue
        shown, group, factor = named
        scaled = [None if value is None else round(value * factor, 4) for value in values]
        at, kept = thin(times, scaled, buckets)
        found.append(Track(shown, group, tuple(at), tuple(kept)))
    return tuple(found)


def _named(column: str) -> tuple[str, str, float] | None:
    """What a column is called on a page, its group, and what turns its readings into the page's unit."""
    for pattern, group, factor in _UNITS:
        if match := pattern.fullmatch(column):
            name = "".join(part for part in match.groups() if part)
            if group == CLOCK:
                name = re.sub("_max(?=$|_)", ALLOWED, re.sub("_cur(?=$|_)", "", name))
            return name, group, factor
    return None


def clock_of(
    times: Sequence[float], columns: Sequence[str], column: Callable[[str], Sequence[float | None]],
    window: tuple[float, float] | None, scale: float,
) -> tuple[clocks.Throttling | Unknown, clocks.Residency | Unknown, tuple[tuple[float, float], ...]]:  # fmt: skip
    """Throttling and residency of the big cores, in board seconds, and when the allowed clock was held down."""
    policy = big_policy(columns)
    if window is None or policy is None:
        why = Unknown("no clock of a CPU was logged" if window else "there is no load window")
        return why, why, ()
    start, end = window[0] * scale, window[1] * scale
    limit = f"{policy}_max_khz"
    source = clocks.ALLOWED if limit in columns else clocks.CURRENT
    logged = column(limit if source == clocks.ALLOWED else f"{policy}_cur_khz")
    board_times = [at * scale for at in times]
    try:
        held = clocks.throttling(Series.of(board_times, logged), start, end, source=source)
        residency = clocks.residency(Series.of(board_times, column(f"{policy}_cur_khz")), start, end)
    except ValueError as error:
        why = Unknown(f"the log's clock is of no use: {error}")
        return why, why, ()
    below = () if isinstance(held, Unknown) else _below(times, logged, held.top, window)
    return held, residency, below


def _below(
    times: Sequence[float], values: Sequence[float | None], top: float, window: tuple[float, float]
) -> tuple[tuple[float, float], ...]:
    """Stretches inside the window in which the clock was below `top`; each reading holds until the next."""
    found: list[tuple[float, float]] = []
    since: float | None = None
    for at, value in zip(times, values, strict=True):
        low = value is not None and value < top and window[0] <= at <= window[1]
        if low and since is None:
            since = at
        elif not low and since is not None:
            found.append((since, min(at, window[1])))
            since = None
    if since is not None:
        found.append((since, window[1]))
    return tuple(found)


def chip_zone(tracks: Sequence[Track]) -> str | None:
    """The temperature that stands for the whole chip."""
    names = [track.name for track in tracks if track.group == TEMPERATURE]
    return next((zone.removesuffix("_celsius") for zone in CHIP_ZONES if zone.removesuffix("_celsius") in names),
                names[0] if names else None)  # fmt: skip
