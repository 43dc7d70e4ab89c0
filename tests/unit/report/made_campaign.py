"""A campaign of a wanted size, written as the run loop writes one, without boards: for pages, ledgers and clocks."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from boardbench.results import manifest, store, verdict

SHA = "0" * 64
BOOT = "11111111-2222-3333-4444-555555555555"
WALL = 1796052270.0
HEAD = "wall_unix_s,monotonic_s,boottime_s,lateness_s,soc-thermal_celsius,npu-thermal_celsius,policy0_cur_khz," \
       "policy0_max_khz,policy4_cur_khz,policy4_max_khz,npu_cur_hz,input_volts,fan_pwm,missing"  # fmt: skip


@dataclass(frozen=True)
class Wanted:
    """What a campaign is to be like. `loss`: how much of its rate a board has lost at the end, by phase."""

    boards: tuple[str, ...] = ("king", "queen", "jack")
    phases: tuple[str, ...] = ("active", "fanless")
    repeats: int = 1
    duration_s: float = 600.0
    interval_s: float = 60.0
    period_s: float = 1.0
    virtual: bool = False
    rules: bool = True
    question: str = "What does it cost?"
    domain: str = "a desk"
    campaign: str = "20261130T152429Z-06f95102"
    speed: float = 1.0
    payload_sha256: str = SHA
    why_invalid: str = ""
    note: str = ""
    log: bool = True


LOSS = {"active": 0.0, "fanless": 0.4}


def make(results: Path, wanted: Wanted) -> Path:
    """Write the campaign `<results>/made/<id>` and return its folder."""
    folder = results / "made" / wanted.campaign
    folder.mkdir(parents=True)
    plan = _plan(wanted)
    store.write_json(folder / "plan.json", plan)
    store.write_json(folder / "campaign.json", _campaign(wanted))
    (folder / "journal.jsonl").write_text("")
    for board in wanted.boards:
        (folder / "boards" / board).mkdir(parents=True)
        facts = {"cpu_policies": [{"policy": "policy4", "hw_max_khz": 2208000}], "devfreq": []}
        (folder / "boards" / board / "facts-before.json").write_text(json.dumps(facts))
    for cell in plan["cells"]:
        _attempt(folder, cell, wanted)
    store.write_json(folder / "verdict.json", verdict.make(folder, plan, verdict.Ending({}, False, {})))
    manifest.write(folder)
    return folder


def _plan(wanted: Wanted) -> dict[str, Any]:
    cells = []
    for repetition in range(1, wanted.repeats + 1):
        for phase in wanted.phases:
            for board in wanted.boards:
                number = len(cells) + 1
                cells.append({"number": number, "name": f"{number:03d}-{phase}-{board}", "wave": 1 + (number - 1) // 3,
                              "arm": phase, "repetition": repetition, "boards": [board]})  # fmt: skip
    rules = [{"name": "fanless-costs", "metric": "steady", "aggregate": "median", "arms": ["fanless", "active"],
              "compare": "ratio", "op": "<", "threshold": 0.97, "minimum_effect": {"percent": 1.0},
              "over_boards": "min",
              "assumed_noise": {"percent": 2, "because": "made up"}}]  # fmt: skip
    told = {"says": f"it costs {wanted.note or 'something'}", "rule": "fanless-costs",
            "refuted_if": {"op": ">=", "threshold": 0.99}}  # fmt: skip
    return {
        "schema_version": 1,
        "matrix": "made",
        "question": wanted.question,
        "domain": wanted.domain,
        "workload": {"name": "burn", "options": {"threads": "all"}},
        "time_scale": 1.0,
        "board_time": {"duration_s": wanted.duration_s, "interval_s": wanted.interval_s},
        "wall_time": {
            "duration_s": wanted.duration_s,
            "interval_s": wanted.interval_s,
            "logger_period_s": wanted.period_s,
            "logger_max_gap_s": 5.0,
            "estimated_s": wanted.duration_s,
        },
        "factors": [
            {
                "name": "cooling",
                "kind": "phase",
                "levels": list(wanted.phases),
                "blocked": True,
                "settings": {},
                "policies": [],
                "boards": [],
                "option": None,
                "options": {},
            }
        ],
        "repeats": wanted.repeats,
        "order": {"kind": "blocked", "seed": 1},
        "attempts": 1,
        "cool": None,
        "settings": [],
        "logger": {"payload": "thermal-logger", "period_s": wanted.period_s, "max_gap_periods": 5.0},
        "metrics": [
            {"name": "steady", "unit": "operations/s", "direction": "higher-is-better", "from": "steady"},
            {"name": "max-temperature", "unit": "degC", "direction": "lower-is-better", "from": "max-temperature"},
        ],
        "gates": ["cool", "boot-id"],
        "boards": list(wanted.boards),
        "arms": [
            {"name": phase, "levels": {"cooling": phase}, "phase": phase, "control_of": None, "options": {}}
            for phase in wanted.phases
        ],
        "cells": cells,
        "matrix_file_sha256": SHA,
        "restricted_to": {},
        "baselines": [{"arm": "active", "is": "the same load with a fan"}] if wanted.rules else [],
        "rules": rules if wanted.rules else [],
        "prediction": told if wanted.rules else None,
        "sha256": SHA,
    }


def _campaign(wanted: Wanted) -> dict[str, Any]:
    who = {"owner": "root", "host": "lab", "boardbench": "0.1.0", "python": "3.11.7", "system": "Linux"}
    file = {"name": "burn.py", "size": 1, "sha256": wanted.payload_sha256}
    return {
        "schema_version": 1, "campaign": wanted.campaign, "matrix": "made", "question": wanted.question,
        "plan_sha256": SHA, "matrix_file_sha256": SHA, "matrix_file": "playbooks/matrices/made.yml",
        "inventory_file": "lab.yml", "created_wall_unix_s": WALL, "virtual": wanted.virtual, "time_scale": 1.0,
        "controller": who, "operator": None, "argv": ["inv", "bench"], "payloads": {"burn": [file]},
        "boards": [{"name": board, "kind": "nanopi-r76s", "cooling_driver": "manual", "clock": {"missing": "not read"},
                    "identity": {"hostname": board, "machine_id": None, "serial": f"serial-{board}", "boot_id": BOOT}}
                   for board in wanted.boards],
        "selected_cells": None, "stolen": [], "resumes": [],
    }  # fmt: skip


def _attempt(folder: Path, cell: dict[str, Any], wanted: Wanted) -> None:
    attempt = folder / "cells" / cell["name"] / "attempt-1"
    (attempt / "workload").mkdir(parents=True)
    start = 1000.0 + cell["number"] * (wanted.duration_s + 100.0)
    files = {"workload/burn.jsonl": _burn(cell, wanted, start)}
    if wanted.log:
        files["thermal.csv"] = _log(cell, wanted, start)
    listed = []
    for name, text in files.items():
        (attempt / name).write_text(text)
        listed.append({"name": name, "size": len(text), "sha256": store.sha256_file(attempt / name)})
    reasons = [{"code": "gate-failed", "detail": wanted.why_invalid}] if wanted.why_invalid else []
    stamp = {"wall_unix_s": WALL, "monotonic_s": start, "boottime_s": start}
    run = {
        "schema_version": 1, "run": f"run-{cell['number']}", "campaign": wanted.campaign, "cell": cell["name"],
        "arm": {"cooling": cell["arm"]}, "phase": cell["arm"], "repetition": cell["repetition"], "attempt": 1,
        "boards": cell["boards"], "virtual": wanted.virtual, "time_scale": 1.0, "logger_period_s": wanted.period_s,
        "workload": {"name": "burn", "mode": "sustained", "argv": ["/usr/bin/python3"], "payload_files": [],
                     "raw_files": ["burn.jsonl"]},
        "started": {"board": stamp, "controller_wall_unix_s": WALL},
        "ended": {"board": stamp, "controller_wall_unix_s": WALL}, "boot_ids": {"before": BOOT, "after": BOOT},
        "exit": {"code": 0}, "load_window_monotonic_s": [start, start + wanted.duration_s], "page_cache": "warm",
        "evidence": [{"gate": "cool", "ok": True, "saw": {"note": wanted.note}, "why": ""},
                     {"gate": "boot-id", "ok": not wanted.why_invalid, "saw": {}, "why": wanted.why_invalid}],
        "files": sorted(listed, key=lambda one: str(one["name"])), "valid": not reasons, "invalid_reasons": reasons,
    }  # fmt: skip
    (attempt / "run.json").write_bytes(store.to_bytes(run))


def _burn(cell: dict[str, Any], wanted: Wanted, start: float) -> str:
    stamp = {"wall_unix_s": WALL, "monotonic_s": start, "boottime_s": start}
    lines: list[dict[str, Any]] = [{"event": "start", "threads": 8, "interval_s": wanted.interval_s, "stamp": stamp,
                                    "virtual": wanted.virtual}]  # fmt: skip
    count = round(wanted.duration_s / wanted.interval_s)
    for index in range(count):
        share = 1 - LOSS[cell["arm"]] * min(1.0, 2 * index / count)
        rate = 8000 * wanted.speed * share * (1 + 0.002 * math.sin(index + cell["number"]))
        begin = start + index * wanted.interval_s
        lines.append({"event": "interval", "index": index, "start_monotonic_s": begin,
                      "end_monotonic_s": begin + wanted.interval_s, "operations": round(rate * wanted.interval_s),
                      "operations_per_s": rate})  # fmt: skip
    lines.append({"event": "end", "why": "duration", "stamp": stamp})
    return "".join(json.dumps(line) + "\n" for line in lines)


def _log(cell: dict[str, Any], wanted: Wanted, start: float) -> str:
    rows = [HEAD]
    hot = cell["arm"] == "fanless"
    for index in range(round((wanted.duration_s + 20) / wanted.period_s)):
        at = index * wanted.period_s - 10
        now = start + at
        load = 0 <= at <= wanted.duration_s
        celsius = 40 + ((46 if hot else 18) * (1 - math.exp(-at / 90)) if load else 0)
        clock = 1416000 if hot and load and celsius > 80 else 2208000
        rows.append(f"{WALL + now:.3f},{now:.3f},{now:.3f},0.0001,{celsius:.3f},{celsius + 1:.3f},2016000,2016000,"
                    f"{clock},{clock},950000000,5.2,,fan_pwm=no fan control")  # fmt: skip
    return "\n".join(rows) + "\n"
