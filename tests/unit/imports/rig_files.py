"""A small result folder of the NPU rig, made here: six runs of 20 s, 3 s between them, two boards, invented heat."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

START = 1_900_000_100
RUN_S, PAUSE_S, RUNS = 20, 3, 6
RATES = (300.0, 299.0, 297.0, 280.0, 279.0, 278.0)
LOG_HEAD = "epoch soc_c npu_c ddr_c bigcore_c cpu_mhz npu_mhz volt_v"
TABLE_HEAD = "run,epoch,elapsed_s,throughput,p50_ms,p95_ms,p99_ms,error_rate,balance_pp,observed_nodes,max_npu_c"


def loaded(at: int) -> bool:
    """Whether a run was on at this second."""
    since = at - START
    return 0 <= since < RUNS * (RUN_S + PAUSE_S) - PAUSE_S and since % (RUN_S + PAUSE_S) < RUN_S


def thermal_log(hot: float = 80.0, first: int = START - 8, last: int | None = None) -> str:
    """A log: 45 degC idle, `hot` under load; the clock falls to 1416 MHz after 50 s of load."""
    rows = [LOG_HEAD]
    temperature = 45.0
    end = START + RUNS * (RUN_S + PAUSE_S) + 8 if last is None else last
    for at in range(first, end + 1):
        aim = hot if loaded(at) else 45.0
        temperature += (aim - temperature) * 0.3
        clock = 1416 if at - START > 50 and loaded(at) else 2208
        rows.append(f"{at} {temperature:.1f} {temperature + 1:.1f} 44.0 {temperature:.1f} {clock} 950 5.210")
    return "\n".join(rows) + "\n"


def stamps(*, at_start: bool = False) -> list[int]:
    """The stamps of the runs: their ends, or (another rig) their starts."""
    return [START + number * (RUN_S + PAUSE_S) + (0 if at_start else RUN_S) for number in range(RUNS)]


def table(*, at_start: bool = False, npu: str = "0.0") -> str:
    """The table of a sustained load."""
    rows = [TABLE_HEAD]
    for number, (stamp, rate) in enumerate(zip(stamps(at_start=at_start), RATES, strict=True), start=1):
        rows.append(f"{number},{stamp},{stamp - START},{rate},90.00,120.00,150.00,0.0000,0.00,2,{npu}")
    return "\n".join(rows) + "\n"


def latency(count: int, mean: int) -> dict[str, int]:
    """A latency summary in microseconds."""
    return {
        "count": count,
        "min": 40000,
        "p50": mean,
        "p90": 110000,
        "p95": 120000,
        "p99": 150000,
        "max": 180000,
        "mean": mean,
    }


def bench(stamp: int, rate: float = 300.0, **changes: Any) -> dict[str, Any]:
    """A bench report that adds up: 36 slots, two nodes with equal shares."""
    count = round(rate * RUN_S)
    mean = round(36 / rate * 1e6)
    half = count // 2
    nodes = [("king", half), ("queen", count - half)]
    report: dict[str, Any] = {
        "format_version": 1,
        "run_id": "model-c36-n2",
        "started_at": f"unix:{stamp}",
        "conditions": {
            "model_id": "model",
            "concurrency": 36,
            "duration_s": float(RUN_S),
            "scheduler_policy": "round-robin",
        },
        "summary": {
            "total_requests": count,
            "succeeded": count,
            "failed": 0,
            "error_rate": 0.0,
            "duration_s": count / rate,
            "throughput": rate,
            "latency": latency(count, mean),
            "node_inference": None,
            "per_node": [
                {"node_id": name, "count": done, "share": done / count, "latency": latency(done, mean)}
                for name, done in nodes
            ],
            "errors_by_code": [],
            "retried": 0,
            "stage_breakdown": {"inference": latency(count, 30000), "network_to_node": latency(count, 20000)},
        },
        "verdict": {"valid": True, "reasons": []},
        "nodes_before": [snapshot(name, 45.5) for name, _ in nodes],
        "nodes_after": [snapshot(name, 79.5) for name, _ in nodes],
        "warmup_discarded": 180,
        "caveats": ["invented"],
        "added_later": {"kept": True},
    }
    for path, value in changes.items():
        *inner, last = path.split("__")
        place = report
        for key in inner:
            place = place[key]
        place[last] = value
    return report


def snapshot(node: str, celsius: float, boot: str = "boot-1") -> dict[str, Any]:
    """What the scheduler knew of a node."""
    return {"node_id": node, "boot_id": boot, "temperature_c": celsius, "input_voltage_v": 5.2}


def write(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    """Write files below a folder."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def folder(path: Path, **changed: str | bytes) -> Path:
    """A whole result folder; `changed`: other contents of table, king, queen, report ('' leaves a file out)."""
    parts: dict[str, str | bytes] = {
        "table": table(),
        "king": thermal_log(),
        "queen": thermal_log(76.0),
        "report": json.dumps(bench(stamps()[-1], RATES[-1]), indent=2),
        **changed,
    }
    names = {
        "table": "raw/throughput.csv",
        "king": "raw/thermal/k.log",
        "queen": "raw/thermal/q.log",
        "report": "raw/run6.json",
    }
    files = {names[part]: content for part, content in parts.items() if content}
    return write(path, {**files, "meta.txt": "freeze_commit=abc123\nlabel=fanless\n"})
