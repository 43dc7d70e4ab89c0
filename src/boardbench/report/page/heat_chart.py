"""Temperature, clocks and power of a board on one time axis, with its phases shaded and its throttling marked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from boardbench.analysis.clocks import CURRENT
from boardbench.analysis.estimates import Unknown
from boardbench.report.page.drawing import by_series, document, heading, minutes
from boardbench.report.page.model import Cell, Chart, Part, Table
from boardbench.report.page.run_view import CLOCK, POWER, TEMPERATURE, VOLTS, RunView, Track, chip_zone

HEIGHTS = {TEMPERATURE: 150, CLOCK: 150, POWER: 90, VOLTS: 70}
TITLES = {
    TEMPERATURE: ("Temperature", "°C"),
    CLOCK: ("Clocks", "MHz"),
    POWER: ("Power", "W"),
    VOLTS: ("Input voltage", "V"),
}
IMPORTED = "imported"
"""Stands for the boot id of a board whose log came from elsewhere."""
MOST_ZONES = 4
LABELLED = 3
"""With more runs than this their names would overlap: then only the colours and the pointer tell them."""
_SHADES = {"active": "var(--s0)", "fanless": "var(--s1)", None: "var(--quiet)"}
_SIDES = (("left", 4), ("right", -4))
"""A word beside a line: to its right in the left half of a chart, and the other way round, so that none is cut off."""
_OTHER_ZONES = ("npu", "gpu", "bigcore", "cpu")


def heat_chart(runs: Sequence[RunView], key: str) -> Chart | None:
    """The chart of one board's runs, in the order in which they ran; None when no log has a reading."""
    logged = [run for run in runs if run.tracks and run.window]
    if not logged:
        return None
    minute, clock = time_axis(logged)
    logged.sort(key=lambda run: minute(run, run.window[0] if run.window else 0.0))
    ends = [minute(run, at) for run in logged for track in run.tracks for at in (track.times_s[0], track.times_s[-1])]
    domain = (min(ends), max(ends))
    groups = [group for group in TITLES if any(track.group == group for run in logged for track in run.tracks)]
    middle = (domain[0] + domain[1]) / 2
    data = {"phases": _phases(logged, minute, middle), "held": _held(logged, minute, middle)}
    panels = []
    for group in groups:
        names = _names(logged, group)
        data[group] = tuple(
            _line(run, track, minute)
            for run in logged for track in run.tracks if track.group == group and track.name in names
        )  # fmt: skip
        panels.append(_panel(group, names, domain, _range(data[group], group), last=group == groups[-1],
                             first=group == groups[0], labels=len(logged) <= LABELLED))  # fmt: skip
    board = logged[0].board
    return Chart(
        key=key,
        title=f"{board}: {', '.join(TITLES[group][0].lower() for group in groups)}",
        says=_says(board, logged),
        spec=document(words=len(logged), vconcat=panels, spacing=14),
        data=data,
        table=_table(logged),
        notes=(
            *((f"Runs in order: {', '.join(run.arm for run in logged[:60])}.",) if len(logged) > LABELLED else ()),
            "Shaded: under load, tinted by cooling phase (blue: fan, orange: no fan, grey: not varied or not known). "
            f"Red bar under the clocks: {_red(logged)}. Time: {clock}.",
        ),
    )


def _red(runs: Sequence[RunView]) -> str:
    """What the mark of throttling stands on."""
    sources = {run.held.source for run in runs if not isinstance(run.held, Unknown)}
    if CURRENT in sources:
        return "the big cores ran below their top clock (what the kernel allowed was not logged)"
    return "the kernel allows the big cores less than their top clock"


def time_axis(runs: Sequence[RunView]) -> tuple[Callable[[RunView, float], float], str]:
    """A function from a run and its monotonic second to minutes since the board's first load, and which clock it uses.

    The monotonic clock while the board did not restart between its runs; else its wall clock.
    """
    boots = {str(run.run["boot_ids"]["before"]) for run in runs}
    one = len(boots) == 1 and "missing" not in next(iter(boots))

    def shift(run: RunView) -> float:
        if one:
            return 0.0
        started = run.run["started"]["board"]
        return float(started["wall_unix_s"]) - float(started["monotonic_s"])

    zero = min(run.window[0] + shift(run) for run in runs if run.window)
    if boots == {IMPORTED}:
        return lambda run, at: round((at - zero) * run.scale / 60, 4), "the source's own clock"
    word = "the board's monotonic clock" if one else "the board's wall clock, for it was restarted between runs"
    return lambda run, at: round((at + shift(run) - zero) * run.scale / 60, 4), word


