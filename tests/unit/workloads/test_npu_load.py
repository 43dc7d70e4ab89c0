"""The raw output of `npu-load`: what it declares, and which fault each broken file is."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from boardbench.errors import InputError
from boardbench.results.quantities import evidence_of
from boardbench.workloads.base import Durations
from boardbench.workloads.cluster import Place
from boardbench.workloads.npu_load import NpuLoad

STAMP = {"wall_unix_s": 1000.0, "monotonic_s": 12.0, "boottime_s": 13.0}


def latency(p50_ms: float) -> dict[str, Any]:
    us = p50_ms * 1000
    return {"count": 60, "min": us, "p50": us, "p90": us, "p95": 1.2 * us, "p99": 2 * us, "max": 3 * us, "mean": us}


def report(**changes: Any) -> dict[str, Any]:
    made = {
        "conditions": {"concurrency": 12},
        "summary": {
            "succeeded": 120, "failed": 1, "throughput": 120.0, "latency": latency(100.0),
            "per_node": [
                {"node_id": "king", "count": 60, "share": 0.5, "latency": latency(200.0)},
                {"node_id": "queen", "count": 60, "share": 0.5, "latency": latency(80.0)},
            ],
        },
        "intervals": [
            {"index": 0, "start_monotonic_s": 11.0, "end_monotonic_s": 11.5, "amount": 50, "rate_per_s": 100.0},
            {"index": 1, "start_monotonic_s": 11.5, "end_monotonic_s": 12.0, "amount": 70, "rate_per_s": 140.0},
        ],
        "littles_law": {"rate_per_s": 120.0, "mean_latency_s": 0.1, "under_way": 12.0},
        "nodes_expected": ["king", "queen"],
        "golden": {"ok": True, "why": "", "outputs": {"king": ["0f", "0f"], "queen": ["0f", "0f"]}, "groups": []},
        "ended": STAMP,
        "virtual": True,
    }  # fmt: skip
    return {**made, **changes}


def written(folder: Path, data: object) -> Path:
    (folder / "load.json").write_text(json.dumps(data))
    return folder


def refused(raw: Path) -> str:
    with pytest.raises(InputError) as caught:
        NpuLoad().read(raw)
    return str(caught.value)


def test_a_good_report_passes_every_rule_over_what_it_declares(tmp_path: Path) -> None:
    samples = NpuLoad().read(written(tmp_path, report()))
    found = {entry["gate"]: entry["ok"] for entry in evidence_of(samples)}
    assert found == {"counts": True, "answers": True, "golden": True, "littles-law": True}
    assert samples.figures["latency-p99"].value == pytest.approx(200.0)
    assert samples.figures["node-spread"].value == pytest.approx(2.5)
    assert samples.figures["share-spread"].value == 0.0
    assert samples.figures["errors"].value == 1


def test_the_spread_at_the_end_of_the_load_is_missing_where_a_node_has_no_answer_then(tmp_path: Path) -> None:
    late = [
        {"node_id": name, "count": 20, "latency": latency(p50)} for name, p50 in (("king", 250.0), ("queen", 100.0))
    ]
    samples = NpuLoad().read(written(tmp_path, report(steady_per_node=late)))
    assert samples.figures["node-spread-steady"].value == pytest.approx(2.5)
    for given in ({}, {"steady_per_node": late[:1]}, {"steady_per_node": []}):
        assert "node-spread-steady" not in NpuLoad().read(written(tmp_path, report(**given))).figures


def test_a_node_without_an_answer_is_not_a_node_of_the_run(tmp_path: Path) -> None:
    samples = NpuLoad().read(written(tmp_path, report(nodes_expected=["king", "queen", "jack"])))
    (entry,) = [entry for entry in evidence_of(samples) if entry["gate"] == "answers"]
    assert entry["ok"] is False
    assert "2 of 3 nodes answered, none from jack" in entry["why"]


def test_a_count_that_the_intervals_do_not_hold_is_found(tmp_path: Path) -> None:
    made = report()
    made["summary"]["succeeded"] = 130
    samples = NpuLoad().read(written(tmp_path, made))
    assert not next(entry["ok"] for entry in evidence_of(samples) if entry["gate"] == "counts")


def test_an_open_loop_has_no_concurrency_and_claims_no_law(tmp_path: Path) -> None:
    samples = NpuLoad().read(written(tmp_path, report(conditions={"concurrency": None})))
    assert samples.closed_loop is None


def test_a_run_without_a_success_has_no_latency_and_not_zero(tmp_path: Path) -> None:
    made = report(littles_law=None)
    made["summary"] |= {"succeeded": 0, "latency": None, "per_node": [], "throughput": 0.0}
    made["intervals"] = [{**piece, "amount": 0, "rate_per_s": 0.0} for piece in made["intervals"]]
    figures = NpuLoad().read(written(tmp_path, made)).figures
    assert not any(name.startswith(("latency", "node")) for name in figures)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ([], "is not an object"),
        ({}, "summary is missing"),
        (report(ended=None), "ended.wall_unix_s is missing"),
        (report(intervals={}), "intervals is not a list"),
        (report(golden={}), "golden.outputs is missing"),
        (report(golden={"outputs": {"king": "0f"}}), "golden.outputs is not a list of hashes for each node"),
        (report(golden={"outputs": {}, "groups": [{}]}), "nodes is missing"),
    ],
)
def test_each_broken_report_is_one_sentence(tmp_path: Path, data: object, said: str) -> None:
    assert said in refused(written(tmp_path, data))


def test_a_load_whose_outputs_nobody_compared_does_not_count(tmp_path: Path) -> None:
    samples = NpuLoad().read(written(tmp_path, report(golden=None)))
    (entry,) = [entry for entry in evidence_of(samples) if entry["gate"] == "golden"]
    assert (entry["ok"], entry["why"]) == (False, "the nodes' outputs were not compared before the load")


PLACE = Place("node", "king", "127.1.0.11", (("king", "127.1.0.11"),), "127.1.0.10", True)


def test_tls_is_what_nobody_has_to_ask_for() -> None:
    durations = Durations(15.0, 1.0)
    for role in ("node", "load"):
        place = replace(PLACE, role=role)
        words = NpuLoad().part(place, "run", {}, durations)
        assert words[words.index("--certificates") + 1] == "/etc/boardbench/npu"
        assert "--plaintext" not in words
        plain = NpuLoad().part(place, "run", {"plaintext": True}, durations)
        assert "--plaintext" in plain
        assert "--certificates" not in plain


def test_each_role_needs_its_own_certificates() -> None:
    node, load = (NpuLoad().board_files(role, "king", {"plaintext": False}) for role in ("node", "load"))
    assert node is not None
    assert load is not None
    assert node.names == ("ca.pem", "token", "king.pem", "king-key.pem")
    assert load.names == (
        "ca.pem", "token", "npu-scheduler.pem", "npu-scheduler-key.pem", "npu-load.pem", "npu-load-key.pem",
    )  # fmt: skip
    assert "the capability 'npu-load'" in load.advice
    assert NpuLoad().board_files("node", "king", {"plaintext": True}) is None


def test_a_missing_report_is_said(tmp_path: Path) -> None:
    assert "is missing" in refused(tmp_path)


def node_file(folder: Path, *events: dict[str, Any]) -> Path:
    (folder / "node.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    return folder


START = {"event": "start", "virtual": True}
SPAN = {"start_monotonic_s": 1.0, "end_monotonic_s": 2.0}
PIECE = {"event": "interval", "index": 0, **SPAN, "amount": 5, "rate_per_s": 5.0}
END = {"event": "end", "why": "the load ended", "stamp": STAMP, "total": 5}


def test_a_nodes_own_count_is_read(tmp_path: Path) -> None:
    samples = NpuLoad().read(node_file(tmp_path, START, PIECE, END))
    assert (samples.total, samples.window_monotonic_s, samples.ended_by_itself) == (5.0, (1.0, 2.0), True)
    assert samples.answers is None


def test_a_node_that_was_cut_off_has_no_end(tmp_path: Path) -> None:
    samples = NpuLoad().read(node_file(tmp_path, START, PIECE))
    assert samples.end_stamp is None
    assert samples.ended_by_itself is False


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ((PIECE, END), "no start event"),
        ((START, PIECE, END, PIECE), "after the end event"),
        ((START, {"event": "nap"}), "unknown event 'nap'"),
    ],
)
def test_each_broken_node_file_is_one_sentence(tmp_path: Path, events: tuple[dict[str, Any], ...], said: str) -> None:
    assert said in refused(node_file(tmp_path, *events))
