"""What all charts share: look, scales of series, and the top of a Vega-Lite document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from boardbench.report.page.style import SERIES

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
"""Names the grammar; nothing is loaded from it."""
AXIS = 46
"""Pixels that the labels of a vertical axis take: fixed, so that charts above each other line up."""
BESIDE = AXIS + 16
ALLOWED = " allowed"
"""How the name of a series ends that is a limit, not a reading: it is drawn dotted."""
_DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3])


def document(beside: int = BESIDE, words: int = 1, **body: Any) -> dict[str, Any]:
    """A Vega-Lite document in the page's look. `beside`: pixels of its width that are not plot; `words`: how many
    words stand side by side in it, so that each can be kept as short as its place."""
    return {
        "$schema": SCHEMA,
        "background": "transparent",
        "padding": {"left": 0, "right": 6, "top": 4, "bottom": 4},
        "usermeta": {"beside": beside, "words": words},
        "config": _config(),
        **body,
    }


def _config() -> dict[str, Any]:
    font = "system-ui, -apple-system, Segoe UI, Roboto, Liberation Sans, sans-serif"
    return {
        "font": font,
        "view": {"stroke": "var(--line)"},
        "axis": {
            "labelColor": "var(--quiet)",
            "titleColor": "var(--quiet)",
            "gridColor": "var(--line)",
            "gridOpacity": 0.6,
            "domainColor": "var(--line)",
            "tickColor": "var(--line)",
            "labelFontSize": 12,
            "titleFontSize": 12,
            "titleFontWeight": "normal",
            "labelOverlap": "greedy",
            "labelFlush": True,
        },
        "axisY": {"minExtent": AXIS, "maxExtent": AXIS, "title": None},
        "legend": {
            "orient": "top",
            "title": None,
            "titleColor": "var(--quiet)",
            "titleFontWeight": "normal",
            "labelColor": "var(--ink)",
            "labelFontSize": 12,
            "symbolStrokeWidth": 3,
            "labelLimit": 220,
            "columnPadding": 14,
            "rowPadding": 3,
            "offset": 6,
        },
        "title": {
            "anchor": "start",
            "color": "var(--ink)",
            "subtitleColor": "var(--quiet)",
            "fontSize": 12.5,
            "subtitleFontSize": 12,
            "fontWeight": 600,
            "frame": "group",
            "offset": 8,
        },
        "text": {"color": "var(--ink)", "fontSize": 12},
        "rule": {"color": "var(--quiet)"},
        "line": {"strokeWidth": 1.75, "strokeJoin": "round"},
    }


def colours(names: Sequence[str]) -> dict[str, Any]:
    """The colour scale of named series, in their order; the ninth starts again with the first (see `dashes`)."""
    return {"domain": list(names), "range": [f"var(--s{at % SERIES})" for at in range(len(names))]}


def dashes(names: Sequence[str]) -> dict[str, Any]:
    """The dash of each series: solid for the first eight, then other patterns."""
    patterns = [
        list(_DASHES[2 if name.endswith(ALLOWED) else (at // SERIES) % len(_DASHES)]) for at, name in enumerate(names)
    ]
    return {"domain": list(names), "range": patterns}


def by_series(names: Sequence[str], field: str = "s") -> dict[str, Any]:
    """The encoding of a series' name as colour and, where there are many, as dash; with a legend that wraps."""
    legend = {"columns": "fit", "symbolType": "stroke", "symbolOpacity": 1}
    found: dict[str, Any] = {"color": {"field": field, "type": "nominal", "scale": colours(names), "legend": legend}}
    if len(names) > SERIES or any(name.endswith(ALLOWED) for name in names):
        found["strokeDash"] = {"field": field, "type": "nominal", "scale": dashes(names), "legend": legend}
    return found


def minutes(field: str = "t", title: str | None = "minutes", domain: Sequence[float] | None = None) -> dict[str, Any]:
    """The horizontal axis of time. `title` None: a chart below carries the labels."""
    axis = {"tickCount": "fit", "grid": True, "title": title} if title else {"tickCount": "fit", "labels": False,
                                                                           "title": None, "ticks": False}  # fmt: skip
    scale: Mapping[str, Any] = {"domain": list(domain), "nice": False} if domain else {"zero": True, "nice": False}
    return {"field": field, "type": "quantitative", "axis": axis, "scale": scale}


def heading(text: str, more: str = "") -> dict[str, Any]:
    """A title above one panel."""
    return {"text": text, "subtitle": more} if more else {"text": text}
