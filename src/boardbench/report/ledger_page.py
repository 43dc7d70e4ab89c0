"""The ledger for people: every verdict has a part of its own, and all parts are alike; nulls do not hide."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from boardbench.imports import stored as imports
from boardbench.report.campaign_report import load_report
from boardbench.report.page.model import Page, Section, Verdict
from boardbench.results.ledger import DAMAGED, UNFINISHED, Entry
from boardbench.results.ledger_versions import Ledger

PARTS = (
    ("supported", "Supported"), ("refuted", "Refuted"), ("null", "Null: no difference that counts"),
    ("undecided", "Undecided"), ("invalid", "Invalid"), ("no rule", "Figures without a rule"),
    (UNFINISHED, "Not finished"), (DAMAGED, "Damaged: not to be trusted"),
)  # fmt: skip
MOST_FIGURES = 8
MOST_CHANGES = 30


def main_figures(folder: Path) -> list[str]:
    """What a campaign without a rule found, in a few words each."""
    if imports.is_imported(folder):
        from boardbench.report.import_figures import import_figures

        return [f"{name}: {_text(value)}" for name, value in import_figures(imports.load(folder)).items()][
            :MOST_FIGURES
        ]
    report = load_report(folder)
    found = [
        f"{cell.board} {cell.arm}: steady {cell.throughput.steady_per_s:,.0f} {report.rate_unit}/s (mean of last third)"
        for cell in report.cells
        if cell.valid and cell.throughput is not None
    ]
    more = [f"and {len(found) - MOST_FIGURES} more"] if len(found) > MOST_FIGURES else []
    return found[:MOST_FIGURES] + more


def _text(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:,.4g}"


def ledger_page(ledger: Ledger, results: Path) -> Page:
    """The whole ledger as a page."""
    counted = counts(ledger.entries)
    virtual = sum(1 for entry in ledger.entries if entry.virtual)
    banner = (
        f"{virtual} of {len(ledger.entries)} campaigns ran on virtual boards: a thermal model, not hardware."
        if virtual
        else ""
    )
    told = ", ".join(f"{count} {word}" for word, count in counted.items()) or "nothing yet"
    missed = sum(1 for entry in ledger.entries if entry.prediction == "missed")
    foretold = sum(1 for entry in ledger.entries if entry.prediction is not None)
    cells = sum(entry.cells for entry in ledger.entries)
    valid = sum(entry.valid for entry in ledger.entries)
    sections = [_part(word, title, ledger.entries) for word, title in PARTS if word in counted]
    changes = tuple(change.text for change in ledger.changes[:MOST_CHANGES])
    return Page(
        title="Ledger",
        name=f"version {ledger.version}",
        question="What has been found so far?",
        banner=banner,
        answer=f"{len(ledger.entries)} campaigns: {told}. Predictions: {foretold} made, {missed} missed.",
        prediction=None,
        verdicts=(),
        domain="",
        marks=(("cells", f"{valid:,} valid of {cells:,}"), ("results", results.name)),
        sections=(
            *sections,
            Section("changes", "What changed", changes),
            Section(
                "again",
                "How to reproduce",
                ("Made from the campaigns' files alone; one counts only while manifest and verdict are unchanged.",),
                commands=("./inv ledger", "./inv validate   # every hash of every raw file"),
            ),
        ),
    )


def counts(entries: Sequence[Entry]) -> dict[str, int]:
    """How many verdicts of each word, in the order of the parts."""
    words = [word for entry in entries for word in entry.verdicts]
    order = [word for word, _ in PARTS]
    return {
        word: words.count(word) for word in sorted(set(words), key=lambda one: order.index(one) if one in order else 99)
    }


def _part(word: str, title: str, entries: Sequence[Entry]) -> Section:
    """One card a verdict, the same for every word."""
    cards: list[Verdict] = []
    for entry in entries:
        if word not in entry.verdicts:
            continue
        asked = entry.question or "no question can be read"
        ending = (f"{entry.valid} of {entry.cells} cells valid", f"holds for: {entry.domain}") if entry.cells else ()
        if word in (UNFINISHED, DAMAGED):
            cards.append(Verdict(word, _name(entry), asked, entry.why))
        elif word == "no rule":
            cards.append(Verdict(word, _name(entry), asked, (*entry.figures, *ending)))
        else:
            told = () if entry.prediction is None else (f"prediction {entry.prediction}: {entry.predicted}",)
            cards += [
                Verdict(word, _name(entry), asked, (f"{one.rule}: {one.text}", one.numbers, *told, *ending))
                for one in entry.rulings
                if one.verdict == word
            ]
    return Section(word.replace(" ", "-"), f"{title} ({len(cards)})", verdicts=tuple(cards))


def _name(entry: Entry) -> str:
    kind = "imported" if entry.imported else "virtual" if entry.virtual else ""
    day = "" if entry.started_unix_s is None else time.strftime(" %Y-%m-%d", time.gmtime(entry.started_unix_s))
    return f"{entry.matrix} {entry.campaign}{day}{f' ({kind})' if kind else ''}"
