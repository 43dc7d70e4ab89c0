"""The tables of the NPU rig's harnesses: one row a run, five kinds, columns that came later are optional.

Shares and percentage points are in percent, latencies in ms, throughput in inferences a second. A temperature of 0
is the harness's fallback for a read that failed; a latency of 0 cannot be.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from boardbench.imports.model import Missing, Parsed, Reading, Run
from boardbench.imports.table import Row, rows_of
from boardbench.imports.text import Faults, Line, reading


@dataclass(frozen=True)
class Kind:
    """A kind of table: what tells it apart, the columns of its arm, and which column counts repetitions."""

    name: str
    needs: frozenset[str]
    arm: Mapping[str, str]
    repetition: str


KINDS = (
    Kind("sustained", frozenset({"run", "epoch", "elapsed_s", "throughput"}), {}, "run"),
    Kind("policy", frozenset({"policy", "round", "throughput"}), {"policy": "policy"}, "round"),
    Kind("capacity", frozenset({"cap_mhz", "rep", "throughput"}), {"cap_mhz": "cap_mhz"}, "rep"),
    Kind(
        "scale-out",
        frozenset({"nodes", "concurrency", "rep", "conns_per_node", "throughput"}),
        {"nodes": "nodes", "concurrency": "concurrency", "connections": "conns_per_node"},
        "rep",
    ),
    Kind(
        "concurrency",
        frozenset({"conns", "concurrency", "rep", "throughput"}),
        {"connections": "conns", "concurrency": "concurrency"},
        "rep",
    ),
)
METRICS = {
    "throughput": "inferences_per_s",
    "p50_ms": "latency_p50_ms",
    "p95_ms": "latency_p95_ms",
    "p99_ms": "latency_p99_ms",
    "max_ms": "latency_max_ms",
    "net_to_node_ms": "half_of_rpc_remainder_ms",
    "node_queue_ms": "node_queue_ms",
    "error_rate": "error_share",
    "balance_pp": "balance_percentage_points",
    "spread": "node_latency_spread_ratio",
    "observed_nodes": "nodes_answered",
    "elapsed_s": "elapsed_s",
    "max_npu_c": "told_npu_max_celsius",
    "max_soc_c": "told_soc_max_celsius",
    "start_soc_c": "told_soc_start_celsius",
}
_TOLD = re.compile(r"([a-z0-9][a-z0-9-]*)_(soc_c|npu_c|cur_mhz)")
_TOLD_AS = {"soc_c": "told_soc_celsius", "npu_c": "told_npu_celsius", "cur_mhz": "told_cpu_mhz"}
_NODE = re.compile(r"([a-z0-9][a-z0-9-]*)_(share|p50)")
_NEVER_ZERO = re.compile(r".*_c|.*_mhz|p\d+_ms|max_ms|.*_p50")
TEMPERATURE = re.compile(r"[a-z0-9-]+_(npu|soc)_c")
REQUIRED_TEMPERATURE = re.compile(r"max_(npu|soc)_c")


@dataclass(frozen=True)
class RigTable:
    """A table of the rig: its kind, its runs, the stamp (Unix s) of each run where it has one, and its nodes."""

    kind: str
    name: str
    runs: tuple[Run, ...]
    stamps_unix_s: tuple[float | None, ...]
    nodes: tuple[str, ...]
    failed_columns: tuple[str, ...]
    parsed: Parsed


def kind_of(header: Sequence[str]) -> Kind | None:
    """Which kind of table has this header."""
    return next((kind for kind in KINDS if kind.needs <= set(header)), None)


def parse(lines: Iterable[Line], name: str) -> RigTable | None:
    """The table in these lines; None when its header is no rig table's. Faults are in `parsed`."""
    faults = Faults(name)
    header, rows = rows_of(lines, faults)
    kind = kind_of(header)
    if kind is None:
        return None
    nodes = tuple(sorted({match[1] for column in header if (match := _NODE.fullmatch(column))}))
    kept = list(rows)
    failed = _failed_columns(header, kept, faults)
    runs: list[Run] = []
    stamps: list[float | None] = []
    seen: set[tuple[tuple[tuple[str, str], ...], int]] = set()
    for row in kept:
        run = _run(row, kind, nodes, failed, faults)
        if run is None:
            continue
        key = (tuple(sorted(run.arm.items())), run.repetition)
        if key in seen:
            what = f"repetition {run.repetition} of {dict(run.arm) or kind.name} is there twice"
            faults.add("repeated-run-id", what, row.line)
            run = replace(run, reasons=(*run.reasons, ("repeated-run-id", what)))
        seen.add(key)
        runs.append(run)
        stamp = reading(row.fields["epoch"]) if "epoch" in row.fields else Missing("no stamp")
        stamps.append(stamp if isinstance(stamp, float) else None)
    not_known = [] if any(map(TEMPERATURE.fullmatch, header)) else [f"{name}: temperatures were not recorded"]
    if "epoch" not in header:
        not_known.append(f"{name}: when each run was made")
    parsed = Parsed(runs=tuple(runs), faults=faults.done(), not_known=tuple(not_known))
    return RigTable(kind.name, name, tuple(runs), tuple(stamps), nodes, failed, parsed)


