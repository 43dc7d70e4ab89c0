"""The matrix of stages on a virtual Jetson: real inference, real reads, equal text, and the floor that acts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from .conftest import Bench, own_bench

pytestmark = [pytest.mark.boards, pytest.mark.slow]
STAGES = ("baseline", "baseline-aa", "floor", "cache", "tuned")


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
    assert len({tuple(found) for found in texts.values()}) == 1


def test_the_report_has_a_row_for_each_stage_with_reads_text_and_perplexity(
    measured: tuple[Bench, dict[str, Any]],
) -> None:
    bench, document = measured
    assert (document["valid"], document["cells"]) == (len(STAGES), len(STAGES)), document
    told = bench.inv("report", "--json").document
    stages = {stage["stage"]: stage for stage in told["stages"]}
    assert told["virtual"] is True
    assert tuple(stages) == STAGES
    assert stages["baseline"]["decode_ratio"] == 1.0
    for arm, stage in stages.items():
        assert stage["text_equal"] is True
        assert stage["decode_tokens_per_s"] > 0
        assert stage["perplexity"] == stages["baseline"]["perplexity"]
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


def test_the_campaign_is_valid_and_the_board_is_as_it_was(measured: tuple[Bench, dict[str, Any]]) -> None:
    bench, _ = measured
    told = bench.inv("provision", "--limit", "jetson", "--check", "--json")
    assert told.document["recap"]["jetson"]["changed"] == 0, told.out