def _line(run: RunView, track: Track, minute: Callable[[RunView, float], float]) -> Part:
    """A run's readings, and a hole at its end: nobody read anything until the next run."""
    times = [minute(run, at) for at in track.times_s]
    return Part({"s": track.name}, {"t": [*times, times[-1]], "v": [*track.values, None]})


def _names(runs: Sequence[RunView], group: str) -> list[str]:
    found = list(dict.fromkeys(track.name for run in runs for track in run.tracks if track.group == group))
    if group != TEMPERATURE:
        return found
    chip = chip_zone([track for run in runs for track in run.tracks])
    others = [name for word in _OTHER_ZONES for name in found if name.startswith(word) and name != chip]
    rest = [name for name in found if name != chip and name not in others]
    return ([chip] if chip else []) + [*others, *rest][: MOST_ZONES - 1]


def _phases(runs: Sequence[RunView], minute: Callable[[RunView, float], float], middle: float) -> tuple[Part, ...]:
    return tuple(
        Part(
            {
                "arm": run.arm,
                "phase": run.run["phase"] or "not varied",
                "shade": _SHADES.get(run.run["phase"], _SHADES[None]),
                "side": "left" if minute(run, run.window[0]) < middle else "right",
            },
            {"t": [minute(run, run.window[0])], "t2": [minute(run, run.window[1])]},
        )
        for run in runs
        if run.window
    )


def _held(runs: Sequence[RunView], minute: Callable[[RunView, float], float], middle: float) -> tuple[Part, ...]:
    """Stretches below the top clock; what is closer than a pixel becomes one. `side`: where its word has room."""
    parts = []
    for run in runs:
        merged: list[list[float]] = []
        for start, end in run.held_times:
            low, high = minute(run, start), minute(run, end)
            if merged and low - merged[-1][1] < 0.05:
                merged[-1][1] = high
            else:
                merged.append([low, high])
        if merged:
            side = "left" if merged[0][0] < middle else "right"
            parts.append(
                Part(
                    {"what": "throttled", "side": side},
                    {
                        "t": [low for low, _ in merged],
                        "t2": [high for _, high in merged],
                        "first": [True] + [False] * (len(merged) - 1),
                    },
                )
            )
    return tuple(parts)


def _range(parts: Sequence[Part], group: str) -> tuple[float, float]:
    """Least and greatest reading with room above for the names of the phases (and from 0 for power)."""
    values = [value for part in parts for value in part.columns["v"] if value is not None]
    low, high = (0.0 if group == POWER else min(values)), max(values)
    room = max(high - low, 1e-3)
    return low - (0.06 * room if group != POWER else 0.0), high + (0.22 if group == TEMPERATURE else 0.08) * room


def _panel(
    group: str,
    names: Sequence[str],
    domain: tuple[float, float],
    reach: tuple[float, float],
    *,
    first: bool,
    last: bool,
    labels: bool,
) -> dict[str, Any]:
    height = HEIGHTS[group]
    x = minutes(title="minutes since the first load" if last else None, domain=domain)
    shade: dict[str, Any] = {
        "data": {"name": "phases"},
        "mark": {"type": "rect", "opacity": 0.1, "clip": True},
        "encoding": {
            "x": {**x, "field": "t"}, "x2": {"field": "t2"},
            "color": {"field": "shade", "type": "nominal", "scale": None},
            "tooltip": [{"field": "arm", "title": "arm"}, {"field": "phase", "title": "cooling"}],
        },
    }  # fmt: skip
    line = {
        "data": {"name": group},
        "mark": {"type": "line", "clip": True, "strokeWidth": 1.5},
        "encoding": {
            "x": x,
            "y": {"field": "v", "type": "quantitative", "scale": {"domain": list(reach), "nice": False},
                  "axis": {"tickCount": 4, "format": ",~f"}},
            **by_series(names),
        },
    }  # fmt: skip
    layers = [shade, line]
    if first and labels:
        layers += [
            {
                "data": {"name": "phases"},
                "transform": [{"filter": f"datum.side === '{side}'"}],
                "mark": {
                    "type": "text",
                    "align": side,
                    "baseline": "top",
                    "dx": by,
                    "y": 4,
                    "fontSize": 11.5,
                    "limit": "fit",
                },
                "encoding": {"x": {**x, "field": "t"}, "text": {"field": "arm"}},
            }
            for side, by in _SIDES
        ]
    if group == CLOCK:
        layers += _throttled(x, height)
    title, unit = TITLES[group]
    return {
        "title": heading(f"{title}, {unit}"), "width": "fill", "height": height,
        "layer": layers, "resolve": {"scale": {"color": "independent", "strokeDash": "independent"}},
    }  # fmt: skip


