"""The table of stages, from a campaign's folder."""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tests.payloads.llama.llama_raw import lines, request, sha, write

from boardbench.report.stages import COLUMNS, NUMERIC, load_stages, stage_notes, stages_table
from boardbench.report.tables import plain_table

HEADER = "wall_unix_s,monotonic_s,boottime_s,lateness_s,tj-thermal_celsius,gpu_cur_hz,missing\n"
PLAN: dict[str, Any] = {
    "workload": {"name": "llama-load"},
    "baselines": [{"arm": "baseline", "is": "stock"}],
    "arms": [{"name": "baseline"}, {"name": "cache"}],
    "cells": [
        {"name": "001-cache-jetson", "arm": "cache", "boards": ["jetson"]},
        {"name": "002-baseline-jetson", "arm": "baseline", "boards": ["jetson"]},
    ],
}


def cell(folder: Path, name: str, requests: list[dict[str, Any]], hz: int) -> None:
    attempt = folder / "cells" / name / "attempt-1"
    write(attempt / "workload", lines(*requests))
    rows = "".join(f"{at}.0,{at}.0,{at}.0,0.0,50.0,{hz},\n" for at in range(8, 22))
    (attempt / "thermal.csv").write_text(HEADER + rows)
    files = [
        {"name": path.relative_to(attempt).as_posix(), "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
        for path in (attempt / "thermal.csv", attempt / "workload/llama.jsonl")
    ]
    run = {
        "run": name, "cell": name, "attempt": 1, "boards": ["jetson"], "valid": True,
        "workload": {"name": "llama-load"},
        "files": files, "load_window_monotonic_s": [10.0, 18.0],
        "evidence": [{"gate": "limits", "ok": False, "saw": {}, "why": "no"}],
    }  # fmt: skip
    (attempt / "run.json").write_text(json.dumps(run))


@pytest.fixture
def campaign(tmp_path: Path) -> Path:
    cell(tmp_path, "002-baseline-jetson", [request(0), request(1)], 306_000_000)
    fast = [request(index, predicted_ms=500.0, process_read_bytes=0) for index in range(2)]
    cell(tmp_path, "001-cache-jetson", fast, 1_020_000_000)
    return tmp_path


def shown(campaign: Path) -> str:
    console = Console(width=140, record=True, file=io.StringIO())
    stages = load_stages(campaign, PLAN)
    console.print(stages_table(stages, plain_table("", *COLUMNS, numeric=NUMERIC)))
    return console.export_text() + "\n".join(stage_notes(stages, virtual=True))


def test_stages_stand_in_the_files_order_with_the_ratio_to_their_baseline(campaign: Path) -> None:
    baseline, cache = load_stages(campaign, PLAN)
    assert (baseline.arm, baseline.ratio, cache.baseline) == ("baseline", 1.0, "baseline")
    assert cache.figures["decode"] == 8.0
    assert cache.ratio == pytest.approx(8.0 / (8 / 3))
    assert (cache.gpu_hz, baseline.gpu_hz) == ((1_020_000_000, 1.0), (306_000_000, 1.0))
    assert cache.as_json()["read_gib"] == 0.0
    assert cache.as_json()["read_from"] == "server process"


def test_the_table_says_what_it_holds_for(campaign: Path) -> None:
    text = shown(campaign)
    assert "1020 (100 %)" in text
    assert "6.2344" in text
    assert "no GPU that could become faster" in text
    assert "memory limit is not in force" in text


def test_a_stage_whose_text_differs_has_no_figures_to_quote(campaign: Path) -> None:
    wrong = [request(0, text_sha256=sha("else")), request(1, predicted_ms=1.0)]
    cell(campaign, "001-cache-jetson", wrong, 1_020_000_000)
    _, cache = load_stages(campaign, PLAN)
    assert (cache.text_equal, cache.counted, cache.ratio, cache.figures["decode"]) == (False, 0, None, None)
    assert " no " in shown(campaign)


def test_a_campaign_of_another_workload_has_no_stages(campaign: Path) -> None:
    assert load_stages(campaign, {**PLAN, "workload": {"name": "burn"}}) == ()
