"""The `npu-load` workload: a scheduler and a load generator on one board, fresh node agents on the others.

Raw output of the load's board is the load generator's report (`load.json`) and every request (`requests.columns`);
of a node its own count of inferences (`node.jsonl`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from boardbench.errors import BugError, InputError
from boardbench.workloads.base import (
    PYTHON,
    Answers,
    ClosedLoop,
    Durations,
    Figure,
    Harness,
    Interval,
    Samples,
    Traits,
    run_folder,
    script,
)
from boardbench.workloads.cluster import LOAD, NODE, Place

REPORT, REQUESTS, NODE_RAW = "load.json", "requests.columns", "node.jsonl"
PROGRAM = script("npu-run", "main.py")
UNIT = "inferences"
ASSEMBLY_S = 20.0
FIRST_SEED = 42
"""Of the first repetition, as the rig's load generator had it."""
LEVEL_WORDS: Mapping[str, Mapping[str, object]] = {
    "policy": {name.replace("-", ""): name for name in ("round-robin", "least-queue", "ect")},
    "stale": {"fresh": False, "stale": True},
}
_MS = {"ms": 1.0, "s": 0.001}
_LATENCIES = ("p50", "p95", "p99", "mean", "max")
FIGURES: Mapping[str, Mapping[str, float]] = {
    "mean-rate": {f"{UNIT}/s": 1.0},  # what succeeded over the whole load, by its length
    **{f"latency-{name}": _MS for name in _LATENCIES},  # over all requests of a run
    "errors": {"count": 1.0},  # requests of a run that failed
    "longest-silence": {"s": 1.0},  # longest time without a good answer of a node
    "node-spread": {"ratio": 1.0},  # largest over smallest 50th percentile of latency of the nodes
    "share-spread": {"percentage-points": 1.0},  # largest less smallest share of the nodes
}
_STAMP = ("wall_unix_s", "monotonic_s", "boottime_s")


class NpuLoad:
    """Loads a cluster; see `ClusterWorkload`."""

    name: str = "npu-load"
    payloads: tuple[str, ...] = ("npu-run", "npu-load", "npu-scheduler", "npu-node", "npu-common")
    harness: Harness = Harness(
        scripts=tuple(script(name, "main.py") for name in ("npu-run", "npu-load", "npu-scheduler", "npu-node"))
    )
    raw_files: tuple[str, ...] = (REPORT, REQUESTS)
    concurrency_option: str | None = "concurrency_per_node"
    traits: Traits = Traits(figures=FIGURES, level_words=LEVEL_WORDS)

    def argv(self, run: str, options: Mapping[str, object], durations: Durations) -> list[str]:
        """A part of it alone is no load."""
        raise BugError("npu-load needs to know the place of its board")

    def lead_s(self, options: Mapping[str, Any], scale: float) -> float:
        """See `ClusterWorkload.lead_s`: agents start, golden outputs are compared, clients warm up, boards heat up."""
        return ASSEMBLY_S + float(options.get("preheat_s", 0.0)) / scale

    def nodes(self, options: Mapping[str, Any], available: int) -> int:
        """See `ClusterWorkload.nodes`: option `nodes`, else all of them."""
        wanted = int(options.get("nodes", available))
        if wanted > available:
            raise InputError(f"an arm wants {wanted} nodes, {available} boards can be one", advice="see 'boards'")
        return wanted

    def raw_of(self, role: str) -> tuple[str, ...]:
        """See `ClusterWorkload.raw_of`."""
        return (NODE_RAW,) if role == NODE else self.raw_files

    def part(self, place: Place, run: str, options: Mapping[str, Any], durations: Durations) -> list[str]:
        """See `ClusterWorkload.part`."""
        bell = f"{place.load_address}:50052"
        # A virtual board has no NPU; what a real one runs is never a model of it.
        backend = str(options.get("backend", "virtual" if place.virtual else "rknn"))
        argv = [
            PYTHON, "-IS", PROGRAM, place.role,
            "--out", f"{run_folder(run)}/workload",
            "--bell", bell,
            "--seed", str(FIRST_SEED + place.repetition - 1),
            "--model", str(options.get("model", "yolov8n")),
            "--duration-s", _seconds(durations.duration_s),
            "--interval-s", _seconds(durations.interval_s),
            "--stretch", f"{options.get('stretch', 1):g}",
        ]  # fmt: skip
        if place.role == LOAD:
            return argv + _load_part(place, options, durations)
        argv += ["--name", place.board, "--listen", f"{place.address}:51001"]
        argv += ["--scheduler", f"{place.load_address}:50051", "--backend", backend]
        argv += ["--workers", str(options.get("workers", 8)), "--patience-s", _seconds(durations.lead_s + 30.0)]
        # A fault befalls the first node alone.
        if "fault" in options and place.board == place.nodes[0][0]:
            argv += ["--fault", str(options["fault"])]
        if "model_directory" in options:
            argv += ["--model-directory", str(options["model_directory"])]
        return argv

    def read(self, raw: Path) -> Samples:
        """See `Workload.read`; what is there tells whose output it is."""
        if (raw / NODE_RAW).exists():
            return _read_node(raw / NODE_RAW)
        return _read_load(raw / REPORT)


