"""The page as one HTML file that needs nothing else: no network, no second file. Every text is escaped."""

from __future__ import annotations

import json
from collections.abc import Iterator
from html import escape

from boardbench.report.page import vega
from boardbench.report.page.model import Cell, Chart, Page, Section, Table, Verdict, shown
from boardbench.report.page.script import JS
from boardbench.report.page.style import CSS

TONES = {
    "supported": "good", "hit": "good", "refuted": "bad", "missed": "bad", "invalid": "bad", "damaged": "bad",
    "null": "warn", "undecided": "warn", "unfinished": "warn",
}  # fmt: skip
SHORT = 26
# The browser itself holds the promise that nothing is asked for. Vega compiles its expressions: hence `unsafe-eval`.
POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline' 'unsafe-eval'; img-src data:; "
    "base-uri 'none'; form-action 'none'"
)


def render(page: Page) -> str:
    """The whole file."""
    charts = list(page.charts())
    return "".join(
        [
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n',
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n',
            '<meta name="viewport" content="width=device-width,initial-scale=1">\n',
            f"<title>{escape(f'{page.title} · {page.name}')}</title>\n",
            '<link rel="icon" href="data:,">\n',
            f"<style>{CSS}</style>\n</head>\n<body>\n",
            *_head(page),
            "<main>\n",
            *(text for section in page.sections for text in _section(section)),
            "</main>\n",
            "<footer><p>Made by boardbench from files alone. Charts: Vega-Lite (BSD 3-Clause; the notice "
            "is in this file's source).</p></footer>\n",
            *(_scripts(charts) if charts else ()),
            "</body>\n</html>\n",
        ]
    )


def _head(page: Page) -> Iterator[str]:
    if page.banner:
        yield f'<div class="banner" role="note">{escape(page.banner)}</div>\n'
    yield f'<header>\n<p class="what"><b>{escape(page.title)}</b> {escape(page.name)}</p>\n'
    yield f"<h1>{escape(page.question)}</h1>\n"
    if page.answer:
        yield f'<p class="answer">{escape(page.answer)}</p>\n'
    shown_first = ([page.prediction] if page.prediction is not None else []) + list(page.verdicts)
    if shown_first:
        yield '<ul class="verdicts">\n'
        yield from (_verdict(verdict) for verdict in shown_first)
        yield "</ul>\n"
    if page.domain:
        yield f'<p class="note"><b>Holds for:</b> {escape(page.domain)}</p>\n'
    if page.marks:
        pairs = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in page.marks)
        yield f'<dl class="marks">{pairs}</dl>\n'
    links = "".join(f'<a href="#{escape(one.key)}">{escape(one.title)}</a> ' for one in page.sections)
    yield f'<nav aria-label="Parts">{links}</nav>\n</header>\n'


def _verdict(verdict: Verdict) -> str:
    tone = TONES.get(verdict.word.split()[-1], "")
    lines = "".join(f"<li>{escape(line)}</li>" for line in verdict.lines)
    return (
        f'<li class="{tone}"><p><span class="word">{escape(verdict.word)}</span> '
        f'<span class="name">{escape(verdict.name)}</span></p><p>{escape(verdict.text)}</p>'
        f"{f'<ul>{lines}</ul>' if lines else ''}</li>\n"
    )


def _section(section: Section) -> Iterator[str]:
    yield f'<section id="{escape(section.key)}" aria-labelledby="{escape(section.key)}-h">\n'
    yield f'<h2 id="{escape(section.key)}-h">{escape(section.title)}</h2>\n'
    for line in section.lines:
        yield f"<p>{escape(line)}</p>\n"
    if section.commands:
        commands = "\n".join(section.commands)
        yield f"<pre><code>{escape(commands)}</code></pre>\n"
    if section.verdicts:
        yield f'<ul class="verdicts">\n{"".join(_verdict(verdict) for verdict in section.verdicts)}</ul>\n'
    for table in section.tables:
        yield from _table(table)
    for chart in section.charts:
        yield from _chart(chart)
    yield "</section>\n"


def _chart(chart: Chart) -> Iterator[str]:
    key = escape(chart.key)
    yield f'<figure><figcaption>{escape(chart.title)}</figcaption>\n<div class="chart" id="chart-{key}">'
    yield f"<noscript>{escape(chart.says)}</noscript></div>\n"
    for note in chart.notes:
        yield f'<p class="note">{escape(note)}</p>\n'
    if chart.table is not None:
        yield "<details><summary>The numbers behind this chart</summary>\n"
        yield from _grid(chart.table)
        yield "</details>\n"
    yield "</figure>\n"


def _table(table: Table) -> Iterator[str]:
    if table.folded:
        yield f"<details data-long><summary>{escape(table.caption)}</summary>\n"
        yield from _grid(table)
        yield "</details>\n"
    else:
        yield from _grid(table)


def _grid(table: Table) -> Iterator[str]:
    name = escape(table.caption) or "Table"
    yield f'<div class="wide" tabindex="0" role="region" aria-label="{name}"><table>\n'
    if table.caption and not table.folded:
        yield f"<caption>{escape(table.caption)}</caption>\n"
    heads = "".join(
        f'<th scope="col"{_right(table, at)}>{escape(column)}</th>' for at, column in enumerate(table.columns)
    )
    yield f"<thead><tr>{heads}</tr></thead>\n<tbody>\n"
    for number, row in enumerate(table.rows):
        first, *rest = (_cell(table, at, value) for at, value in enumerate(row))
        yield f'<tr class="{escape(table.marks.get(number, ""))}">{first}{"".join(rest)}</tr>\n'
    yield "</tbody></table></div>\n"
    for note in table.notes:
        yield f'<p class="note">{escape(note)}</p>\n'


def _right(table: Table, at: int) -> str:
    return ' class="n"' if at in table.numeric else ""


def _cell(table: Table, at: int, value: Cell) -> str:
    tag = 'th scope="row"' if at == 0 else "td"
    text = shown(value)
    # A short name is not broken at its hyphens; a long text is.
    kind = _right(table, at) or (' class="s"' if len(text) <= SHORT else "")
    return f"<{tag}{kind}>{escape(text)}</{tag.split()[0]}>"


def as_script_text(value: object) -> str:
    """JSON that cannot end the script element it stands in, nor start a comment in it."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for sign, code in (
        ("<", "\\u003c"),
        (">", "\\u003e"),
        ("&", "\\u0026"),
        ("\u2028", "\\u2028"),
        ("\u2029", "\\u2029"),
    ):
        text = text.replace(sign, code)
    return text


def _scripts(charts: list[Chart]) -> Iterator[str]:
    data = [
        {
            "key": chart.key,
            "says": chart.says,
            "spec": chart.spec,
            "data": {
                name: [
                    {"same": dict(part.same), "columns": {k: list(v) for k, v in part.columns.items()}}
                    for part in parts
                ]
                for name, parts in chart.data.items()
            },
        }
        for chart in charts
    ]
    yield f'<script type="application/json" id="charts">{as_script_text(data)}</script>\n'
    yield f"<!--{vega.NOTICE}-->\n<script>{_safe(vega.bundle())}</script>\n<script>{JS}</script>\n"


def _safe(script: str) -> str:
    """A script whose own strings cannot end its element."""
    return script.replace("</script", "<\\/script").replace("<!--", "<\\!--")
