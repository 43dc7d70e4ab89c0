"""A campaign that loaded a cluster of one and of three nodes, its requests written by the load generator's own code."""

from __future__ import annotations

import array
import io
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from boardbench.results import manifest, store, verdict

from .made_campaign import BOOT, SHA, WALL, Wanted, _campaign, _plan

sys.path.insert(0, str(Path(__file__).parents[3] / "payloads" / "npu-load"))
sys.path.insert(0, str(Path(__file__).parents[3] / "payloads" / "npu-common"))

from npuload import parquet
from npuload.parquet import Column

NODES = ("king", "queen", "jack")
LOAD = "jetson"
SECONDS = 20
UNFILLED = "not measured: always 0, nobody fills it in"


def latency_s(arm_nodes: int, repetition: int, at: int) -> float:
    """Latency of a request: node by node slower, a tail at every 50th, the second repetition 10 % slower."""
    base = 0.080 + 0.010 * (at % arm_nodes)
    return base * (1 + 0.1 * (repetition - 1)) * (4.0 if at % 50 == 49 else 1.0)


def make(
    results: Path, arms: tuple[int, ...] = (1, 3), repeats: int = 2, options: Mapping[str, Any] = MappingProxyType({})
) -> Path:
    """Write the campaign and return its folder. `arms`: how many nodes each has; arm `nodes3` has three."""
    wanted = Wanted(boards=(*NODES, LOAD), rules=False, virtual=True, campaign="20261130T152429Z-c1a57e12")
    folder = results / "made" / wanted.campaign
    folder.mkdir(parents=True)
    plan = _plan(wanted) | {
        "workload": {"name": "npu-load", "options": dict(options)},
        "repeats": repeats,
        "cells": _cells(arms, repeats),
        "arms": [
            {
                "name": f"nodes{n}",
                "levels": {"nodes": str(n)},
                "phase": None,
                "control_of": None,
                "options": {"nodes": n},
            }
            for n in arms
        ],
    }
    store.write_json(folder / "plan.json", plan)
    store.write_json(folder / "campaign.json", _campaign(wanted))
    (folder / "journal.jsonl").write_text("")
    for cell in plan["cells"]:
        _attempt(folder, cell, int(cell["arm"].removeprefix("nodes")))
    store.write_json(folder / "verdict.json", verdict.make(folder, plan, verdict.Ending({}, False, {})))
    manifest.write(folder)
    return folder


def _cells(arms: tuple[int, ...], repeats: int) -> list[dict[str, Any]]:
    cells: list[dict[str, Any]] = []
    # The larger arm first in the first repetition: tables follow the plan's arms, not what ran first.
    for repetition in range(1, repeats + 1):
        for n in sorted(arms, reverse=repetition % 2 == 1):
            for board, role in [*((node, "node") for node in NODES[:n]), (LOAD, "load")]:
                number = len(cells) + 1
                cells.append({"number": number, "name": f"{number:03d}-nodes{n}-{board}", "wave": 1, "arm": f"nodes{n}",
                              "repetition": repetition, "boards": [board], "role": role})  # fmt: skip
    return cells


