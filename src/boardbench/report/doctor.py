"""The doctor's table: a line a gate, a column a board; below it what is not well, why, and what to do."""

from __future__ import annotations

from collections.abc import Mapping

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from boardbench.matrix.gates.doctor import FAIL, OK, WARN, Diagnosis, Finding
from boardbench.report.tables import print_table

STYLES = {OK: "green", WARN: "yellow", FAIL: "bold red"}


def print_diagnosis(found: Diagnosis) -> None:
    """Print it all on stdout."""
    boards = list(dict.fromkeys(finding.board for finding in found.findings))
    table = Table(title="gates before a run", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for title in ("gate", *boards):
        table.add_column(escape(title), no_wrap=True)
    for gate in dict.fromkeys(finding.gate for finding in found.findings):
        by_board = {finding.board: finding for finding in found.findings if finding.gate == gate}
        table.add_row(gate, *(_cell(by_board.get(board)) for board in boards))
    if boards:
        print_table(table)
    console = Console(highlight=False, soft_wrap=True)
    for (state, gate, why, advice), where in _grouped(found).items():
        todo = f" -> {escape(advice)}" if advice else ""
        console.print(f"[{STYLES[state]}]{state}[/] {gate} ({', '.join(where)}): {escape(why)}{todo}")
    counts = {state: sum(finding.state == state for finding in found.findings) for state in STYLES}
    console.print(f"{counts[OK]} ok, {counts[WARN]} warn, {counts[FAIL]} fail on {len(boards)} boards")


def _cell(finding: Finding | None) -> str:
    return "-" if finding is None else f"[{STYLES[finding.state]}]{finding.state}[/]"


def _grouped(found: Diagnosis) -> Mapping[tuple[str, str, str, str], list[str]]:
    """What several boards have in common is said once; failures first."""
    groups: dict[tuple[str, str, str, str], list[str]] = {}
    for state in (FAIL, WARN):
        for finding in found.findings:
            if finding.state == state:
                key = (state, finding.gate, str(finding.evidence["why"]), finding.advice)
                groups.setdefault(key, []).append(escape(finding.board))
    return groups
