"""The `npu-load` workload: a scheduler and a load generator on one board, fresh node agents on the others.

Raw output of the load's board is the load generator's report (`load.json`) and every request (`requests.parquet`);
of a node its own count of inferences (`node.jsonl`).
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from boardbench.errors import BugError, InputError
from boardbench.workloads.base import (
    PYTHON,
    Answers,
    ClosedLoop,
    Durations,
    Figure,
    Golden,
    Harness,
    Interval,
    Samples,
    Traits,
    run_folder,
    script,
    seconds_text,
)
from boardbench.workloads.cluster import LOAD, NODE, BoardFiles, Place
from boardbench.workloads.event_lines import STAMP, finite, number, read_events, stamp

REPORT, REQUESTS, NODE_RAW = "load.json", "requests.parquet", "node.jsonl"
PROGRAM = script("npu-run", "main.py")
UNIT = "inferences"
ASSEMBLY_S = 20.0
FAULT_AT = (0.2, 0.5)
"""Between which shares of the load a fault comes: there is load before it, and time to come back."""
CERTIFICATES = "/etc/boardbench/npu"
"""Where provision puts a board's part of the fleet's certificates, and npu-run looks for it."""
LOAD_NAMES = ("npu-scheduler", "npu-load")
LEVEL_WORDS: Mapping[str, Mapping[str, object]] = {
    "policy": {name.replace("-", ""): name for name in ("round-robin", "least-queue", "ect")},
    "stale": {"fresh": False, "stale": True},
}
OPTIONS = (
    "nodes", "concurrency_per_node", "node_connections", "policy", "stale", "plaintext", "preheat_s", "warmup", "model",
    "model_file", "model_sha256", "libraries", "backend", "workers", "rate_per_node", "arrivals", "fault",
    "direct_per_s", "stretch",
)  # fmt: skip
_MS = {"ms": 1.0, "s": 0.001}
_LATENCIES = ("p50", "p95", "p99", "mean", "max")
FIGURES: Mapping[str, Mapping[str, float]] = {
    "mean-rate": {f"{UNIT}/s": 1.0},  # what succeeded over the whole load, by its length
    **{f"latency-{name}": _MS for name in _LATENCIES},  # over all requests of a run
    "errors": {"count": 1.0},  # requests of a run that failed
    "longest-silence": {"s": 1.0},  # longest time without a good answer of a node
    "node-spread": {"ratio": 1.0},  # largest over smallest 50th percentile of latency of the nodes
    "node-spread-steady": {"ratio": 1.0},  # the same of the requests from the last third of the load
    "share-spread": {"percentage-points": 1.0},  # largest less smallest share of the nodes
}


class NpuLoad:
    """Loads a cluster; see `ClusterWorkload`."""

    name: str = "npu-load"
    payloads: tuple[str, ...] = ("npu-run", "npu-load", "npu-scheduler", "npu-node", "npu-common", "npu-wheels")
    harness: Harness = Harness(
        scripts=tuple(script(name, "main.py") for name in ("npu-run", "npu-load", "npu-scheduler", "npu-node"))
    )
    raw_files: tuple[str, ...] = (REPORT, REQUESTS)
    concurrency_option: str | None = "concurrency_per_node"
    traits: Traits = Traits(
        figures=FIGURES,
        level_words=LEVEL_WORDS,
        options=OPTIONS,
        board_options={"model_file": "npu_model", "model_sha256": "npu_model_sha256", "libraries": "npu_libraries"},
    )

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

    def board_files(self, role: str, board: str, options: Mapping[str, Any]) -> BoardFiles | None:
        """See `ClusterWorkload.board_files`: certificates, unless plaintext is asked for by name."""
        if options.get("plaintext"):
            return None
        names = LOAD_NAMES if role == LOAD else (board,)
        pairs = [f"{name}{end}" for name in names for end in (".pem", "-key.pem")]
        advice = "run ./inv provision --tags npu first, or ask for a network without TLS: 'plaintext: true'"
        if role == LOAD:
            advice += "; a board that loads others also needs the capability 'npu-load' in the inventory"
        return BoardFiles("certificates of the fleet", CERTIFICATES, ("ca.pem", "token", *pairs), advice)

    def part(self, place: Place, run: str, options: Mapping[str, Any], durations: Durations) -> list[str]:
        """See `ClusterWorkload.part`."""
        bell = f"{place.load_address}:50052"
        # A virtual board has no NPU; what a real one runs is never a model of it.
        backend = str(options.get("backend", "virtual" if place.virtual else "rknn"))
        argv = [
            PYTHON, "-IS", PROGRAM, place.role,
            "--out", f"{run_folder(run)}/workload",
            "--bell", bell,
            "--seed", str(place.turn),
            "--model", str(options.get("model", "yolov8n")),
            "--duration-s", seconds_text(durations.duration_s),
            "--interval-s", seconds_text(durations.interval_s),
            "--stretch", f"{options.get('stretch', 1):g}",
        ]  # fmt: skip
        argv += ["--plaintext"] if options.get("plaintext") else ["--certificates", CERTIFICATES]
        if place.role == LOAD:
            return argv + _load_part(place, options, durations)
        argv += ["--name", place.board, "--listen", f"{place.address}:51001"]
        argv += ["--scheduler", f"{place.load_address}:50051", "--backend", backend]
        argv += ["--workers", str(options.get("workers", 8)), "--patience-s", seconds_text(durations.lead_s + 30.0)]
        # A fault befalls one node, another one in each repetition, at a moment that differs too.
        if "fault" in options and place.board == place.nodes[place.turn % len(place.nodes)][0]:
            at = random.Random(place.turn).uniform(*FAULT_AT)
            argv += ["--fault", str(options["fault"]), "--fault-at", f"{at:.3f}"]
        return argv + _model_part(place, backend, options)

    def read(self, raw: Path) -> Samples:
        """See `Workload.read`; what is there tells whose output it is."""
        if (raw / NODE_RAW).exists():
            return _read_node(raw / NODE_RAW)
        return _read_load(raw / REPORT)


def _model_part(place: Place, backend: str, options: Mapping[str, Any]) -> list[str]:
    """Which model a node serves: the hash too, since nodes with different ones would not do the same work."""
    if backend == "virtual":
        return []
    if "model_file" not in options or "model_sha256" not in options:
        raise InputError(
            f"backend '{backend}' needs to know its model",
            where=place.board,
            advice="give the board the variables npu_model (a path on it) and npu_model_sha256 in the inventory",
        )
    argv = ["--model-file", str(options["model_file"]), "--model-sha256", str(options["model_sha256"])]
    return argv + (["--libraries", str(options["libraries"])] if "libraries" in options else [])


def _load_part(place: Place, options: Mapping[str, Any], durations: Durations) -> list[str]:
    per_node = int(options.get("concurrency_per_node", 12))
    argv = [
        "--address", place.address,
        "--nodes", ",".join(name for name, _ in place.nodes),
        "--concurrency", str(per_node * len(place.nodes)),
        "--node-connections", str(options.get("node_connections", 2)),
        "--policy", str(options.get("policy", "round-robin")),
        "--warmup", str(options.get("warmup", 5)),
        "--lead-s", seconds_text(durations.lead_s),
    ]  # fmt: skip
    if "preheat_s" in options:
        argv.append("--preheat")
    if options.get("stale"):
        argv.append("--stale")
    if "rate_per_node" in options:
        argv += ["--mode", "open", "--rate", f"{float(options['rate_per_node']) * len(place.nodes):g}"]
        argv += ["--arrivals", str(options.get("arrivals", "poisson"))]
    return argv


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
    return finite(_at(data, where, *keys), ".".join(keys), where)


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
    golden = _golden(data, where)
    loop = None
    if concurrency is not None and law is not None:
        loop = ClosedLoop(float(concurrency), _number(law, where, "rate_per_s"), _number(law, where, "mean_latency_s"))
    return Samples(
        UNIT,
        tuple(_interval(entry, where) for entry in entries),
        True,
        "the load ended" if entries else f"there was no load: {golden.why}",
        {key: _number(data, where, "ended", key) for key in STAMP},
        data.get("virtual") is True,
        closed_loop=loop,
        total=_number(summary, where, "succeeded"),
        # Without a load nobody was asked for an answer to it.
        answers=Answers(tuple(str(name) for name in asked), counted) if entries else None,
        golden=golden,
        figures={
            name: Figure(value)
            for name, value in (_figures(summary, where) | _steady(data, where) | _silence(data)).items()
        },
    )


def _golden(data: Mapping[str, Any], where: str) -> Golden:
    """What the load generator compared before the load; without outputs when it did not."""
    if data.get("golden") is None:
        return Golden({})
    outputs = _at(data, where, "golden", "outputs")
    groups = [_at(group, where, "nodes") for group in data["golden"].get("groups") or ()]
    if not isinstance(outputs, Mapping) or not all(isinstance(seen, list) for seen in (*outputs.values(), *groups)):
        raise InputError("golden.outputs is not a list of hashes for each node", where=where)
    return Golden(
        {str(node): tuple(map(str, seen)) for node, seen in outputs.items()},
        tuple(tuple(map(str, group)) for group in groups),
        str(data["golden"].get("why") or ""),
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
        found["share-spread"] = 100 * (max(shares) - min(shares))
        found["node-spread"] = _spread(nodes, where)
    return {name: value for name, value in found.items() if math.isfinite(value)}


def _spread(nodes: Sequence[Mapping[str, Any]], where: str) -> float:
    medians = [_number(node, where, "latency", "p50") for node in nodes]
    return max(medians) / min(medians) if min(medians) > 0 else math.nan


def _steady(data: Mapping[str, Any], where: str) -> dict[str, float]:
    """The nodes' spread at the end of the load; nothing where a node has no answer then."""
    nodes = data.get("steady_per_node") or ()
    if not nodes or len(nodes) < len(_at(data, where, "summary", "per_node")):
        return {}
    spread = _spread(nodes, where)
    return {"node-spread-steady": spread} if math.isfinite(spread) else {}


def _silence(data: Mapping[str, Any]) -> dict[str, float]:
    found = data.get("longest_silence_s") or {}
    return {"longest-silence": max(float(value) for value in found.values())} if found else {}


def _read_node(path: Path) -> Samples:
    intervals: list[Interval] = []
    end_stamp: dict[str, float] | None = None
    total: float | None = None
    why = ""
    virtual: bool | None = None
    for where, event in read_events(path):
        kind = event.get("event")
        if end_stamp is not None:
            raise InputError("there is a line after the end event", where=where)
        if kind == "start":
            virtual = event.get("virtual") is True
        elif kind == "interval":
            intervals.append(_interval(event, where))
        elif kind == "end":
            end_stamp, total, why = stamp(event, where), number(event, "total", where), str(event.get("why"))
        elif kind != "fault":
            raise InputError(f"unknown event {kind!r}", where=where)
    if virtual is None:
        raise InputError("there is no start event", where=str(path))
    return Samples(UNIT, tuple(intervals), end_stamp is not None, why, end_stamp, virtual, total=total)
