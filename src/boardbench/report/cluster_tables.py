"""The tables of a campaign that loaded a cluster: scaling, nodes, tails, stages. One source for all forms of report."""

from __future__ import annotations

from collections.abc import Sequence

from rich.markup import escape
from rich.table import Table as Grid

from boardbench.analysis.cluster_load import PERCENTILES, ArmLoad
from boardbench.analysis.estimates import Figure, Unknown
from boardbench.analysis.percentiles import RunLevel
from boardbench.report.cluster import NO_DIRECT, NOT_MEASURED, value_of
from boardbench.report.page.model import Cell, Table
from boardbench.report.tables import plain_table

TOO_FEW = "too few"
STAGES_WIDTH = 90
"""Characters beside the names of the stages."""


def tables(arms: Sequence[ArmLoad]) -> tuple[Table, ...]:
    """Rate with scaling, nodes, tails, and the stages of a request; none without an arm."""
    return (_scaling(arms), _nodes(arms), _tails(arms), *map(_stages, _abreast(arms))) if arms else ()


def for_terminal(table: Table) -> Grid:
    """A table as the terminal shows it: without its notes, for which a page has the room."""
    grid = plain_table(table.caption, *table.columns, numeric=[table.columns[at] for at in table.numeric])
    for row in table.rows:
        grid.add_row(*("-" if cell is None else escape(str(cell)) for cell in row))
    return grid


def _number(value: float | None, digits: int = 1) -> Cell:
    return None if value is None else f"{value:.{digits}f}"


def _percent(value: float | None, sign: str = "") -> Cell:
    return None if value is None else f"{100 * value:{sign}.1f}%"


def _scaling(arms: Sequence[ArmLoad]) -> Table:
    against = next((arm.against for arm in arms if arm.against), None)
    rows = tuple(
        (
            arm.arm, str(arm.runs), str(arm.nodes), _number(arm.rate_per_s), _number(arm.rate_stdev_per_s),
            _number(arm.speedup, 2), _percent(arm.efficiency), _percent(arm.law, "+"),
            NOT_MEASURED if arm.residual is None else _percent(arm.residual),
        )
        for arm in arms
    )  # fmt: skip
    notes = [
        "inf/s: inferences that succeeded over the whole load by its length, mean over valid runs; SD: sample "
        "deviation over runs. Nodes: those that answered.",
        f"Speed-up: rate over that of {against}; efficiency: speed-up over how many times its nodes."
        if against
        else "No speed-up: all arms have as many nodes.",
        "Little's law: rate x mean latency over the requests under way, less 1.",
    ]
    residual = "Residual: share of a node's direct rate that is lost on the way"
    notes.append(
        f"{residual}; {NOT_MEASURED}: {NO_DIRECT}." if any(a.residual is None for a in arms) else f"{residual}."
    )
    return Table(
        ("arm", "runs", "nodes", "inf/s", "SD", "speed-up", "efficiency", "Little's\nlaw", "residual\nto direct"),
        rows, frozenset(range(1, 9)), tuple(notes),
        "cluster: rate over valid runs" + (f", scaling against {against}" if against else ""),
    )  # fmt: skip


def _nodes(arms: Sequence[ArmLoad]) -> Table:
    rows = tuple(
        (
            arm.arm,
            _number(arm.node_spread, 2),
            " ".join(f"{name} {100 * share:.1f}%" for name, share in arm.shares.items()),
        )
        for arm in arms
    )
    return Table(
        ("arm", "largest / smallest\np50 of a node", "share of each node"), rows, frozenset({1}),
        ("Spread: mean over runs of the greatest over the least 50th percentile of a node's latency.",),
        "nodes: whose answers were counted",
    )  # fmt: skip


def _tails(arms: Sequence[ArmLoad]) -> Table:
    pooled = [f"p{p:g} pooled\nms" for p in PERCENTILES]
    runs = [f"p{p:g} run-level\nmean, ms" for p in PERCENTILES]
    rows = tuple(
        (arm.arm, *(_tail(arm.pooled[p]) for p in PERCENTILES), *(_tail(arm.per_run[p]) for p in PERCENTILES))
        for arm in arms
    )
    notes = [
        "Pooled: nearest rank over all requests of all runs of an arm. Run-level: mean of what each run told for "
        "itself; it reads low in the tail."
    ]
    figures = [figure for arm in arms for figure in (*arm.pooled.values(), *arm.per_run.values())]
    notes += [f"{TOO_FEW}: {why}." for why in dict.fromkeys(f.why for f in figures if isinstance(f, Unknown))]
    return Table(
        ("arm", *pooled, *runs), rows, frozenset(range(1, 1 + 2 * len(PERCENTILES))), tuple(notes),
        "latency: of all requests pooled, and of runs (not the same)",
    )  # fmt: skip


def _tail(figure: Figure | RunLevel) -> Cell:
    return TOO_FEW if isinstance(figure, Unknown) else _number(value_of(figure))


def _abreast(arms: Sequence[ArmLoad]) -> list[list[ArmLoad]]:
    """The arms in groups whose columns stand side by side on a terminal of usual width."""
    found: list[list[ArmLoad]] = [[]]
    left = STAGES_WIDTH
    for arm in arms:
        needed = max(len(NOT_MEASURED), len(arm.arm)) + 3
        if found[-1] and needed > left:
            found.append([])
            left = STAGES_WIDTH
        found[-1].append(arm)
        left -= needed
    return found


def _stages(arms: Sequence[ArmLoad]) -> Table:
    names = list(dict.fromkeys(name for arm in arms for name in arm.stages_ms))
    rows: list[tuple[Cell, ...]] = []
    why: dict[str, list[str]] = {}
    for name in names:
        cells = [arm.stages_ms.get(name, NOT_MEASURED) for arm in arms]
        rows.append((name, *(f"{cell:.2f}" if not isinstance(cell, str) else NOT_MEASURED for cell in cells)))
        for text in dict.fromkeys(cell for cell in cells if isinstance(cell, str) and cell != NOT_MEASURED):
            why.setdefault(text, []).append(name)
    return Table(
        ("stage", *(arm.arm for arm in arms)), tuple(rows), frozenset(range(1, 1 + len(arms))),
        tuple(f"{', '.join(mine)}: {text}." for text, mine in why.items()),
        "stages of a request: mean over runs of p50, ms",
    )  # fmt: skip
