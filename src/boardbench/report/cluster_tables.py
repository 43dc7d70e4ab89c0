"""The tables of a campaign that loaded a cluster: scaling, tails, nodes, stages. Only valid runs are in them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from boardbench.analysis.cluster_load import PERCENTILES, ArmLoad, LoadRun, arms_of
from boardbench.analysis.estimates import Estimate, Unknown
from boardbench.errors import InputError
from boardbench.report.tables import plain_table
from boardbench.results import requests, store
from boardbench.results.verdict import whole_run
from boardbench.workloads.cluster import LOAD
from boardbench.workloads.npu_load import REPORT, REQUESTS

NOT_MEASURED = "not measured"


def cluster_figures(campaign: Path) -> tuple[ArmLoad, ...]:
    """The arms of a campaign's valid runs; none for a campaign without a cluster."""
    plan: dict[str, Any] = store.read_object(campaign / "plan.json")
    runs = []
    for cell in plan["cells"]:
        if cell.get("role") != LOAD:
            continue
        for attempt in sorted((campaign / "cells" / cell["name"]).glob("attempt-*"), reverse=True):
            run = whole_run(attempt) if not attempt.name.endswith(".partial") else None
            if run is not None and run["valid"]:
                runs.append(_run(attempt / "workload", cell["arm"]))
                break
    direct = plan["workload"]["options"].get("direct_per_s")
    return arms_of(runs, float(direct) if direct is not None else None)


def _run(folder: Path, arm: str) -> LoadRun:
    data: dict[str, Any] = store.read_object(folder / REPORT)
    table = requests.read(folder / REQUESTS)
    summary, law = data["summary"], data.get("littles_law")
    latency = summary["latency"]
    if latency is None or law is None:
        raise InputError("a run that counts has no latency", where=str(folder / REPORT))
    nodes = summary["per_node"]
    return LoadRun(
        arm=arm,
        nodes={node["node_id"]: node["count"] for node in nodes},
        node_p50_ms={node["node_id"]: node["latency"]["p50"] / 1000 for node in nodes},
        rate_per_s=summary["throughput"],
        under_way=data["conditions"]["concurrency"],
        mean_latency_ms=1000 * law["mean_latency_s"],
        latencies_ms=table.latency_ms[table.good].tolist(),
        percentiles_ms={p: latency[f"p{p:g}"] / 1000 for p in PERCENTILES},
        stages={name: _stage(found) for name, found in data["stages"].items()},
    )


def _stage(found: Any) -> float | str:
    return found["p50"] / 1000 if isinstance(found, Mapping) else str(found or NOT_MEASURED)


def as_json(arms: tuple[ArmLoad, ...]) -> list[dict[str, object]]:
    """The figures by name with units; what is not known is `{"missing": why}`."""
    return [
        {
            "arm": arm.arm,
            "runs": arm.runs,
            "nodes_answered": arm.nodes,
            "inferences_per_s": arm.rate_per_s,
            "inferences_per_s_stdev": arm.rate_stdev_per_s,
            "scaling": None
            if arm.speedup is None
            else {"against": arm.against, "speedup": arm.speedup, "efficiency": arm.efficiency},
            "latency_pooled_ms": {f"p{p:g}": _value(arm.pooled[p]) for p in PERCENTILES},
            "latency_run_level_mean_ms": {f"p{p:g}": _value(arm.per_run[p]) for p in PERCENTILES},
            "shares": dict(arm.shares),
            "node_p50_spread": arm.node_spread,
            "littles_law_departure": arm.law,
            "residual_to_direct": {"missing": "no direct rate is given"} if arm.residual is None else arm.residual,
            "stage_p50_ms": {
                name: value if not isinstance(value, str) else {"missing": value}
                for name, value in arm.stages_ms.items()
            },
        }
        for arm in arms
    ]


def _value(figure: Any) -> object:
    if isinstance(figure, Unknown):
        return {"missing": figure.why}
    return figure.value if isinstance(figure, Estimate) else figure.mean


def _number(value: float | None, digits: int = 1, sign: bool = False) -> str:
    return "-" if value is None else f"{value:{'+' if sign else ''}.{digits}f}"


def tables(arms: tuple[ArmLoad, ...]) -> list[Table]:
    """Four tables: rate with scaling, nodes, tails, and the stages of a request."""
    return [_scaling(arms), _nodes(arms), _tails(arms), _stages(arms)] if arms else []


def _scaling(arms: tuple[ArmLoad, ...]) -> Table:
    numeric = ("runs", "nodes", "inf/s", "SD", "speed-up", "efficiency", "law", "residual")
    against = next((arm.against for arm in arms if arm.against), None)
    title = "cluster: rate over valid runs" + (f", scaling against {against}" if against else "")
    table = plain_table(title, "arm", *numeric, numeric=numeric)
    for arm in arms:
        table.add_row(
            escape(arm.arm), str(arm.runs), str(arm.nodes), _number(arm.rate_per_s), _number(arm.rate_stdev_per_s),
            _number(arm.speedup, 2), "-" if arm.efficiency is None else f"{100 * arm.efficiency:.1f}%",
            "-" if arm.law is None else f"{100 * arm.law:+.1f}%",
            NOT_MEASURED if arm.residual is None else f"{100 * arm.residual:.1f}%",
        )  # fmt: skip
    return table


def _nodes(arms: tuple[ArmLoad, ...]) -> Table:
    spread = "largest / smallest\np50 of a node"
    table = plain_table("nodes: whose answers were counted", "arm", spread, "share of each node", numeric=(spread,))
    for arm in arms:
        shares = " ".join(f"{escape(name)} {100 * share:.1f}%" for name, share in arm.shares.items())
        table.add_row(escape(arm.arm), _number(arm.node_spread, 2), shares)
    return table


def _tails(arms: tuple[ArmLoad, ...]) -> Table:
    pooled = [f"p{p:g} pooled\nms" for p in PERCENTILES]
    runs = [f"p{p:g} run-level\nmean, ms" for p in PERCENTILES]
    table = plain_table("latency: of all requests pooled, and of runs (not the same)", "arm", *pooled, *runs,
                        numeric=(*pooled, *runs))  # fmt: skip
    for arm in arms:
        cells = [_cell(arm.pooled[p]) for p in PERCENTILES] + [_cell(arm.per_run[p]) for p in PERCENTILES]
        table.add_row(escape(arm.arm), *cells)
    return table


def _cell(figure: Any) -> str:
    value = _value(figure)
    return f"{value:.1f}" if isinstance(value, int | float) else "too few"


def _stages(arms: tuple[ArmLoad, ...]) -> Table:
    names = list(dict.fromkeys(name for arm in arms for name in arm.stages_ms))
    table = plain_table("stages of a request: mean over runs of p50, ms", "stage", *(escape(arm.arm) for arm in arms))
    for name in names:
        cells = [arm.stages_ms.get(name, NOT_MEASURED) for arm in arms]
        # Why not stands in `report --json`: here it would push the numbers out.
        table.add_row(name, *(f"{cell:.2f}" if isinstance(cell, int | float) else NOT_MEASURED for cell in cells))
    return table