def _throttled(x: Mapping[str, Any], height: int) -> list[dict[str, Any]]:
    at = {**x, "field": "t"}
    return [
        {
            "data": {"name": "held"},
            "mark": {"type": "rect", "color": "var(--bad)", "y": height - 7, "y2": height, "clip": True},
            "encoding": {"x": at, "x2": {"field": "t2"}},
        },
        {
            "data": {"name": "held"},
            "transform": [{"filter": "datum.first"}],
            "mark": {"type": "rule", "color": "var(--bad)", "strokeDash": [3, 3], "clip": True},
            "encoding": {"x": at},
        },
        *(
            {
                "data": {"name": "held"},
                "transform": [{"filter": f"datum.first && datum.side === '{side}'"}],
                "mark": {
                    "type": "text",
                    "color": "var(--bad)",
                    "align": side,
                    "baseline": "bottom",
                    "dx": by,
                    "y": height - 10,
                    "fontWeight": 600,
                    "fontSize": 11.5,
                },
                "encoding": {"x": at, "text": {"field": "what"}},
            }
            for side, by in _SIDES
        ),
    ]


def _says(board: str, runs: Sequence[RunView]) -> str:
    told = []
    for run in runs[:8]:
        hot = run.heat
        if hot is None or hot.soc_max_celsius is None:
            told.append(f"{run.arm}: no chip temperature")
            continue
        onset = f", throttled after {hot.throttle_onset_s:,.0f} s" if hot.throttle_onset_s is not None else ""
        clock = f", big cores at a median of {hot.cpu_median_mhz:,.0f} MHz" if hot.cpu_median_mhz is not None else ""
        told.append(f"{run.arm}: at most {hot.soc_max_celsius:.1f} °C{clock}{onset}")
    more = f"; and {len(runs) - 8} more runs" if len(runs) > 8 else ""
    return f"Charts of {board} over time, one above the other. {'; '.join(told)}{more}."


def _table(runs: Sequence[RunView]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for run in runs:
        hot, held = run.heat, run.held
        known = not isinstance(held, Unknown)
        rows.append((
            run.arm, run.repetition, run.run["phase"] or None,
            hot.soc_start_celsius if hot else None, hot.soc_max_celsius if hot else None,
            hot.cpu_median_mhz if hot else None, hot.cpu_min_mhz if hot else None,
            ("never" if not held.throttled else held.onset_s) if known and not isinstance(held, Unknown) else None,
            held.below_s if not isinstance(held, Unknown) else None,
            100 * held.depth if not isinstance(held, Unknown) else None,
            *_extremes(run.tracks),
        ))  # fmt: skip
    return Table(
        ("arm", "repetition", "cooling", "SoC at start °C", "SoC max °C", "CPU median MHz", "CPU min MHz",
         "throttled at s", "below top s", "deepest %", "least input V", "greatest power W"),
        tuple(rows), frozenset(range(3, 12)) | {1},
    )  # fmt: skip


def _extremes(tracks: Sequence[Track]) -> tuple[Cell, Cell]:
    volts = [value for track in tracks if track.group == VOLTS for value in track.values if value is not None]
    watts = [value for track in tracks if track.group == POWER for value in track.values if value is not None]
    return min(volts, default=None), max(watts, default=None)
