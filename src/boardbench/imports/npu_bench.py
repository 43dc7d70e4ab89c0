"""The NPU rig's bench report (JSON, format 1): one closed-loop run; latencies in whole microseconds.

`started_at` is stamped when the report is built, which is at the load's end. Two legs of the stage breakdown are halves
of one residual, not measured legs, so they keep a name that says so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from boardbench.analysis.littles_law import departure, holds
from boardbench.imports.model import Fact, Missing, Parsed, Reading, Run
from boardbench.imports.text import Faults, json_number, plain, strict_json

FORMAT = 1
SHARE_NOISE = 1e-6
_STAMP = re.compile(r"unix:([0-9]{1,12})")
LATENCY = ("min", "p50", "p90", "p95", "p99", "max", "mean")
KNOWN = {
    "format_version", "run_id", "started_at", "conditions", "summary", "verdict", "nodes_before", "nodes_after",
    "warmup_discarded", "caveats",
}  # fmt: skip


def looks_like(value: object) -> bool:
    """Whether a JSON value has the shape of such a report."""
    return isinstance(value, dict) and {"summary", "conditions", "run_id"} <= value.keys()


def stamp_of(value: Mapping[str, Any]) -> float | None:
    """The Unix second in `started_at` (`unix:<s>`, not ISO 8601)."""
    match = _STAMP.fullmatch(str(value.get("started_at")))
    return float(match[1]) if match else None


def parse(text: str, name: str) -> tuple[Run | None, Parsed]:
    """The run in a report, and its facts and faults; no run when there is no summary. Raises ValueError: no JSON."""
    faults = Faults(name)
    value = strict_json(text, faults)
    if not looks_like(value) or not isinstance(value["summary"], dict) or not isinstance(value["conditions"], dict):
        faults.add("malformed-file", "has no summary and conditions of a bench run")
        return None, Parsed(faults=faults.done())
    if value.get("format_version") != FORMAT:
        faults.add("malformed-file", f"format_version is {plain(value.get('format_version'))}, known is {FORMAT}")
        return None, Parsed(faults=faults.done())
    summary, conditions = value["summary"], value["conditions"]
    metrics, nodes = _metrics(summary)
    reasons = [*_checks(summary, metrics, nodes), *_law(conditions, metrics), *_verdict(value)]
    reasons += _reboots(value)
    window = _window(value, metrics, faults)
    concurrency = json_number(conditions.get("concurrency"))
    arm = {"concurrency": plain(conditions["concurrency"])} if isinstance(concurrency, float) else {}
    if conditions.get("scheduler_policy"):
        arm["policy"] = plain(conditions["scheduler_policy"])
    run = Run(
        source=name,
        arm=arm,
        metrics=metrics,
        boards=tuple(sorted(nodes)),
        window_unix_s=window,
        extra={
            "run_id": plain(value["run_id"]),
            **{f"conditions.{key}": plain(entry) for key, entry in conditions.items()},
            **{key: plain(entry) for key, entry in value.items() if key not in KNOWN},
        },
        reasons=tuple(dict.fromkeys(reasons)),
    )
    facts = (*_snapshots(value, name), Fact("warmup_discarded", _value(value.get("warmup_discarded")), name))
    return run, Parsed(runs=(run,), facts=facts, faults=faults.done())


def _value(value: object) -> Reading:
    return json_number(value)


def _metrics(summary: Mapping[str, Any]) -> tuple[dict[str, Reading], dict[str, Mapping[str, Any]]]:
    metrics: dict[str, Reading] = {
        "inferences_per_s": json_number(summary.get("throughput")),
        "error_share": json_number(summary.get("error_rate")),
        "requests": json_number(summary.get("total_requests")),
        "load_duration_s": json_number(summary.get("duration_s")),
        "requests_retried": json_number(summary.get("retried")),
    }
    _latency("latency", summary.get("latency"), metrics)
    _latency("node_inference", summary.get("node_inference"), metrics)
    nodes: dict[str, Mapping[str, Any]] = {}
    per_node = summary.get("per_node")
    for entry in per_node if isinstance(per_node, list) else ():
        if isinstance(entry, dict) and isinstance(entry.get("node_id"), str) and entry["node_id"]:
            node = entry["node_id"]
            nodes[node] = entry
            share = json_number(entry.get("share"))
            metrics[f"{node}_share_percent"] = share if isinstance(share, Missing) else 100.0 * share
            _latency(f"{node}_latency", entry.get("latency"), metrics, ("p50", "p95", "p99"))
    metrics["nodes_answered"] = float(len(nodes))
    stages = summary.get("stage_breakdown")
    for stage, entry in stages.items() if isinstance(stages, dict) else ():
        halved = stage in ("network_to_node", "network_to_client")
        _latency(f"half_of_rpc_remainder_{stage}" if halved else f"stage_{stage}", entry, metrics, ("p50", "mean"))
    return metrics, nodes


def _latency(name: str, entry: object, metrics: dict[str, Reading], which: tuple[str, ...] = LATENCY) -> None:
    for key in which:
        value = json_number(entry.get(key)) if isinstance(entry, dict) else Missing("null or left out in the source")
        metrics[f"{name}_{key}_ms"] = value if isinstance(value, Missing) else value / 1000.0


def _checks(
    summary: Mapping[str, Any], metrics: Mapping[str, Reading], nodes: Mapping[str, Mapping[str, Any]]
) -> list[tuple[str, str]]:
    reasons: list[tuple[str, str]] = []
    done, failed = json_number(summary.get("succeeded")), json_number(summary.get("failed"))
    total, rate, seconds = metrics["requests"], metrics["inferences_per_s"], metrics["load_duration_s"]
    for what, value in (("throughput", rate), ("duration_s", seconds), ("succeeded", done), ("total_requests", total)):
        if isinstance(value, Missing):
            reasons.append(("malformed-file", f"{what}: {value.why}"))
    if not nodes:
        reasons.append(("nodes-unanswered", "no node is named in the results"))
    if isinstance(done, Missing) or isinstance(total, Missing):
        return reasons
    if isinstance(failed, float) and done + failed != total:
        reasons.append(
            ("counts-do-not-add-up", f"{done:.0f} done and {failed:.0f} failed are not {total:.0f} requests")
        )
    counts = {node: json_number(entry.get("count")) for node, entry in nodes.items()}
    known = [count for count in counts.values() if isinstance(count, float)]
    if nodes and sum(known) != done:
        reasons.append(("counts-do-not-add-up", f"the nodes did {sum(known):.0f} requests, the summary has {done:.0f}"))
    for node, count in counts.items():
        share = json_number(nodes[node].get("share"))
        if isinstance(count, float) and isinstance(share, float) and done and abs(share - count / done) > SHARE_NOISE:
            reasons.append(
                ("counts-do-not-add-up", f"{node}'s share is {share:.4f}, its count says {count / done:.4f}")
            )
    if isinstance(rate, float) and isinstance(seconds, float):
        if seconds <= 0:
            reasons.append(("malformed-file", f"duration_s is {seconds:g}"))
        elif abs(rate - done / seconds) > 1e-6 * max(rate, 1.0):
            what = f"throughput is {rate:.3f}, requests by time are {done / seconds:.3f}"
            reasons.append(("counts-do-not-add-up", what))
    errors = metrics["error_share"]
    if isinstance(errors, float) and errors > 0.01:
        reasons.append(("workload-failed", f"{errors:.1%} of the requests failed"))
    return reasons


def _law(conditions: Mapping[str, Any], metrics: Mapping[str, Reading]) -> list[tuple[str, str]]:
    slots, rate = json_number(conditions.get("concurrency")), metrics["inferences_per_s"]
    mean = metrics["latency_mean_ms"]
    if not (isinstance(slots, float) and isinstance(rate, float) and isinstance(mean, float)) or slots <= 0:
        return []
    if holds(slots, rate, mean / 1000.0):
        return []
    off = departure(slots, rate, mean / 1000.0)
    return [
        ("littles-law-broken", f"rate x mean latency is {rate * mean / 1000:.1f}, concurrency {slots:.0f} ({off:+.0%})")
    ]


def _verdict(value: Mapping[str, Any]) -> list[tuple[str, str]]:
    verdict = value.get("verdict")
    if not isinstance(verdict, dict) or verdict.get("valid") is True:
        return []
    words = {
        "node-rebooted": "rebooted",
        "node-disappeared": "nodes-unanswered",
        "node-appeared": "nodes-unanswered",
        "error-rate-too-high": "workload-failed",
        "too-few-samples": "workload-short",
        "golden-outputs-differ": "outputs-differ",
    }
    told = [entry for entry in verdict.get("reasons") or [] if isinstance(entry, dict)]
    reasons = [
        (words.get(str(entry.get("kind")), "gate-failed"), f"the bench itself: {plain(entry)[:200]}") for entry in told
    ]
    return reasons or [("gate-failed", "the bench itself says that the run is not valid")]


def _nodes(value: Mapping[str, Any], key: str) -> dict[str, Mapping[str, Any]]:
    entries = value.get(key)
    found = entries if isinstance(entries, list) else ()
    return {str(entry["node_id"]): entry for entry in found if isinstance(entry, dict) and entry.get("node_id")}


def _reboots(value: Mapping[str, Any]) -> list[tuple[str, str]]:
    before, after = _nodes(value, "nodes_before"), _nodes(value, "nodes_after")
    reasons = []
    for node in sorted(before.keys() | after.keys()):
        first, last = (str(side.get(node, {}).get("boot_id") or "") for side in (before, after))
        if first and last and first != last:
            reasons.append(("rebooted", f"{node}: boot id {first} before, {last} after"))
    return reasons


def _snapshots(value: Mapping[str, Any], name: str) -> tuple[Fact, ...]:
    facts = []
    for key, when in (("nodes_before", "before"), ("nodes_after", "after")):
        for node, entry in sorted(_nodes(value, key).items()):
            facts.append(Fact(f"{node}.{when}.boot_id", str(entry.get("boot_id") or "") or Missing("not read"), name))
            for source, unit in (("temperature_c", "soc_celsius"), ("input_voltage_v", "input_volts")):
                facts.append(Fact(f"{node}.{when}.{unit}", json_number(entry.get(source)), name))
    return tuple(facts)


def _window(value: Mapping[str, Any], metrics: Mapping[str, Reading], faults: Faults) -> tuple[float, float] | Missing:
    stamp, seconds = stamp_of(value), metrics["load_duration_s"]
    if stamp is None:
        faults.add("malformed-file", f"started_at is {plain(value.get('started_at'))[:60]}, not unix:<seconds>")
        return Missing("started_at cannot be read")
    if isinstance(seconds, Missing) or not 0 < seconds < stamp:
        return Missing("the load's duration is not known")
    faults.add(
        "end-stamped-start",
        f"started_at {stamp:.0f} is stamped when the report is built: the load ran from {stamp - seconds:.1f} to then",
    )
    return stamp - seconds, stamp
