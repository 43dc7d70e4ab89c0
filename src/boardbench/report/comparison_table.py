"""A comparison for the terminal."""

from __future__ import annotations

from rich.markup import escape

from boardbench.report.comparison import Compared, Measured
from boardbench.report.page.model import shown
from boardbench.report.tables import plain_console, plain_table

MOST_CELLS = 60
_STYLES = {"better": "green", "worse": "bold red"}


def print_comparison(found: Compared) -> None:
    """What is against what, in spite of what, then the ratios and the cells."""
    console = plain_console()
    console.print(f"ratio = B / A, baseline A\nA {_name(found.a)}\nB {_name(found.b)}")
    if found.a.virtual or found.b.virtual:
        console.print("[yellow]virtual boards[/]: a thermal model, not hardware")
    for name, in_a, in_b in found.despite:
        console.print(f"[bold yellow]unlike {escape(name)}[/] (--despite): A {escape(in_a)}; B {escape(in_b)}")
    mark = " *" if found.despite else ""
    table = plain_table("", "metric", "cells", f"B / A{mark}", "pairs", "verdict", "why", numeric=("pairs",))
    for row in found.rows:
        one = row.comparison
        style = _STYLES.get(row.meaning, "")
        verdict = f"{one.verdict}{f', {row.meaning}' if row.meaning else ''}"
        table.add_row(
            escape(row.metric), escape(row.arm), escape(one.ratio.text), f"{one.pairs}",
            f"[{style}]{verdict}[/]" if style else verdict, escape(one.why),
        )  # fmt: skip
    for column in table.columns:
        column.no_wrap = column.header not in ("why", f"B / A{mark}", "cells")
    console.print(table)
    if found.despite:
        console.print(f"* unlike: {', '.join(name for name, _, _ in found.despite)}: the difference may be theirs")
    console.print(
        f"geometric mean of paired ratios, intervals for all rows together; a difference must pass "
        f"{100 * found.minimum_effect:g} % and its noise floor"
    )
    for noise in dict.fromkeys(f"{row.metric}: {row.noise}" for row in found.rows):
        console.print(f"noise floor of {escape(noise)}")
    for name in found.twins:
        console.print(
            f"[bold yellow]{escape(name)}[/]: A and B carry the very same numbers; one may be a copy of the other"
        )
    _cells(found)
    if found.only_a or found.only_b:
        console.print(f"not compared: {found.only_a} cells that only A has, {found.only_b} that only B has")


def _cells(found: Compared) -> None:
    table = plain_table("cells", "board", "arm", "rep", "metric", "A", "B", "B / A", "B - A", "note",
                        numeric=("rep", "A", "B", "B / A", "B - A"))  # fmt: skip
    for cell in found.cells[:MOST_CELLS]:
        table.add_row(escape(cell.board), escape(cell.arm), str(cell.repetition), escape(cell.metric), shown(cell.a),
                      shown(cell.b), shown(cell.ratio), shown(cell.difference), escape(cell.why))  # fmt: skip
    if len(found.cells) > MOST_CELLS:
        table.caption = f"and {len(found.cells) - MOST_CELLS} more (--json has all)"
    plain_console().print(table)


def _name(campaign: Measured) -> str:
    kind = "imported" if campaign.imported else "virtual" if campaign.virtual else "hardware"
    return f"{escape(campaign.matrix)} {escape(campaign.name)} ({kind})"