def _attempt(folder: Path, cell: dict[str, Any], nodes: int) -> None:
    attempt = folder / "cells" / cell["name"] / "attempt-1"
    (attempt / "workload").mkdir(parents=True)
    start = 1000.0 * cell["number"]
    count = SECONDS * 12 * nodes
    stamp = {"wall_unix_s": WALL, "monotonic_s": start + SECONDS, "boottime_s": start + SECONDS}
    if cell["role"] == "load":
        files = {"load.json": json.dumps(_report(cell, nodes, count, start, stamp)).encode(),
                 "requests.parquet": _requests(cell, nodes, count)}  # fmt: skip
    else:
        pieces = [{"event": "interval", **piece} for piece in _pieces(count // nodes, start)]
        lines = [{"event": "start", "virtual": True}, *pieces,
                 {"event": "end", "why": "the load ended", "stamp": stamp, "total": count // nodes}]  # fmt: skip
        files = {"node.jsonl": "".join(json.dumps(line) + "\n" for line in lines).encode()}
    listed = []
    for name, content in files.items():
        (attempt / "workload" / name).write_bytes(content)
        sha256 = store.sha256_file(attempt / "workload" / name)
        listed.append({"name": f"workload/{name}", "size": len(content), "sha256": sha256})
    begun = {"wall_unix_s": WALL, "monotonic_s": start, "boottime_s": start}
    run = {
        "schema_version": 1, "run": f"run-{cell['number']}", "campaign": folder.name, "cell": cell["name"],
        "arm": {"nodes": str(nodes)}, "phase": None, "repetition": cell["repetition"], "attempt": 1,
        "boards": cell["boards"], "virtual": True, "time_scale": 1.0, "logger_period_s": 1.0,
        "workload": {"name": "npu-load", "mode": "sustained", "argv": ["/usr/bin/python3"], "payload_files": [],
                     "raw_files": sorted(files)},
        "started": {"board": begun, "controller_wall_unix_s": WALL},
        "ended": {"board": stamp, "controller_wall_unix_s": WALL}, "boot_ids": {"before": BOOT, "after": BOOT},
        "exit": {"code": 0}, "load_window_monotonic_s": [start, start + SECONDS], "page_cache": "warm",
        "evidence": [], "files": listed, "valid": True, "invalid_reasons": [],
    }  # fmt: skip
    (attempt / "run.json").write_bytes(store.to_bytes(run))


def _pieces(count: int, start: float) -> list[dict[str, Any]]:
    return [{"index": at, "start_monotonic_s": start + at, "end_monotonic_s": start + at + 1,
             "amount": count // SECONDS, "rate_per_s": count / SECONDS} for at in range(SECONDS)]  # fmt: skip


def _summary(values_s: list[float]) -> dict[str, int]:
    us = sorted(round(1e6 * value) for value in values_s)
    found = {f"p{p}": us[max(1, -(-p * len(us) // 100)) - 1] for p in (50, 90, 95, 99)}
    return {"count": len(us), "min": us[0], **found, "max": us[-1], "mean": sum(us) // len(us)}


def _report(cell: dict[str, Any], nodes: int, count: int, start: float, stamp: dict[str, float]) -> dict[str, Any]:
    every = [latency_s(nodes, cell["repetition"], at) for at in range(count)]
    mean_s, rate = sum(every) / count, count / SECONDS
    per_node = [
        {"node_id": name, "count": count // nodes, "share": 1 / nodes, "latency": _summary(every[at::nodes])}
        for at, name in enumerate(NODES[:nodes])
    ]
    return {
        "conditions": {"concurrency": rate * mean_s}, "virtual": True, "ended": stamp,
        "intervals": _pieces(count, start),
        "summary": {"succeeded": count, "failed": 1, "throughput": rate, "latency": _summary(every),
                    "per_node": per_node},
        "littles_law": {"rate_per_s": rate, "mean_latency_s": mean_s, "under_way": rate * mean_s},
        "nodes_expected": list(NODES[:nodes]), "verdict": {"valid": True, "reasons": []}, "sha256": SHA,
        "stages": {"inference": _summary([0.014] * 10), "decode": UNFILLED, "residual": "not measured"},
    }  # fmt: skip


def _requests(cell: dict[str, Any], nodes: int, count: int) -> bytes:
    """What the load generator writes: `count` requests that succeeded, and one that failed after 99 s."""
    every = [latency_s(nodes, cell["repetition"], at) for at in range(count)]
    begun = [SECONDS * at / count for at in range(count)]
    file = io.BytesIO()
    latency_ms = array.array("d", (1000 * each for each in [*every, 99.0]))
    parquet.write(file, {"run_id": cell["name"]}, [
        Column("start_s", array.array("d", [*begun, 0.0])),
        Column("latency_ms", latency_ms),
        Column("ok", bytearray([1] * count + [0])),
        Column("node", array.array("i", [at % nodes for at in range(count + 1)]), list(NODES[:nodes])),
        Column("code", array.array("i", [0] * count + [1]), ["NPF-0000", "NPF-1301"]),
        Column("attempts", array.array("i", [1] * (count + 1))),
        Column("inference_us", array.array("i", [14_000] * count + [-1]), None, -1),
    ])  # fmt: skip
    return file.getvalue()
