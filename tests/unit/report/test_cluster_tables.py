"""The tables of a cluster on a terminal of usual width: every number whole, every node with its share."""

from __future__ import annotations

import io

from rich.console import Console

from boardbench.analysis.cluster_load import LoadRun, arms_of
from boardbench.report.cluster_tables import for_terminal, tables


def run(arm: str, *nodes: str) -> LoadRun:
    rate = 35.5 * len(nodes)
    return LoadRun(
        arm=arm,
        nodes=dict.fromkeys(nodes, 500),
        node_p50_ms={name: 300.0 + 30 * number for number, name in enumerate(nodes)},
        rate_per_s=rate,
        under_way=12 * len(nodes),
        mean_latency_ms=12_000 / 35.5,
        latencies_ms=[float(ms) for ms in range(100, 1100)],
        percentiles_ms={p: 100.0 + p for p in (50, 95, 99)},
        stages={"inference": 170.25, "decode": "not measured"},
    )


def shown(*runs: LoadRun) -> str:
    out = io.StringIO()
    console = Console(file=out, width=118)
    for table in tables(arms_of(runs, None)):
        console.print(for_terminal(table))
    return out.getvalue()


def test_rate_scaling_and_shares_are_whole() -> None:
    text = shown(run("nodes1", "king"), run("nodes3", "king", "queen", "jack"))
    assert "\u2026" not in text
    row = next(line.split() for line in text.splitlines() if line.split()[:3] == ["nodes3", "1", "3"])
    assert row[3] == "106.5"
    assert "3.00" in row
    assert "100.0%" in row
    assert "king 33.3% queen 33.3% jack 33.3%" in text or "jack 33.3% king 33.3% queen 33.3%" in text
    assert "1.20" in text


def test_a_stage_that_was_not_measured_has_no_number() -> None:
    row = next(line.split() for line in shown(run("nodes1", "king")).splitlines() if line.startswith(" decode"))
    assert row == ["decode", "not", "measured"]


def test_many_arms_stand_in_several_tables_rather_than_in_columns_that_are_cut() -> None:
    names = [f"conn{conn}-c{under_way}" for conn in (1, 2, 4) for under_way in (8, 12, 16, 24)]
    text = shown(*(run(name, "king") for name in names))
    assert "\u2026" not in text
    rows = [line.split() for line in text.splitlines() if line.startswith(" inference")]
    assert len(rows) > 1
    assert [cell for row in rows for cell in row[1:]] == ["170.25"] * 12
    heads = [line.split()[1:] for line in text.splitlines() if line.startswith(" stage ")]
    assert [name for head in heads for name in head] == names


def test_words_of_a_board_are_never_markup() -> None:
    assert "[bold]king 100.0%" in shown(run("nodes1", "[bold]king"))


def test_without_a_cluster_there_is_no_table() -> None:
    assert tables(()) == ()