def _failed_columns(header: Sequence[str], rows: Sequence[Row], faults: Faults) -> tuple[str, ...]:
    """Columns of temperature or clock that hold no reading at all: blank, or zero, from the first row to the last."""
    failed = []
    for column in header:
        if not rows or not _NEVER_ZERO.fullmatch(column):
            continue
        cells = [row.fields[column].strip() for row in rows]
        values = [reading(cell) for cell in cells]
        if not any(cells):
            faults.add("failed-read", f"the column {column} is blank in all {len(rows)} rows: it was never read")
        elif all(value == 0.0 for value in values):
            faults.add("failed-read", f"the column {column} is {cells[0]} in all {len(rows)} rows: a read that failed")
        else:
            continue
        failed.append(column)
    return tuple(failed)


def _cell(column: str, text: str) -> Reading:
    value = reading(text)
    if value == 0.0 and _NEVER_ZERO.fullmatch(column):
        return Missing("0 in the source: a read that failed")
    return value


def _metric(column: str) -> str | None:
    match = _NODE.fullmatch(column)
    if match:
        return f"{match[1]}_share_percent" if match[2] == "share" else f"{match[1]}_latency_p50_ms"
    if column in METRICS:
        return METRICS[column]
    told = _TOLD.fullmatch(column)
    return f"{told[1]}_{_TOLD_AS[told[2]]}" if told else None


def _run(row: Row, kind: Kind, nodes: tuple[str, ...], failed: Sequence[str], faults: Faults) -> Run | None:
    metrics: dict[str, Reading] = {}
    extra: dict[str, str] = {}
    reasons: list[tuple[str, str]] = []
    arm = {level: row.fields[column].strip() for level, column in kind.arm.items()} or {"load": kind.name}
    count = reading(row.fields[kind.repetition])
    if not all(arm.values()) or not isinstance(count, float) or count != int(count) or not 1 <= count < 1e6:
        faults.add("malformed-file", f"does not say which run it is ({kind.repetition} and arm)", row.line)
        return None
    for column, text in row.fields.items():
        name = _metric(column)
        if name is None:
            if column not in (*kind.arm.values(), kind.repetition, "epoch"):
                extra[column] = text
            continue
        value = metrics[name] = _cell(column, text)
        if isinstance(value, Missing) and column not in failed:
            faults.add("failed-read", f"{column}: {value.why}", row.line)
            if REQUIRED_TEMPERATURE.fullmatch(column):
                reasons.append(("no-temperature", f"{column}: {value.why}"))
    rate = metrics["inferences_per_s"]
    if isinstance(rate, Missing):
        reasons.append(("malformed-file", f"throughput: {rate.why}"))
    elif rate < 0:
        reasons.append(("malformed-file", f"throughput is {rate}"))
    reasons += _shares(metrics, nodes)
    errors = metrics.get("error_share")
    if isinstance(errors, float) and errors > 0.01:
        reasons.append(("workload-failed", f"{errors:.1%} of the requests failed"))
    return Run(
        source=f"{faults.name}:{row.line}",
        arm=arm,
        metrics=metrics,
        boards=nodes,
        repetition=int(count),
        extra=extra,
        reasons=tuple(reasons),
    )


def _shares(metrics: Mapping[str, Reading], nodes: Sequence[str]) -> list[tuple[str, str]]:
    shares = [metrics.get(f"{node}_share_percent") for node in nodes]
    known = [share for share in shares if isinstance(share, float)]
    if known and len(known) == len(shares) and abs(sum(known) - 100.0) > 0.051 * len(known) + 1e-9:
        return [("counts-do-not-add-up", f"the nodes' shares add up to {sum(known):.1f} %")]
    return []


def without_temperature(table: RigTable, measured: bool) -> RigTable:
    """The table whose runs do not count where the harness was to read a temperature and neither it nor a log did."""
    bad = [column for column in table.failed_columns if REQUIRED_TEMPERATURE.fullmatch(column)]
    if measured or not bad:
        return table
    reason = ("no-temperature", f"{', '.join(bad)}: never read, and there is no log of that time beside it")
    return replace(table, runs=tuple(replace(run, reasons=(*run.reasons, reason)) for run in table.runs))
