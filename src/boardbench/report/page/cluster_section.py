"""A cluster on the page: its tables, the rate over the node count, and the latencies of each arm."""

from __future__ import annotations

from collections.abc import Sequence

from boardbench.analysis.cluster_load import PERCENTILES, ArmLoad
from boardbench.report.cluster import Cluster, value_of
from boardbench.report.cluster_tables import tables
from boardbench.report.page.drawing import AXIS, document
from boardbench.report.page.model import Chart, Part, Section

KEY = "cluster"
KINDS = ("pooled", "mean of runs")
NAMES = tuple(f"p{p:g}" for p in PERCENTILES)
BESIDE = AXIS + 96


def cluster_section(cluster: Cluster) -> Section | None:
    """The section; None where no cluster was loaded, or no run of it counts."""
    if not cluster.arms:
        return None
    charts = (rate_chart(cluster.arms), latency_chart(cluster.arms))
    return Section(
        KEY, "Cluster: scaling, nodes, latency, stages",
        tables=tables(cluster.arms), charts=tuple(chart for chart in charts if chart is not None),
    )  # fmt: skip


def rate_chart(arms: Sequence[ArmLoad]) -> Chart | None:
    """Rate over the nodes that answered, beside what as many nodes of the base would give. None without scaling."""
    drawn = [arm for arm in arms if arm.speedup is not None and arm.efficiency is not None]
    base = next((arm for arm in drawn if arm.arm == arm.against), None)
    if base is None:
        return None
    most = max(arm.nodes for arm in drawn)
    label = [f"{arm.speedup:.2f} x\n{100 * (arm.efficiency or 0):.1f} %" for arm in drawn]
    spread = [arm for arm in drawn if arm.rate_stdev_per_s is not None]
    counts = sorted({arm.nodes for arm in drawn})
    x = {"field": "t", "type": "quantitative", "scale": {"domain": [0, 1.25 * most], "nice": False},
         "axis": {"title": "nodes that answered", "values": counts, "format": "d"}}  # fmt: skip
    y = {"field": "v", "type": "quantitative", "scale": {"zero": True}, "axis": {"tickCount": 5, "format": "~s"}}
    told = "; ".join(
        f"{arm.arm}, {arm.nodes} nodes: {arm.rate_per_s:.1f}, {' '.join(text.splitlines())}"
        for arm, text in zip(drawn, label, strict=True)
    )
    spec = document(
        width="fill", height=240, title={"text": "Inferences/s, mean over runs"},
        layer=[
            {"data": {"name": "ideal"}, "mark": {"type": "line", "strokeDash": [5, 4], "color": "var(--quiet)"},
             "encoding": {"x": x, "y": y}},
            {"data": {"name": "spread"}, "mark": {"type": "rule", "color": "var(--s0)", "strokeWidth": 2},
             "encoding": {"x": x, "y": y, "y2": {"field": "v2"}}},
            {"data": {"name": "rate"},
             "mark": {"type": "point", "filled": True, "size": 70, "opacity": 1, "color": "var(--s0)", "tooltip": True},
             "encoding": {"x": x, "y": y}},
            # Below and beside its point: there neither the line of even scaling nor the bar runs.
            {"data": {"name": "rate"},
             "mark": {"type": "text", "align": "left", "baseline": "top", "dx": 9, "dy": 2, "lineBreak": "\n"},
             "encoding": {"x": x, "y": y, "text": {"field": "label"}}},
        ],
    )  # fmt: skip
    data = {
        "ideal": (Part({}, {"t": [0, most], "v": [0.0, base.rate_per_s / base.nodes * most]}),),
        "spread": (Part({}, {
            "t": [arm.nodes for arm in spread],
            "v": [arm.rate_per_s - (arm.rate_stdev_per_s or 0) for arm in spread],
            "v2": [arm.rate_per_s + (arm.rate_stdev_per_s or 0) for arm in spread]}),),
        "rate": (Part({}, {
            "arm": [arm.arm for arm in drawn], "t": [arm.nodes for arm in drawn],
            "v": [arm.rate_per_s for arm in drawn], "label": label}),),
    }  # fmt: skip
    return Chart(
        "cluster-rate",
        "Rate over the number of nodes, with speed-up and efficiency",
        f"Points of inferences per second over nodes that answered, beside a line of even scaling. {told}.",
        spec,
        data,
        notes=(f"Dashed: as many nodes as {base.arm} is worth each. Bars: ± sample deviation over runs.",),
    )


