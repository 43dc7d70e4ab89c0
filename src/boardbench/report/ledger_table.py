"""The ledger for the terminal."""

from __future__ import annotations

from rich.markup import escape

from boardbench.report.decision_text import STYLES
from boardbench.report.ledger_page import counts
from boardbench.report.tables import plain_console, plain_table
from boardbench.results.ledger import DAMAGED, UNFINISHED
from boardbench.results.ledger_versions import Ledger

MOST_ROWS = 200
_STYLES = {**STYLES, DAMAGED: "bold red", UNFINISHED: "yellow", "no rule": ""}


def print_ledger(ledger: Ledger) -> None:
    """Counts, a line a verdict (newest campaigns last), and what changed."""
    console = plain_console()
    table = plain_table(f"ledger, version {ledger.version}", "verdict", "campaign", "what", "valid", "virtual")
    table.columns[2].no_wrap = False
    rows = [(word, entry, at) for entry in ledger.entries for at, word in enumerate(entry.verdicts)]
    for word, entry, at in rows[-MOST_ROWS:]:
        what = "; ".join(entry.why) or ("; ".join(entry.figures) if word == "no rule" else "")
        if at < len(entry.rulings) and not entry.why:
            what = f"{entry.question} {entry.rulings[at].rule}: {entry.rulings[at].numbers}"
        style = _STYLES.get(word, "")
        table.add_row(
            f"[{style}]{word}[/]" if style else word,
            escape(f"{entry.matrix}\n{entry.campaign}"),
            escape(what or entry.question),
            f"{entry.valid}/{entry.cells}",
            "imported"
            if entry.imported
            else {True: "yes", False: "no"}.get(entry.virtual, "-")
            if entry.virtual is not None
            else "-",
        )
    console.print(table)
    if len(rows) > MOST_ROWS:
        console.print(f"the last {MOST_ROWS} of {len(rows)} verdicts; --html, --markdown and --json have all")
    told = ", ".join(f"{count} {word}" for word, count in counts(ledger.entries).items()) or "nothing yet"
    console.print(f"{len(ledger.entries)} campaigns: {told}")
    for change in ledger.changes[:3]:
        console.print(escape(change.text))
