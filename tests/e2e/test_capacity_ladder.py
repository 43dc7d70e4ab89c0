"""The capacity ladder on virtual boards: six caps on one board, each proved before and after its run, all put back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from .conftest import Bench

pytestmark = [pytest.mark.boards, pytest.mark.slow]

LEVELS_MHZ = (2208, 1608, 1200, 1008, 816, 600)
TOP_KHZ = {"policy0": 2016000, "policy4": 2208000}


def caps(run: Mapping[str, Any], when: str) -> dict[str, Any]:
    """What was read back, by policy in kHz."""
    (found,) = [e["saw"]["caps"] for e in run["evidence"] if e["gate"] == "settings" and e["saw"].get("when") == when]
    return {cap["policy"]: cap["reads_khz"] for cap in found}


def highest(bench: Bench) -> dict[str, dict[str, Any]]:
    done = bench.inv("boards", "--json")
    assert done.code == 0, done.err
    boards = done.document["boards"]
    return {
        name: {p["policy"]: (p["max_khz"], p["governor"]) for p in boards[name]["cpu_policies"]}
        for name in ("king", "queen", "jack")
    }


def test_six_levels_are_in_force_in_their_runs_and_put_back_after_them(bench: Bench) -> None:
    up = bench.inv("virtual.up", "--kind", "bwrap", "--time-scale", "60")
    assert up.code == 0, up.err
    assert bench.inv("provision", "--skip-tags", "llama").code == 0
    before = highest(bench)
    done = bench.inv("bench", "--matrix", "capacity-ladder", "--json", timeout_s=600)
    assert done.code == 0, done.err
    assert (done.document["valid"], done.document["cells"]) == (18, 18)
    rates: dict[int, float] = {}
    for file in Path(done.document["campaign"]).glob("cells/*/attempt-*/run.json"):
        run = json.loads(file.read_text())
        if not run["valid"] or run["boards"] != ["king"]:
            continue
        mhz = int(run["arm"]["king_mhz"])
        wanted = {policy: min(mhz * 1000, top) for policy, top in TOP_KHZ.items()}
        assert caps(run, "before") == wanted
        assert caps(run, "after") == wanted
        lines = [json.loads(line) for line in (file.parent / "workload/burn.jsonl").read_text().splitlines()]
        rates[mhz] = max(line["operations_per_s"] for line in lines if line["event"] == "interval")
    assert sorted(rates) == sorted(LEVELS_MHZ)
    ladder = [rates[mhz] for mhz in LEVELS_MHZ]
    assert ladder == sorted(ladder, reverse=True), "a lower cap gave more work"
    assert highest(bench) == before