def latency_chart(arms: Sequence[ArmLoad]) -> Chart | None:
    """Percentiles of latency by arm, pooled and of runs. None where there are too few requests for any."""
    points = [
        (arm.arm, kind, f"p{p:g}", value)
        for arm in arms
        for kind, found in zip(KINDS, (arm.pooled, arm.per_run), strict=True)
        for p in PERCENTILES
        if (value := value_of(found[p])) is not None
    ]
    if not points:
        return None
    reach = {
        (arm, kind): [ms for a, k, _, ms in points if (a, k) == (arm, kind)]
        for arm, kind in dict.fromkeys((arm, kind) for arm, kind, _, _ in points)
    }
    x = {"field": "v", "type": "quantitative", "scale": {"zero": True},
         "axis": {"title": "latency, ms", "tickCount": "fit"}}  # fmt: skip
    beside = {"minExtent": BESIDE - 16, "maxExtent": BESIDE - 16, "labelLimit": BESIDE - 24, "title": None}
    y = {"field": "b", "type": "nominal", "sort": None, "axis": beside}
    place = {"yOffset": {"field": "k", "type": "nominal", "sort": list(KINDS)}}
    colour = {"field": "s", "type": "nominal", "sort": list(NAMES),
              "scale": {"domain": list(NAMES), "range": [f"var(--s{at})" for at in range(len(NAMES))]},
              "legend": {"columns": "fit", "symbolType": "circle"}}  # fmt: skip
    grey = {"columns": "fit", "symbolFillColor": "var(--quiet)", "symbolStrokeColor": "var(--quiet)"}
    shape = {"field": "k", "type": "nominal", "legend": grey,
             "scale": {"domain": list(KINDS), "range": ["circle", "diamond"]}}  # fmt: skip
    spec = document(
        BESIDE, width="fill", height={"step": 20, "for": "offset"},
        layer=[
            {"data": {"name": "reach"}, "mark": {"type": "rule", "color": "var(--line)", "strokeWidth": 3},
             "encoding": {"y": y, "x": x, "x2": {"field": "v2"}, **place}},
            {"data": {"name": "points"},
             "mark": {"type": "point", "filled": True, "size": 70, "opacity": 1, "tooltip": True},
             "encoding": {"y": y, "x": x, "color": colour, "shape": shape, **place}},
        ],
    )  # fmt: skip
    names, kinds, percentiles, values = zip(*points, strict=True)
    data = {
        "reach": (Part({}, {
            "b": [arm for arm, _ in reach], "k": [kind for _, kind in reach],
            "v": [min(found) for found in reach.values()], "v2": [max(found) for found in reach.values()]}),),
        "points": (Part({}, {"b": list(names), "k": list(kinds), "s": list(percentiles), "v": list(values)}),),
    }  # fmt: skip
    told = "; ".join(f"{arm} {kind}: {', '.join(f'{p} {ms:.0f}' for a, k, p, ms in points if (a, k) == (arm, kind))}"
                     for arm, kind in reach)  # fmt: skip
    return Chart(
        "cluster-latency", "Latency of each arm: of all requests, and of its runs",
        f"Points of latency percentiles in ms, a row an arm. {told}.",
        spec, data,
        notes=("Above: percentiles of all requests of an arm together; below: means of what its runs told.",),
    )  # fmt: skip
