"""Which runs count, and on what evidence: every cell, every gate, everything that did not hold."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from boardbench.report.campaign_report import CampaignReport
from boardbench.report.page.model import Cell, Section, Table
from boardbench.report.page.run_view import RunView

MOST_ROWS = 400
SAW_CHARACTERS = 300
"""What a gate saw can be long: a page shows its beginning, the run's run.json holds it whole."""


def section(report: CampaignReport, verdict: Mapping[str, Any], runs: Sequence[RunView]) -> Section:
    """Counts, cells, what did not hold, and the gates with what they saw."""
    counts = report.counts
    lines = [
        f"{counts['valid']} valid, {counts['invalid']} invalid, {counts['missing']} missing of {counts['cells']} cells"
        + (f", {counts['not_selected']} not selected" if counts["not_selected"] else "")
        + ("; the campaign was interrupted." if verdict["interrupted"] else ".")
    ]
    tables = [_cells(verdict)]
    failed = _failed(runs)
    if failed.rows:
        tables.append(failed)
    else:
        lines.append("No gate saw anything against a run." if runs else "No run left evidence.")
    tables.append(_gates(runs))
    tables.append(_evidence(runs))
    return Section("validity", "Validity and evidence", tuple(lines), tuple(tables))


def _cells(verdict: Mapping[str, Any]) -> Table:
    why = {entry["cell"]: entry["why"] for entry in verdict["missing"]}
    rows: list[tuple[Cell, ...]] = []
    marks: dict[int, str] = {}
    for cell in verdict["cells"]:
        reasons = [
            f"attempt {one['attempt']}: {reason['code']}: {reason['detail']}"
            for one in cell["attempts"]
            for reason in one["invalid_reasons"]
        ]
        marks[len(rows)] = {"valid": "good", "not-selected": ""}.get(cell["state"], "bad")
        rows.append((cell["cell"], cell["state"], len(cell["attempts"]), "; ".join(reasons) or why.get(cell["cell"])))
    bad = [row for at, row in enumerate(rows) if marks[at] == "bad"]
    many = len(rows) > 40 and len(bad) <= MOST_ROWS
    kept = bad if many else rows[:MOST_ROWS]
    notes = (
        (f"Only the {len(bad)} cells that do not count; the other {len(rows) - len(bad)} are valid or not selected.",)
        if many
        else ()
    )
    return Table(
        ("cell", "state", "attempts", "why"), tuple(kept), frozenset({2}), notes,
        marks=dict.fromkeys(range(len(kept)), "bad") if many else marks,
    )  # fmt: skip


def _failed(runs: Sequence[RunView]) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (run.cell, entry["gate"], entry["why"] or None, _saw(entry))
        for run in runs
        for entry in run.run["evidence"]
        if not entry["ok"]
    ]
    return Table(("cell", "gate", "why", "saw"), tuple(rows[:MOST_ROWS]), caption="What did not hold",
                 marks=dict.fromkeys(range(len(rows)), "bad"))  # fmt: skip


def _gates(runs: Sequence[RunView]) -> Table:
    found: dict[str, list[int]] = {}
    for run in runs:
        for entry in run.run["evidence"]:
            found.setdefault(str(entry["gate"]), [0, 0])[0 if entry["ok"] else 1] += 1
    rows = tuple((gate, held, broke) for gate, (held, broke) in sorted(found.items()))
    return Table(("gate", "held", "did not hold"), rows, frozenset({1, 2}), caption=f"All {len(rows)} gates, counted",
                 folded=True, marks={at: "bad" for at, row in enumerate(rows) if row[2]})  # fmt: skip


def _evidence(runs: Sequence[RunView]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    total = 0
    for run in runs:
        for entry in run.run["evidence"]:
            total += 1
            if len(rows) < MOST_ROWS:
                held = "held" if entry["ok"] else "did not hold"
                rows.append((run.cell, entry["gate"], held, _saw(entry), entry["why"] or None))
    notes = (f"The first {len(rows)} of {total}; each run's run.json has all of its own.",) if total > len(rows) else ()
    return Table(("cell", "gate", "result", "saw", "why"), tuple(rows), notes=notes,
                 caption="What every gate saw", folded=True)  # fmt: skip


def _saw(entry: Mapping[str, Any]) -> str:
    text = json.dumps(entry["saw"], sort_keys=True, ensure_ascii=False)
    return text if len(text) <= SAW_CHARACTERS else f"{text[:SAW_CHARACTERS]} …"
