"""The drawing library: its script for the page, kept between calls, and pictures for papers.

A page carries Vega, Vega-Lite and Vega-Embed, so that it needs no network. Their licences allow that; `NOTICE` is what
they ask to be kept with them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from boardbench.locations import cache_dir
from boardbench.report.page.model import Chart, Part
from boardbench.report.page.style import LIGHT
from boardbench.results import store

VEGA_LITE = "6.4"
_OFFERS = "window.vegaEmbed = vegaEmbed;"
PAPER_WIDTH = 640
"""Pixels of a picture for a paper, before its scale: about one column and a half."""

NOTICE = """
This page carries Vega (Copyright (c) 2013, Trifacta Inc.; (c) 2015-2023, University of Washington Interactive Data
Lab), Vega-Lite and Vega-Embed (Copyright (c) 2015, University of Washington Interactive Data Lab), all rights
reserved, bundled by vl-convert (Copyright 2023 Jon Mease), with parts of D3 (Copyright Mike Bostock, ISC licence).
BSD 3-Clause:

Redistribution and use in source and binary forms, with or without modification, are permitted provided that the
following conditions are met: 1. Redistributions of source code must retain the above copyright notice, this list of
conditions and the following disclaimer. 2. Redistributions in binary form must reproduce the above copyright notice,
this list of conditions and the following disclaimer in the documentation and/or other materials provided with the
distribution. 3. Neither the name of the copyright holder nor the names of its contributors may be used to endorse or
promote products derived from this software without specific prior written permission.

THIS SOFTWARE IS PROVIDED BY THE COPYRIGHT HOLDERS AND CONTRIBUTORS "AS IS" AND ANY EXPRESS OR IMPLIED WARRANTIES,
INCLUDING, BUT NOT LIMITED TO, THE IMPLIED WARRANTIES OF MERCHANTABILITY AND FITNESS FOR A PARTICULAR PURPOSE ARE
DISCLAIMED. IN NO EVENT SHALL THE COPYRIGHT HOLDER OR CONTRIBUTORS BE LIABLE FOR ANY DIRECT, INDIRECT, INCIDENTAL,
SPECIAL, EXEMPLARY, OR CONSEQUENTIAL DAMAGES (INCLUDING, BUT NOT LIMITED TO, PROCUREMENT OF SUBSTITUTE GOODS OR
SERVICES; LOSS OF USE, DATA, OR PROFITS; OR BUSINESS INTERRUPTION) HOWEVER CAUSED AND ON ANY THEORY OF LIABILITY,
WHETHER IN CONTRACT, STRICT LIABILITY, OR TORT (INCLUDING NEGLIGENCE OR OTHERWISE) ARISING IN ANY WAY OUT OF THE USE
OF THIS SOFTWARE, EVEN IF ADVISED OF THE POSSIBILITY OF SUCH DAMAGE.
"""


def bundle() -> str:
    """The script that draws. Made once per version of the library (seconds), then read from the cache folder."""
    path = cache_dir() / f"vega-embed-{version('vl-convert-python')}-{VEGA_LITE}.js"
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        pass
    import vl_convert

    made = str(vl_convert.javascript_bundle(_OFFERS, vl_version=VEGA_LITE))
    path.parent.mkdir(parents=True, exist_ok=True)
    store.write_bytes(path, made.encode("utf-8"), replace=True)
    return made


def whole_spec(chart: Chart, width: int = PAPER_WIDTH) -> dict[str, Any]:
    """The chart as one Vega-Lite document for anybody's tool: data inside, a fixed width, colours for paper."""
    meta = chart.spec["usermeta"]
    inner = width - int(meta["beside"])
    named = {
        "width": inner,
        "columns": max(1, inner // 110),
        "tickCount": max(3, inner // 80),
        "limit": max(30, inner // int(meta["words"]) - 10),
    }
    spec = _fitted(chart.spec, named)
    spec["datasets"] = {
        # Only what a part shares can name a colour: its columns are readings.
        name: [row for part in parts for row in Part(_fitted(part.same, {}), part.columns).rows()]
        for name, parts in chart.data.items()
    }
    return dict(spec)


def _fitted(value: Any, named: Mapping[str, int]) -> Any:
    """As the page's own script does: what says `fill` or `fit` becomes a number; colours become those for paper."""
    if isinstance(value, Mapping):
        return {
            key: named[key] if key in named and inner in ("fill", "fit") else _fitted(inner, named)
            for key, inner in value.items()
        }
    if isinstance(value, list | tuple):
        return [_fitted(inner, named) for inner in value]
    if isinstance(value, str):
        for name, colour in LIGHT.items():
            value = value.replace(f"var(--{name})", colour)
    return value


def write_pictures(charts: list[Chart], folder: Path) -> list[Path]:
    """`<key>.svg`, `.png` (3 pixels a point) and the data as `.vl.json` of each chart; the paths, in order."""
    import vl_convert

    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    for chart in charts:
        spec = whole_spec(chart)
        # Nothing in it names a place to load from, and nothing may.
        drawn = vl_convert.vegalite_to_svg(spec, vl_version=VEGA_LITE, allowed_base_urls=[])
        picture = vl_convert.vegalite_to_png(spec, vl_version=VEGA_LITE, scale=3, allowed_base_urls=[])
        contents = {
            "svg": drawn.encode("utf-8"),
            "png": bytes(picture),
            "vl.json": json.dumps(spec, allow_nan=False).encode("utf-8"),
        }
        for kind, content in contents.items():
            path = folder / f"{chart.key}.{kind}"
            store.write_bytes(path, content, replace=True)
            written.append(path)
    return written