def _load_part(place: Place, options: Mapping[str, Any], durations: Durations) -> list[str]:
    per_node = int(options.get("concurrency_per_node", 12))
    argv = [
        "--address", place.address,
        "--nodes", ",".join(name for name, _ in place.nodes),
        "--concurrency", str(per_node * len(place.nodes)),
        "--node-connections", str(options.get("node_connections", 2)),
        "--policy", str(options.get("policy", "round-robin")),
        "--warmup", str(options.get("warmup", 5)),
        "--lead-s", _seconds(durations.lead_s),
    ]  # fmt: skip
    if "preheat_s" in options:
        argv.append("--preheat")
    if options.get("stale"):
        argv.append("--stale")
    if "rate_per_node" in options:
        argv += ["--mode", "open", "--rate", f"{float(options['rate_per_node']) * len(place.nodes):g}"]
        argv += ["--arrivals", str(options.get("arrivals", "poisson"))]
    return argv


def _seconds(value: float) -> str:
    return f"{value:.6f}".rstrip("0").rstrip(".")


def _json(path: Path) -> Mapping[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError("is missing", where=str(path)) from None
    except (UnicodeDecodeError, ValueError) as error:
        raise InputError(f"is not JSON: {error}", where=str(path)) from None
    if not isinstance(data, dict):
        raise InputError("is not an object", where=str(path))
    return data


def _at(data: Any, where: str, *keys: str) -> Any:
    """What lies under these keys; InputError naming the way when it does not."""
    for key in keys:
        if not isinstance(data, Mapping) or key not in data:
            raise InputError(f"{'.'.join(keys)} is missing", where=where)
        data = data[key]
    return data


def _number(data: Any, where: str, *keys: str) -> float:
    value = _at(data, where, *keys)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InputError(f"{'.'.join(keys)} is not a number", where=where)
    return float(value)


def _interval(entry: Any, where: str) -> Interval:
    return Interval(
        int(_number(entry, where, "index")),
        _number(entry, where, "start_monotonic_s"),
        _number(entry, where, "end_monotonic_s"),
        _number(entry, where, "amount"),
        _number(entry, where, "rate_per_s"),
    )


def _read_load(path: Path) -> Samples:
    data, where = _json(path), str(path)
    summary = _at(data, where, "summary")
    entries = _at(data, where, "intervals")
    if not isinstance(entries, list):
        raise InputError("intervals is not a list", where=where)
    counted = {str(_at(node, where, "node_id")): int(_number(node, where, "count"))
               for node in _at(summary, where, "per_node")}  # fmt: skip
    asked = data.get("nodes_expected") or sorted(counted)
    law = data.get("littles_law")
    concurrency = _at(data, where, "conditions").get("concurrency")
    loop = None
    if concurrency is not None and law is not None:
        loop = ClosedLoop(float(concurrency), _number(law, where, "rate_per_s"), _number(law, where, "mean_latency_s"))
    return Samples(
        UNIT,
        tuple(_interval(entry, where) for entry in entries),
        True,
        "the load ended",
        {key: _number(data, where, "ended", key) for key in _STAMP},
        data.get("virtual") is True,
        closed_loop=loop,
        total=_number(summary, where, "succeeded"),
        answers=Answers(tuple(str(name) for name in asked), counted),
        figures={name: Figure(value) for name, value in (_figures(summary, where) | _silence(data)).items()},
    )


def _figures(summary: Mapping[str, Any], where: str) -> dict[str, float]:
    """Figures of one run beside its rates. What it did not measure is not in it."""
    found: dict[str, float] = {}
    if isinstance(summary.get("throughput"), int | float):
        found["mean-rate"] = _number(summary, where, "throughput")
    if summary.get("latency") is not None:
        for name in _LATENCIES:
            found[f"latency-{name}"] = _number(summary, where, "latency", name) / 1e3
    found["errors"] = _number(summary, where, "failed")
    nodes = [node for node in _at(summary, where, "per_node") if node.get("latency")]
    if nodes:
        shares = [_number(node, where, "share") for node in nodes]
        medians = [_number(node, where, "latency", "p50") for node in nodes]
        found["share-spread"] = 100 * (max(shares) - min(shares))
        found["node-spread"] = max(medians) / min(medians) if min(medians) > 0 else math.nan
    return {name: value for name, value in found.items() if math.isfinite(value)}


def _silence(data: Mapping[str, Any]) -> dict[str, float]:
    found = data.get("longest_silence_s") or {}
    return {"longest-silence": max(float(value) for value in found.values())} if found else {}


def _read_node(path: Path) -> Samples:
    intervals: list[Interval] = []
    end: Mapping[str, Any] | None = None
    virtual: bool | None = None
    try:
        lines = path.read_bytes().decode("utf-8").split("\n")[:-1]
    except UnicodeDecodeError:
        raise InputError("is not UTF-8", where=str(path)) from None
    for number, line in enumerate(lines, start=1):
        where = f"{path}:{number}"
        try:
            event = json.loads(line)
        except ValueError as error:
            raise InputError(f"is not JSON: {error}", where=where) from None
        kind = event.get("event") if isinstance(event, dict) else None
        if end is not None:
            raise InputError("there is a line after the end event", where=where)
        if kind == "start":
            virtual = event.get("virtual") is True
        elif kind == "interval":
            intervals.append(_interval(event, where))
        elif kind == "end":
            end = event
        elif kind == "fault":
            continue
        else:
            raise InputError(f"unknown event {kind!r}", where=where)
    if virtual is None:
        raise InputError("there is no start event", where=str(path))
    stamp = {key: _number(end, str(path), "stamp", key) for key in _STAMP} if end is not None else None
    total = _number(end, str(path), "total") if end is not None else None
    why = "" if end is None else str(end.get("why"))
    return Samples(UNIT, tuple(intervals), end is not None, why, stamp, virtual, total=total)
