"""The report as a page: what comes first, what is said aloud, and that no text of others becomes a program."""

from __future__ import annotations

import html as html_of
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import altair
import pytest

from boardbench.report.page import html, markdown, vega
from boardbench.report.page.drawing import BESIDE
from boardbench.report.page.model import Page
from boardbench.report.page.native import MOST_LINES, native_page
from boardbench.report.page.other_charts import decode_chart, latency_chart
from boardbench.report.page.style import DARK, LIGHT
from boardbench.results import schema, store
from boardbench.results.columns import sketch_of, write

from .made_campaign import Wanted, make

HOSTILE = "</script><script>boom()</script><img src=x onerror=boom()>\"'&<!--\u2028`|[a](javascript:boom())"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Page:
    return native_page(make(tmp_path_factory.mktemp("results"), Wanted(virtual=True)))


class Texts(HTMLParser):
    """What a browser would see: tags in order, attributes, and text outside scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._quiet = 0
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._quiet += tag in ("script", "style")

    def handle_endtag(self, tag: str) -> None:
        self._quiet -= tag in ("script", "style")

    def handle_data(self, data: str) -> None:
        if not self._quiet:
            self.text += data


def test_the_made_campaign_is_one_that_the_schemas_know(tmp_path: Path) -> None:
    folder = make(tmp_path, Wanted())
    for name in ("campaign", "plan", "verdict"):
        assert list(schema.faults(store.read_object(folder / f"{name}.json"), name)) == []
    for path in folder.glob("cells/*/*/run.json"):
        assert list(schema.faults(store.read_object(path), "run")) == []


def test_question_and_verdict_come_before_everything_else(page: Page) -> None:
    text = Texts(html.render(page)).text
    order = ["What does it cost?", "prediction hit", "fanless-costs", "Holds for", "Plan and prediction",
             "Figures by condition", "Throughput over time", "Temperature, clocks and power", "Clock residency",
             "Validity and evidence", "Domain of the claim", "How to reproduce"]  # fmt: skip
    places = [text.index(words) for words in order]
    assert places == sorted(places)


def test_a_virtual_campaign_says_so_before_its_question(page: Page) -> None:
    text = Texts(html.render(page)).text
    assert text.index("not hardware") < text.index("What does it cost?")
    assert "Virtual boards" in markdown.render(page).split("##")[0]


def test_a_campaign_on_hardware_has_no_banner(tmp_path: Path) -> None:
    assert native_page(make(tmp_path, Wanted())).banner == ""


def test_a_missed_prediction_says_missed(tmp_path: Path) -> None:
    missed = native_page(make(tmp_path, Wanted(duration_s=60, repeats=3)))
    assert missed.prediction is not None
    assert missed.prediction.word == "prediction missed"
    assert "It was missed." in Texts(html.render(missed)).text


def test_text_of_others_never_becomes_a_program(tmp_path: Path) -> None:
    folder = make(tmp_path, Wanted(question=HOSTILE, domain=HOSTILE, note=HOSTILE, why_invalid=HOSTILE, rules=False))
    made = html.render(native_page(folder))
    seen = Texts(made)
    scripts = [attributes for tag, attributes in seen.tags if tag == "script"]
    assert len(scripts) == 3  # the data, the library, the page's own
    assert "boom" not in "".join(
        f"{tag}{attributes}" for tag, attributes in seen.tags if tag != "div" and tag != "section"
    )
    assert HOSTILE.replace("\u2028", "") in seen.text.replace("\u2028", "")
    assert not [
        tag for tag, attributes in seen.tags if tag == "img" or any(name.startswith("on") for name in attributes)
    ]
    inside = re.search(r'<script type="application/json" id="charts">(.*?)</script>', made, re.S)
    assert inside is not None
    assert json.loads(inside[1])


def test_text_of_others_stays_text_in_markdown(tmp_path: Path) -> None:
    made = markdown.render(native_page(make(tmp_path, Wanted(question=HOSTILE, note=HOSTILE, rules=False))))
    assert "<script" not in made
    assert "<img" not in made
    assert not re.search(r"(?<!\\)\]\(", made)
    assert html_of.unescape(made.split("\n")[0]).startswith("# ")


def test_the_page_names_no_place_to_load_from(page: Page) -> None:
    made = html.render(page)
    seen = Texts(made)
    for tag, attributes in seen.tags:
        for name in ("src", "srcset", "action", "data"):
            assert name not in attributes, (tag, attributes)
        assert (attributes.get("href") or "#").startswith(("#", "data:,")), (tag, attributes)
    assert "@import" not in made.split("</style>")[0]
    assert "default-src 'none'" in made


def test_every_chart_has_words_and_numbers_behind_it(page: Page) -> None:
    charts = list(page.charts())
    assert [chart.key for chart in charts] == ["throughput", "heat-1", "heat-2", "heat-3", "residency"]
    for chart in charts:
        assert len(chart.says) > 60
        assert chart.table is not None
        assert chart.table.rows


def test_every_chart_is_vega_lite_that_its_schema_accepts(page: Page, tmp_path: Path) -> None:
    path = tmp_path / "samples.parquet"
    write(path, {"latency_ms": [1.0 + at % 97 for at in range(2000)], "ok": [True] * 2000})
    sketch = sketch_of([path])
    latency = latency_chart({"a": sketch}, {"king": {"a": sketch}})
    decode = decode_chart({"a": [(float(at), 193 + 0.64 * at + at % 3) for at in range(30)]})
    assert latency is not None
    assert decode is not None
    for chart in [*page.charts(), latency, decode]:
        spec = vega.whole_spec(chart)
        assert "var(--" not in json.dumps(spec)
        assert '"fit"' not in json.dumps(spec)
        altair.Chart.from_dict({**spec, "datasets": {name: rows[:2] for name, rows in spec["datasets"].items()}})


def test_the_decode_chart_says_what_the_line_found() -> None:
    chart = decode_chart({"a": [(float(at), 193 + 0.64 * at + (-1) ** (at // 10)) for at in range(0, 300, 10)]})
    assert chart is not None
    assert "193" in chart.says
    assert "0.64" in chart.says


def test_pictures_are_whole_and_carry_their_data(page: Page, tmp_path: Path) -> None:
    chart = next(chart for chart in page.charts() if chart.key == "residency")
    written = vega.write_pictures([chart], tmp_path / "figures")
    assert [path.name for path in written] == ["residency.svg", "residency.png", "residency.vl.json"]
    assert "<svg" in written[0].read_text()
    assert written[1].read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert json.loads(written[2].read_text())["datasets"]["shares"]


def _contrast(one: str, other: str) -> float:
    def light(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    high, low = sorted((light(one), light(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", [LIGHT, DARK], ids=["light", "dark"])
def test_colours_can_be_told_from_their_ground(scheme: dict[str, str]) -> None:
    for name in ("ink", "quiet", "good", "bad", "warn", "link"):
        for ground in ("paper", "soft"):
            assert _contrast(scheme[name], scheme[ground]) >= 4.5, (name, ground)
    for at in range(8):
        assert _contrast(scheme[f"s{at}"], scheme["paper"]) >= 3.0, at


def test_an_invalid_campaign_shows_what_did_not_hold(tmp_path: Path) -> None:
    text = Texts(html.render(native_page(make(tmp_path, Wanted(why_invalid="it was rebooted", rules=False))))).text
    assert "0 valid, 6 invalid" in text
    assert "What did not hold" in text
    assert "gate-failed: it was rebooted" in text
    assert BESIDE > 0


def test_a_page_of_many_runs_draws_whole_repetitions_and_says_so(tmp_path: Path) -> None:
    boards = tuple(f"board{at}" for at in range(25))
    many = native_page(make(tmp_path, Wanted(boards=boards, repeats=4, duration_s=60, interval_s=20, log=False)))
    section = next(section for section in many.sections if section.key == "throughput-over-time")
    lines = sum(len(parts) for name, parts in section.charts[0].data.items() if name.startswith("rate"))
    assert lines == MOST_LINES == 150
    assert "Drawn: 150 of 200 runs" in section.lines[0]


def test_a_campaign_without_logs_has_a_page_without_their_charts(tmp_path: Path) -> None:
    bare = native_page(make(tmp_path, Wanted(log=False, duration_s=120)))
    assert [chart.key for chart in bare.charts()] == ["throughput"]
    assert "–" in Texts(html.render(bare)).text
