"""The load generator against a real scheduler and nodes: what it counts, what it says, and when it refuses."""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given, strategies

from .cluster import PAYLOADS, Cluster

sys.path.insert(0, str(PAYLOADS / "npu-load"))

from npuforge import npuforge_pb2 as pb
from npuforge import security
from npuload import cluster, images, latencies, loops, report
from npuload.requests import OK, Answer, Samples

SMALL = ["--warmup", "1", "--payload-slots", "4", "--min-samples", "1"]


def load(cluster_address: str, out: Path, *words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, str(PAYLOADS / "npu-load" / "main.py"), "--scheduler", cluster_address]
    argv += ["--plaintext", "--out", str(out), *SMALL, *words]
    return subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)


def requests_of(out: Path, columns: str) -> list[tuple[Any, ...]]:
    """These columns of every request of a run, read as anybody would."""
    query = f"SELECT {columns} FROM read_parquet(?)"
    return duckdb.connect().execute(query, [str(out / "requests.parquet")]).fetchall()


def report_of(out: Path) -> dict[str, Any]:
    (path,) = out.glob("*.json")
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def test_a_closed_loop_has_the_rigs_fields_and_their_sums_agree(shared: Cluster, tmp_path: Path) -> None:
    done = load(shared.address, tmp_path / "run", "--concurrency", "6", "--duration", "1.5", "--interval-s", "0.5")
    assert done.returncode == 0, done.stderr
    made = report_of(tmp_path / "run")
    summary = made["summary"]
    assert made["format_version"] == 1
    assert made["conditions"]["concurrency"] == 6
    assert made["conditions"]["node_count"] == 3
    assert made["conditions"]["scheduler_policy"] == "round-robin"
    assert made["warmup_discarded"] == 6
    assert sum(node["count"] for node in summary["per_node"]) == summary["succeeded"] == summary["total_requests"]
    assert summary["throughput"] == pytest.approx(summary["succeeded"] / summary["duration_s"])
    assert made["littles_law"]["under_way"] == pytest.approx(6, rel=0.25)
    assert sum(piece["amount"] for piece in made["intervals"]) == summary["succeeded"]
    assert made["verdict"] == {"valid": True, "reasons": []}
    assert [node["node_id"] for node in made["nodes_before"]] == ["jack", "king", "queen"]


def test_it_stamps_the_loads_start_and_end_and_not_the_reports(shared: Cluster, tmp_path: Path) -> None:
    before = time.time()
    assert load(shared.address, tmp_path / "run", "--concurrency", "2", "--duration", "1").returncode == 0
    made = report_of(tmp_path / "run")
    lasted = made["ended"]["monotonic_s"] - made["started"]["monotonic_s"]
    assert lasted == pytest.approx(made["summary"]["duration_s"], abs=0.05)
    assert before < made["started"]["wall_unix_s"] < made["ended"]["wall_unix_s"] - 0.9
    assert made["started_at"] == f"unix:{int(made['started']['wall_unix_s'])}"


def test_every_request_is_in_the_samples_once(shared: Cluster, tmp_path: Path) -> None:
    assert load(shared.address, tmp_path / "run", "--concurrency", "3", "--requests", "40").returncode == 0
    made = report_of(tmp_path / "run")
    rows = requests_of(
        tmp_path / "run", "number, node, ok, start_s, sent_s, end_s, latency_ms, inference_us, decode_us"
    )
    assert len(rows) == len({row[0] for row in rows}) == 40 == made["summary"]["succeeded"]
    assert {row[1] for row in rows} == {"jack", "king", "queen"}
    for _, _, ok, start_s, sent_s, end_s, latency_ms, inference_us, _ in rows:
        assert ok
        assert end_s > sent_s >= start_s
        assert latency_ms == pytest.approx(1000 * (end_s - start_s), abs=0.002)
        assert inference_us >= 0
    latency_us = sorted(round(row[6] * 1000) for row in rows)
    assert latencies.nearest_rank(latency_us, 99) == pytest.approx(made["summary"]["latency"]["p99"], abs=2)


def test_an_open_loop_sends_at_its_rate_and_counts_from_the_intended_start(shared: Cluster, tmp_path: Path) -> None:
    words = ["--mode", "open", "--rate", "20", "--arrivals", "constant", "--duration", "2"]
    assert load(shared.address, tmp_path / "run", *words).returncode == 0
    made = report_of(tmp_path / "run")
    assert made["summary"]["total_requests"] in (39, 40)
    assert made["conditions"]["concurrency"] is None
    assert made["conditions"]["rate_per_s"] == 20
    starts = sorted(row[0] for row in requests_of(tmp_path / "run", "start_s"))
    assert all(later - earlier == pytest.approx(0.05, abs=1e-5) for earlier, later in itertools.pairwise(starts))


