"""The matrix of stages on a virtual Jetson: real inference, real reads, equal text, a floor that acts, and controls."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from .conftest import Bench, own_bench

pytestmark = [pytest.mark.boards, pytest.mark.slow]
MOE = ("baseline", "baseline-aa", "floor", "cache", "tuned")
CONTROLS = ("dense", "dense-aa", "densecache")
STAGES = (*MOE, *CONTROLS)


@pytest.fixture(scope="module")
def measured(llama_build: Callable[[str], Path]) -> Iterator[tuple[Bench, dict[str, Any]]]:
    """A fleet, provisioned, and what `bench --matrix moe-stages --json` said of it."""
    for variant in ("stock", "patched"):
        llama_build(variant)
    with own_bench() as bench:
        made = bench.inv("virtual.up")
        assert made.code == 0, made.err
        done = bench.inv("provision", "--limit", "jetson")
        assert done.code == 0, done.err + done.out
        yield bench, bench.inv("bench", "--matrix", "moe-stages", "--json", timeout_s=900).document


def runs(campaign: Path) -> dict[str, dict[str, Any]]:
    """Arm -> run.json of its last attempt."""
    found = {}
    for cell in sorted(campaign.glob("cells/*")):
        arm = cell.name.split("-", 1)[1].rsplit("-", 1)[0]
        last = max(cell.glob("attempt-*[0-9]"), key=lambda path: int(path.name.rsplit("-", 1)[1]))
        found[arm] = json.loads((last / "run.json").read_text()) | {"folder": last}
    return found


def evidence(run: dict[str, Any], gate: str) -> list[dict[str, Any]]:
    return [entry for entry in run["evidence"] if entry["gate"] == gate]


def test_every_stage_answers_as_the_baseline_does_from_a_cold_cache(measured: tuple[Bench, dict[str, Any]]) -> None:
    found = runs(Path(measured[1]["campaign"]))
    assert set(found) == set(STAGES)
    texts = {}
    for arm, run in found.items():
        lines = [json.loads(line) for line in (run["folder"] / "workload/llama.jsonl").read_text().splitlines()]
        requests = [line for line in lines if line["event"] == "request"]
        assert len(requests) == 12
        texts[arm] = [request["text_sha256"] for request in requests]
        assert run["page_cache"] == "cold"
        (cache,) = evidence(run, "cache")
        model = [file for file in cache["saw"]["files"] if file["path"].endswith(".gguf")]
        assert model[0]["resident_bytes_after"] <= 0.01 * model[0]["size_bytes"]
    said = {arm: tuple(texts[arm]) for arm in STAGES}
    assert {said[arm] for arm in MOE} == {said["baseline"]}
    assert {said[arm] for arm in CONTROLS} == {said["dense"]}
    assert said["dense"] != said["baseline"]


def test_the_report_has_a_row_for_each_stage_with_reads_text_and_perplexity(
    measured: tuple[Bench, dict[str, Any]],
) -> None:
    bench, document = measured
    assert (document["valid"], document["cells"]) == (len(STAGES), len(STAGES)), document
    told = bench.inv("report", "--json").document
    stages = {stage["stage"]: stage for stage in told["stages"]}
    assert told["virtual"] is True
    assert tuple(stages) == STAGES
    for arm, stage in stages.items():
        assert stage["baseline"] == ("baseline" if arm in MOE else "dense")
        assert stages[stage["baseline"]]["decode_ratio"] == 1.0
        assert stage["text_equal"] is True
        assert stage["decode_tokens_per_s"] > 0
        assert stage["perplexity"] == stages[stage["baseline"]]["perplexity"] is not None
        assert stage["read_gib"] is not None
        if arm in ("cache", "tuned"):
            assert stage["read_gib"] > 0.1
            assert stage["cache_hit_share"] > 0


def test_the_floor_acts_where_the_host_can_trace_and_says_so_where_not(
    measured: tuple[Bench, dict[str, Any]],
) -> None:
    found = runs(Path(measured[1]["campaign"]))
    (down,) = [entry["saw"]["GPU floor"] for entry in evidence(found["baseline"], "arm-effect")]
    (up,) = [entry["saw"]["GPU floor"] for entry in evidence(found["floor"], "arm-effect")]
    assert down["share_of_looks"] == 0
    if up["gpu_floor"]["state"] == "blind":
        assert up["not_acting"]
        assert up["share_of_looks"] == 0
    else:
        assert up["gpu_floor"]["raises"] >= 1
        assert up["share_of_looks"] > 0.8


def test_the_control_finds_nothing_to_serve_and_leaves_the_clock_alone(
    measured: tuple[Bench, dict[str, Any]],
) -> None:
    bench, document = measured
    campaign = Path(document["campaign"])
    control = runs(campaign)["densecache"]
    (effects,) = [entry["saw"] for entry in evidence(control, "arm-effect")]
    assert effects["expert cache"] == {
        "budget_mib": 128, "state": "not served", "expected": "idle",
        "cache_says": "it has no expert tensors on the CPU",
    }  # fmt: skip
    # The service runs in this arm, and has looked at the server's command line.
    assert effects["GPU floor"]["gpu_floor"]["state"] in ("idle", "blind")
    assert effects["GPU floor"]["share_of_looks"] == 0
    decided = json.loads((campaign / "verdict.json").read_text())["decisions"]["rules"]
    rules = {rule["rule"]: rule["verdict"] for rule in decided}
    assert rules["control-keeps-the-clock"] == "supported"
    # How fast it is on a busy host is no matter here; that the rules were asked is.
    assert {"control-gains-nothing", "control-loses-nothing"} <= set(rules)
    stages = {stage["stage"]: stage for stage in bench.inv("report", "--json").document["stages"]}
    assert stages["densecache"]["expert_cache_idle"] == "it has no expert tensors on the CPU"
    assert stages["densecache"]["cache_hit_share"] is None
    assert "had nothing to serve" in bench.inv("report").out


def test_the_campaign_is_valid_and_the_board_is_as_it_was(measured: tuple[Bench, dict[str, Any]]) -> None:
    bench, _ = measured
    told = bench.inv("provision", "--limit", "jetson", "--check", "--json")
    assert told.document["recap"]["jetson"]["changed"] == 0, told.out
