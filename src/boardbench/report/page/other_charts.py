"""Latency distribution, decode decomposition and clock residency."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp, log

from boardbench.analysis.decode import DecodePoint, decompose
from boardbench.analysis.sketch import Sketch
from boardbench.report.page.drawing import AXIS, by_series, document
from boardbench.report.page.model import Cell, Chart, Part, Table

# From the top clock down: blue holds its speed, red is far below it.
STEPS = ("#2166ac", "#4393c3", "#92c5de", "#d1e5f0", "#fddbc7", "#f4a582", "#d6604d", "#b2182b", "#8f1425", "#67101c")
_QUOTED = (50.0, 95.0, 99.0, 99.9)


def latency_chart(sketches: Mapping[str, Sketch], whole: Mapping[str, Mapping[str, Sketch]]) -> Chart | None:
    """Share of requests that took longer than x ms, by arm (pooled over boards and repetitions).

    `whole`: board -> arm -> sketch, for the table. None without a request above 0 ms.
    """
    drawn = {arm: sketch for arm, sketch in sketches.items() if sketch.buckets}
    if not drawn:
        return None
    least = 1 / max(sketch.count for sketch in drawn.values())
    x = {"field": "t", "type": "quantitative", "scale": {"type": "log", "nice": False},
         "axis": {"title": "latency, ms (log)", "tickCount": "fit", "format": "~g"}}  # fmt: skip
    y = {"field": "v", "type": "quantitative", "scale": {"type": "log", "domain": [least, 1]},
         "axis": {"format": "~%", "tickCount": 5}}  # fmt: skip
    spec = document(
        width="fill", height=240, title={"text": "Share of requests slower than x (log)"},
        layer=[
            {"data": {"name": "tail"}, "mark": {"type": "line", "interpolate": "step-after"},
             "encoding": {"x": x, "y": y, **by_series(list(drawn))}},
            {"data": {"name": "quoted"}, "mark": {"type": "point", "filled": True, "size": 50, "tooltip": True},
             "encoding": {"x": x, "y": y, **by_series(list(drawn))}},
        ],
    )  # fmt: skip
    return Chart(
        "latency",
        "Latency distribution",
        _latency_says(drawn),
        spec,
        {
            "tail": tuple(_tail(arm, sketch) for arm, sketch in drawn.items()),
            "quoted": tuple(part for arm, sketch in drawn.items() if (part := _quoted(arm, sketch)) is not None),
        },
        _latency_table(whole),
        ("Dots: p50, p95, p99 and p99.9 of all requests of an arm together, where there are enough.",),
    )


def _tail(arm: str, sketch: Sketch) -> Part:
    step = log((1 + sketch.relative_error) / (1 - sketch.relative_error))
    seen, at, share = sketch.zeros, [], []
    for key in sorted(sketch.buckets):
        at.append(round(exp((key - 0.5) * step), 6))
        share.append(1 - seen / sketch.count)
        seen += sketch.buckets[key]
    if len(at) > 800:
        every = -(-len(at) // 800)
        at, share = [*at[::every], at[-1]], [*share[::every], share[-1]]
    return Part({"s": arm}, {"t": at, "v": share})


def _quoted(arm: str, sketch: Sketch) -> Part | None:
    found = [(p, figure) for p in _QUOTED if hasattr(figure := sketch.percentile(p), "value")]
    points = [(f"p{p:g}", getattr(figure, "value"), 1 - p / 100) for p, figure in found if getattr(figure, "value") > 0]  # noqa: B009
    if not points:
        return None
    names, at, share = zip(*points, strict=True)
    return Part({"s": arm}, {"what": list(names), "t": list(at), "v": list(share)})


def _latency_says(sketches: Mapping[str, Sketch]) -> str:
    told = [
        f"{arm}: median {sketch.percentile(50).text}, p99 {sketch.percentile(99).text}"
        for arm, sketch in sketches.items()
    ]
    return f"Lines of the share of requests slower than a latency, both axes logarithmic. {'; '.join(told)}."


def _latency_table(whole: Mapping[str, Mapping[str, Sketch]]) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (board, arm, sketch.count, *(sketch.percentile(p).text for p in _QUOTED), sketch.maximum)
        for board, arms in whole.items()
        for arm, sketch in arms.items()
    ]
    return Table(
        ("board", "arm", "requests", "p50", "p95", "p99", "p99.9", "greatest ms"),
        tuple(rows), frozenset({2, 7}),
        ("Pooled over all requests of all repetitions, by a sketch; the interval is its bound.",),
    )  # fmt: skip


def decode_chart(points: Mapping[str, Sequence[tuple[float, float]]]) -> Chart | None:
    """Time of a token against what it read, by arm, with the fitted line and its band. None without a point."""
    drawn = {arm: found for arm, found in points.items() if found}
    if not drawn:
        return None
    fits = {arm: decompose([DecodePoint(x, y) for x, y in found]) for arm, found in drawn.items()}
    lines, bands = [], []
    for arm, fit in fits.items():
        if fit.line is None:
            continue
        far = max(x for x, _ in drawn[arm])
        steps = [far * at / 40 for at in range(41)]
        lines.append(Part({"s": arm}, {"t": [0, far], "v": [fit.line.at(0), fit.line.at(far)]}))
        band = [fit.line.band(x) for x in steps]
        bands.append(Part({"s": arm}, {"t": steps, "v": [low for low, _ in band], "v2": [high for _, high in band]}))
    x = {"field": "t", "type": "quantitative", "axis": {"title": "MiB read a token", "tickCount": "fit"}}
    y = {"field": "v", "type": "quantitative", "scale": {"zero": True}, "axis": {"tickCount": 5}}
    spec = document(
        width="fill", height=260, title={"text": "Time a token, ms"},
        layer=[
            {"data": {"name": "band"}, "mark": {"type": "area", "opacity": 0.18},
             "encoding": {"x": x, "y": y, "y2": {"field": "v2"}, **by_series(list(drawn))}},
            {"data": {"name": "points"}, "mark": {"type": "point", "size": 22, "opacity": 0.7},
             "encoding": {"x": x, "y": y, **by_series(list(drawn))}},
            {"data": {"name": "line"}, "mark": {"type": "line", "strokeWidth": 2},
             "encoding": {"x": x, "y": y, **by_series(list(drawn))}},
        ],
    )  # fmt: skip
    parts = tuple(
        Part({"s": arm}, {"t": [x for x, _ in found], "v": [y for _, y in found]}) for arm, found in drawn.items()
    )
    rows = tuple((arm, len(drawn[arm]), fit.fixed.text, fit.per_mib.text, fit.bound.text, len(fit.outliers))
                 for arm, fit in fits.items())  # fmt: skip
    says = "; ".join(f"{arm}: {fit.fixed.text} fixed and {fit.per_mib.text}" for arm, fit in fits.items())
    return Chart(
        "decode", "What a token costs: fixed, and per MiB read",
        f"Scatter of time a token against MiB read a token, with a line by arm. {says}.",
        spec, {"points": parts, "line": tuple(lines), "band": tuple(bands)},
        Table(("arm", "points", "fixed", "per MiB", "bound on decode", "outliers"), rows, frozenset({1, 5})),
    )  # fmt: skip


def residency_chart(shares: Mapping[tuple[str, str], Mapping[float, float]]) -> Chart | None:
    """Share of time under load at each clock of the big cores, MHz -> share, by (board, arm). None without any."""
    if not shares:
        return None
    levels = sorted({clock for found in shares.values() for clock in found}, reverse=True)
    names = [f"{clock:,.0f}" for clock in levels]
    colour = {"domain": names, "range": [STEPS[min(at, len(STEPS) - 1)] for at in range(len(names))]}
    parts, rows = [], []
    for (board, arm), found in shares.items():
        known = sorted(found, reverse=True)
        parts.append(Part({"b": f"{board}, {arm}"}, {
            "c": [f"{clock:,.0f}" for clock in known], "v": [found[clock] for clock in known],
            "o": [levels.index(clock) for clock in known]}))  # fmt: skip
        rows.append((board, arm, *(round(100 * found[clock], 2) if clock in found else None for clock in levels)))
    beside = AXIS + 96
    spec = document(
        beside,
        width="fill",
        height={"step": 26},
        data={"name": "shares"},
        mark={"type": "bar", "tooltip": True, "stroke": "var(--paper)", "strokeWidth": 0.5},
        encoding={
            "y": {
                "field": "b",
                "type": "nominal",
                "sort": None,
                "axis": {"minExtent": beside - 16, "maxExtent": beside - 16, "labelLimit": beside - 24, "title": None},
            },
            "x": {
                "field": "v",
                "type": "quantitative",
                "scale": {"domain": [0, 1]},
                "axis": {"format": "~%", "title": "share of the time under load", "tickCount": "fit"},
            },
            "color": {
                "field": "c",
                "type": "ordinal",
                "sort": names,
                "scale": colour,
                "legend": {"columns": "fit", "symbolType": "square", "title": "MHz"},
            },
            "order": {"field": "o", "type": "quantitative"},
        },
    )
    top = levels[0]
    says = "; ".join(
        f"{board} {arm}: {100 * found.get(top, 0.0):.0f} % at {top:,.0f} MHz" for (board, arm), found in shares.items()
    )
    return Chart(
        "residency",
        "Where the big cores' clock stood",
        f"Stacked bars of the share of time at each clock. {says}.",
        spec,
        {"shares": tuple(parts)},
        Table(("board", "arm", *(f"{name} MHz %" for name in names)), tuple(rows), frozenset(range(2, len(names) + 2))),
        ("Each reading of the clock holds until the next; mean over valid repetitions.",),
    )