def test_a_stall_is_in_the_latency_of_all_who_would_have_waited_in_it(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        cluster.start(("king",))
        argv = [sys.executable, str(PAYLOADS / "npu-load" / "main.py"), "--scheduler", cluster.address, "--plaintext"]
        argv += ["--out", str(tmp_path / "run"), *SMALL, "--mode", "open", "--rate", "20", "--arrivals", "constant"]
        argv += ["--duration", "4", "--events"]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            assert json.loads(child.stdout.readline())["event"] == "begin"
            king = cluster.nodes["king"].process
            king.send_signal(signal.SIGSTOP)
            time.sleep(1.0)
            king.send_signal(signal.SIGCONT)
            assert child.wait(60) == 0
    made = report_of(tmp_path / "run")
    waited_ms = [row[0] for row in requests_of(tmp_path / "run", "latency_ms")]
    # About twenty requests came while nothing went on; a closed loop would have seen one a client.
    assert sum(latency > 200 for latency in waited_ms) >= 12
    assert made["summary"]["latency"]["max"] > 800_000


def test_a_stage_that_nobody_fills_in_is_not_measured_and_not_zero(shared: Cluster, tmp_path: Path) -> None:
    assert load(shared.address, tmp_path / "run", "--concurrency", "2", "--requests", "20").returncode == 0
    stages = report_of(tmp_path / "run")["stages"]
    assert stages["scheduler_queue"].startswith("not measured")
    assert stages["decode"].startswith("not measured")
    assert stages["network_to_node"].startswith("not measured")
    assert stages["end_to_end"]["count"] == 20
    assert stages["client_to_scheduler"]["p50"] > 0


def test_results_are_never_written_over(shared: Cluster, tmp_path: Path) -> None:
    words = ["--concurrency", "1", "--requests", "3", "--report", "load.json"]
    assert load(shared.address, tmp_path / "run", *words).returncode == 0
    kept = (tmp_path / "run" / "load.json").read_bytes()
    again = load(shared.address, tmp_path / "run", *words)
    assert again.returncode == 1
    assert "holds a run already" in again.stderr
    assert (tmp_path / "run" / "load.json").read_bytes() == kept


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "either --duration or --requests"),
        (["--duration", "1", "--requests", "1"], "either --duration or --requests"),
        (["--duration", "-1"], "--duration must be above 0"),
        (["--duration", "1", "--mode", "open"], "--mode open needs it"),
        (["--duration", "1", "--input-size", "huge"], "must be like 640x640x3"),
        (["--duration", "1", "--ca-file", "x"], "certificates are named"),
        (["--duration", "1", "--preheat"], "--begin-monotonic-s"),
    ],
)
def test_a_command_line_that_cannot_be_meant_is_one_sentence(tmp_path: Path, words: list[str], said: str) -> None:
    done = load("127.0.0.1:1", tmp_path / "run", *words)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_scheduler_that_is_not_there_is_one_sentence_and_leaves_no_result(tmp_path: Path) -> None:
    done = load("127.0.0.1:1", tmp_path / "run", "--duration", "1", "--timeout-ms", "500")
    assert done.returncode == 1
    assert "does not answer" in done.stderr
    assert "Traceback" not in done.stderr
    assert list((tmp_path / "run").iterdir()) == []


def test_a_node_that_was_not_asked_for_ends_it(shared: Cluster, tmp_path: Path) -> None:
    done = load(
        shared.address, tmp_path / "run", "--requests", "1", "--expect-nodes", "king,queen", "--patience-s", "0.5"
    )
    assert done.returncode == 1
    assert "jack" in done.stderr


