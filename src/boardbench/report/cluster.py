"""What a campaign that loaded a cluster came to, read from its files once for every form of report.

Only valid runs are in it: a run counts when its own files and the campaign's verdict say so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from boardbench.analysis.cluster_load import PERCENTILES, ArmLoad, LoadRun, arms_of
from boardbench.analysis.estimates import Estimate, Figure, Unknown
from boardbench.analysis.percentiles import RunLevel
from boardbench.errors import InputError
from boardbench.results import requests, store
from boardbench.results.verdict import whole_run
from boardbench.workloads.cluster import LOAD
from boardbench.workloads.npu_load import REPORT

NOT_MEASURED = "not measured"
NO_DIRECT = "no direct rate is given"
NO_SCALING: Mapping[str, None] = {"against": None, "speedup": None, "efficiency": None}


@dataclass(frozen=True)
class Cluster:
    """The arms in the plan's order, and the load's run that counts of each cell. Empty: no cluster was loaded."""

    arms: tuple[ArmLoad, ...] = ()
    runs: Mapping[str, LoadRun] = field(default_factory=dict)


def cluster_of(campaign: Path) -> Cluster:
    """The cluster of a finished campaign's folder. Raises InputError for a run that counts and cannot be read."""
    plan: dict[str, Any] = store.read_object(campaign / "plan.json")
    cells = [cell for cell in plan["cells"] if cell.get("role") == LOAD]
    if not cells:
        return Cluster()
    verdict: dict[str, Any] = store.read_object(campaign / "verdict.json")
    judged = {entry["cell"]: entry["attempts"] for entry in verdict["cells"]}
    order = [arm["name"] for arm in plan["arms"]]
    runs: dict[str, LoadRun] = {}
    for cell in sorted(cells, key=lambda cell: order.index(cell["arm"])):
        numbers = [entry["attempt"] for entry in judged.get(cell["name"], ()) if entry["valid"]]
        for number in sorted(numbers, reverse=True):
            attempt = campaign / "cells" / cell["name"] / f"attempt-{number}"
            if whole_run(attempt) is not None:
                runs[cell["name"]] = _run(attempt / "workload", cell["arm"])
                break
    return Cluster(arms_of(list(runs.values()), _direct_per_s(campaign, plan["workload"]["options"])), runs)


def _direct_per_s(campaign: Path, options: Mapping[str, Any]) -> float | None:
    """What one board does by itself, as the matrix gives it; virtual boards in a stretched world do less."""
    given = options.get("direct_per_s")
    if given is None:
        return None
    virtual = store.read_object(campaign / "campaign.json")["virtual"]
    return float(given) / (float(options.get("stretch", 1.0)) if virtual else 1.0)


def _run(folder: Path, arm: str) -> LoadRun:
    data: dict[str, Any] = store.read_object(folder / REPORT)
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
        latencies_ms=requests.good_latencies_ms(folder),
        percentiles_ms={p: latency[f"p{p:g}"] / 1000 for p in PERCENTILES},
        stages={name: _stage(found) for name, found in data["stages"].items()},
    )


def _stage(found: Any) -> float | str:
    return found["p50"] / 1000 if isinstance(found, Mapping) else str(found or NOT_MEASURED)


def value_of(figure: Figure | RunLevel) -> float | None:
    """The number of a percentile, or None where there is none."""
    if isinstance(figure, Unknown):
        return None
    return figure.value if isinstance(figure, Estimate) else figure.mean


def arm_as_json(arm: ArmLoad) -> dict[str, object]:
    """An arm's figures by name with units; what is not known is `{"missing": why}`."""
    return {
        "arm": arm.arm,
        "runs": arm.runs,
        "nodes_answered": arm.nodes,
        "inferences_per_s": arm.rate_per_s,
        "inferences_per_s_stdev": arm.rate_stdev_per_s,
        "scaling": None
        if arm.speedup is None
        else {"against": arm.against, "speedup": arm.speedup, "efficiency": arm.efficiency},
        "latency_pooled_ms": {f"p{p:g}": _or_missing(arm.pooled[p]) for p in PERCENTILES},
        "latency_run_level_mean_ms": {f"p{p:g}": _or_missing(arm.per_run[p]) for p in PERCENTILES},
        "shares": dict(arm.shares),
        "node_p50_spread": arm.node_spread,
        "littles_law_departure": arm.law,
        "residual_to_direct": {"missing": NO_DIRECT} if arm.residual is None else arm.residual,
        "stage_p50_ms": _stages(arm.stages_ms),
    }


def _or_missing(figure: Figure | RunLevel) -> object:
    return {"missing": figure.why} if isinstance(figure, Unknown) else value_of(figure)


def _stages(stages: Mapping[str, float | str]) -> dict[str, object]:
    return {name: {"missing": value} if isinstance(value, str) else value for name, value in stages.items()}


def _run_as_json(run: LoadRun) -> dict[str, object]:
    return {
        "nodes_answered": len(run.nodes),
        "inferences_per_s": run.rate_per_s,
        "under_way": run.under_way,
        "mean_latency_ms": run.mean_latency_ms,
        "latency_ms": {f"p{p:g}": run.percentiles_ms.get(p) for p in PERCENTILES},
        "node_inferences": dict(run.nodes),
        "node_p50_ms": dict(run.node_p50_ms),
        "stage_p50_ms": _stages(run.stages),
    }


def columns_of(cluster: Cluster) -> dict[str, dict[str, object]]:
    """Cell -> the columns of its row: `load_*` of its own run, then `arm_*` of its arm, the same in each of its runs.

    Names end with what is inside a figure (`arm_latency_pooled_ms_p99`); None for what is not known.
    """
    arms: dict[str, dict[str, object]] = {}
    for arm in cluster.arms:
        found = {key: value for key, value in arm_as_json(arm).items() if key != "arm"}
        arms[arm.arm] = dict(_flat("arm", {**found, "scaling": found["scaling"] or NO_SCALING}))
    return {name: {**dict(_flat("load", _run_as_json(run))), **arms[run.arm]} for name, run in cluster.runs.items()}


def _flat(name: str, value: object) -> Iterator[tuple[str, object]]:
    if not isinstance(value, Mapping):
        yield name, value
    elif "missing" in value:
        yield name, None
    else:
        for key, inner in value.items():
            yield from _flat(f"{name}_{key}", inner)
