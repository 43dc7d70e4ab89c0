"""The page as Markdown, for a repository or a ticket: the same words and numbers, charts as the tables behind them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from boardbench.report.page.model import Page, Section, Table, Verdict, shown

_SPECIAL = re.compile(r"([\\`*_\[\]<>#|~$])")


def text(value: str) -> str:
    """Plain text that Markdown leaves as it is: nothing in it becomes a link, a tag or a heading."""
    return _SPECIAL.sub(r"\\\1", " ".join(value.split())).replace("&", "&amp;").replace("\\<", "&lt;")


def render(page: Page) -> str:
    """The whole document."""
    return "\n".join(_lines(page)).rstrip("\n") + "\n"


def _lines(page: Page) -> Iterator[str]:
    yield f"# {text(page.question)}\n"
    yield f"{text(page.title)} `{page.name.replace('`', '')}`\n"
    if page.banner:
        yield f"> **{text(page.banner)}**\n"
    if page.answer:
        yield f"{text(page.answer)}\n"
    for verdict in ([page.prediction] if page.prediction is not None else []) + list(page.verdicts):
        yield from _verdict(verdict)
    yield ""
    if page.domain:
        yield f"Holds for: {text(page.domain)}\n"
    if page.marks:
        yield "; ".join(f"{text(name)}: {text(value)}" for name, value in page.marks) + "\n"
    for section in page.sections:
        yield from _section(section)


def _verdict(verdict: Verdict) -> Iterator[str]:
    yield f"- **{text(verdict.word)}** ({text(verdict.name)}): {text(verdict.text)}"
    yield from (f"  - {text(line)}" for line in verdict.lines)


def _section(section: Section) -> Iterator[str]:
    yield f"## {text(section.title)}\n"
    for line in section.lines:
        yield f"{text(line)}\n"
    if section.commands:
        yield "```sh"
        yield from section.commands
        yield "```\n"
    for verdict in section.verdicts:
        yield from _verdict(verdict)
    if section.verdicts:
        yield ""
    for table in section.tables:
        if not table.folded:
            yield from _table(table)
    for chart in section.charts:
        yield f"### {text(chart.title)}\n"
        yield f"{text(chart.says)}\n"
        if chart.table is not None:
            yield from _table(chart.table)


def _table(table: Table) -> Iterator[str]:
    if table.caption:
        yield f"**{text(table.caption)}**\n"
    yield "| " + " | ".join(text(name) for name in table.columns) + " |"
    yield "|" + "|".join("---:" if at in table.numeric else "---" for at in range(len(table.columns))) + "|"
    for row in table.rows:
        yield "| " + " | ".join(text(shown(value)) for value in row) + " |"
    yield ""
    for note in table.notes:
        yield f"{text(note)}\n"