def test_errors_over_the_limit_make_a_run_invalid_and_it_is_kept(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        cluster.start(("king",))
        done = load(cluster.address, tmp_path / "run", "--model", "yolov8n", "--requests", "4", "--concurrency", "1",
                    "--min-samples", "100")  # fmt: skip
    assert done.returncode == 3
    made = report_of(tmp_path / "run")
    assert made["verdict"]["reasons"] == [{"kind": "too-few-samples", "observed": 4, "required": 100}]
    assert "INVALID: too-few-samples" in done.stderr


def test_a_node_that_dies_under_load_costs_no_request_its_code(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        cluster.start(("jack", "king"))
        argv = [sys.executable, str(PAYLOADS / "npu-load" / "main.py"), "--scheduler", cluster.address, "--plaintext"]
        argv += ["--out", str(tmp_path / "run"), *SMALL, "--concurrency", "4", "--requests", "80", "--events"]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            child.stdout.readline()
            cluster.nodes["jack"].process.kill()
            cluster.nodes["jack"].process.wait()
            assert child.wait(60) in (0, 3)
    made = report_of(tmp_path / "run")
    rows = requests_of(tmp_path / "run", "number, code, ok, node")
    assert len(rows) == len({row[0] for row in rows}) == 80 == made["summary"]["total_requests"]
    for _, code, ok, node in rows:
        assert ok is (code == OK)
        assert ok or code.startswith(("NPF-", "TRANSPORT-"))
        # Who did not answer is not known, and no name stands for it.
        assert node in (("jack", "king") if ok else ("jack", "king", None))
    assert made["summary"]["succeeded"] > 40


def answered(code: str = OK, node: str = "king") -> Answer:
    answer = Answer()
    answer.code, answer.node, answer.attempts = code, node, 1
    return answer


def test_a_result_that_belongs_to_another_request_is_no_answer() -> None:
    async def run() -> tuple[str, str]:
        async def infer(_: bytes, **__: object) -> bytes:
            return pb.InferResponse(request_id="run-2", node_id="king", result=b"x").SerializeToString()

        scheduler = cluster.Scheduler("127.0.0.1:1", security.load_security({"security": "plaintext"}), 1, 5.0)
        scheduler._infer = [infer]
        made = images.Requests("yolov8n", 1, 1, 8, "run")
        codes = [(await scheduler.infer(0, made.make(number))).code for number in (1, 2)]
        await scheduler.close()
        return codes[0], codes[1]

    assert asyncio.run(run()) == ("TRANSPORT-OTHERS-ANSWER", OK)


def test_the_last_third_of_a_load_is_told_by_node() -> None:
    samples = Samples()
    for at in range(90):
        node = ("king", "queen")[at % 2]
        # King is as fast as queen in the beginning and three times as slow from the last third on.
        took_s = 0.3 if node == "king" and at >= 60 else 0.1
        samples.add(at, 0, float(at), float(at), at + took_s, answered(node=node))
    samples.add(90, 0, 89.0, 89.0, 99.0, answered("NPF-1301", "king"))
    found = report.steady_per_node(samples, 0.0, 90.0)
    assert [(node["node_id"], node["count"], node["latency"]["p50"]) for node in found] == [
        ("king", 15, 300_000), ("queen", 15, 100_000),
    ]  # fmt: skip


def test_without_a_success_latency_is_missing_and_not_zero() -> None:
    samples = Samples()
    samples.add(0, 0, 0.0, 0.0, 1.0, answered("NPF-1201", ""))
    made = report.summary_of(samples, 1.0)
    assert made["latency"] is None
    assert made["per_node"] == []
    assert made["errors_by_code"] == [["NPF-1201", 1]]
    assert report.verdict(samples, [], [], 0.01, 1)["valid"] is False


@given(strategies.lists(strategies.integers(0, 10**9), min_size=1), strategies.sampled_from((50, 90, 95, 99)))
def test_a_percentile_is_the_nearest_rank(values: list[int], percent: int) -> None:
    ordered = sorted(values)
    found = latencies.nearest_rank(ordered, percent)
    at_most = sum(value <= found for value in ordered)
    below = sum(value < found for value in ordered)
    assert at_most >= math.ceil(percent / 100 * len(ordered)) > below


@pytest.mark.parametrize(("seed", "slot", "place"), [(42, 0, 0), (42, 15, 777), (2**63, 3, 1_228_799)])
def test_images_are_the_rigs_bytes(seed: int, slot: int, place: int) -> None:
    made = images.image(seed, slot, 1_228_800)
    assert made[place] == (((seed + slot) * 2654435761 + place) % 2**64) % 251
    assert len(made) == 1_228_800


def test_poisson_arrivals_have_their_rate_and_are_the_same_for_a_seed() -> None:
    def some(seed: int) -> list[float]:
        source = loops.arrivals(loops.POISSON, 50.0, seed)
        return [next(source) for _ in range(5000)]

    assert some(1) == some(1) != some(2)
    assert sum(some(1)) / 5000 == pytest.approx(0.02, rel=0.06)
