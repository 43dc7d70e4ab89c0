"""Campaigns of boards that work together, against fake boards: a wave runs whole, counts whole, and is told whole."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from fake_boards import MATRIX, PAYLOAD, Fleet

from boardbench.errors import RigError, UnreachableError
from boardbench.matrix.cluster import payload_names
from boardbench.report.campaign_report import load_report
from boardbench.results.validate import validate

Bench = Callable[..., Any]
NODES = ("king", "queen")


@pytest.fixture
def fleet() -> Fleet:
    made = Fleet("king", "queen", "server")
    for name in NODES:
        made[name].change_files = as_node
    made["server"].change_files = as_load
    return made


def burned(files: dict[str, bytes]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in files.pop("workload/burn.jsonl").decode().splitlines()]


def pieces_of(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    kept = ("index", "start_monotonic_s", "end_monotonic_s")
    return [
        {**{key: event[key] for key in kept}, "amount": event["operations"], "rate_per_s": event["operations_per_s"]}
        for event in events
        if event["event"] == "interval"
    ]


def as_node(files: dict[str, bytes]) -> None:
    events = burned(files)
    pieces = [{"event": "interval", **piece} for piece in pieces_of(events)]
    end = {"event": "end", "why": "the load ended", "stamp": events[-1]["stamp"], "total": events[-1]["operations"]}
    lines = [{"event": "start", "virtual": True}, *pieces, end]
    files["workload/node.jsonl"] = "".join(json.dumps(line) + "\n" for line in lines).encode()


def as_load(files: dict[str, bytes], nodes: tuple[str, ...] = NODES) -> None:
    events = burned(files)
    pieces = pieces_of(events)
    total = sum(piece["amount"] for piece in pieces)
    rate = pieces[0]["rate_per_s"]
    latency = {"count": 1, "min": 1, "p50": 90_000, "p90": 1, "p95": 1, "p99": 1, "max": 1, "mean": 1}
    report: Mapping[str, Any] = {
        "conditions": {"concurrency": 24},
        "summary": {
            "succeeded": total, "failed": 0, "throughput": rate, "latency": latency,
            "per_node": [
                {"node_id": name, "count": 1, "share": 1 / len(nodes), "latency": latency} for name in nodes
            ],
        },
        "intervals": pieces,
        "littles_law": {"rate_per_s": rate, "mean_latency_s": 24 / rate},
        "nodes_expected": list(NODES),
        "golden": {"ok": True, "why": "", "outputs": {key: ["0f", "0f"] for key in NODES}},
        "ended": events[-1]["stamp"],
        "virtual": True,
    }  # fmt: skip
    files["workload/load.json"] = json.dumps(report).encode()
    files["workload/requests.parquet"] = b"rows"


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bench: Bench) -> Callable[[], Any]:
    """Runs a matrix of one arm on king, queen and server; the load begins at once."""
    monkeypatch.setattr("boardbench.workloads.npu_load.ASSEMBLY_S", 0.0)
    text = MATRIX.replace("together: each", "together: cluster, load: {names: [server]}")
    text = text.replace("name: burn, threads: all", "name: npu-load").replace("active, fanless", "active")
    text = text.replace("from: steady", "").replace("unit: operations/s", "unit: inferences/s")
    path = tmp_path / "cluster.yml"
    path.write_text(text)
    for name in payload_names("npu-load"):
        (tmp_path / "payloads" / name).mkdir(parents=True)
        (tmp_path / "payloads" / name / "program.py").write_text(f"# {name}\n")
        (tmp_path / "payloads" / name / "payload.yml").write_text(PAYLOAD.format(name=name))
    return lambda: bench(matrix=path)


def runs(outcome: Any) -> dict[str, list[bool]]:
    made = json.loads((outcome.path / "verdict.json").read_text())
    return {cell["cell"].rsplit("-", 1)[-1]: [a["valid"] for a in cell["attempts"]] for cell in made["cells"]}


def test_all_boards_of_a_wave_run_and_the_folder_validates(cluster: Callable[[], Any], fleet: Fleet) -> None:
    outcome = cluster()
    assert (outcome.cells, outcome.valid) == (3, 3)
    assert validate(outcome.path) == []
    parts = {name: next(args["exec"][3] for verb, args in fleet[name].log if verb == "start") for name in fleet.fakes}
    assert parts == {"king": "node", "queen": "node", "server": "load"}


def test_a_board_without_its_certificates_stops_it_before_anything_runs_unless_plaintext_is_asked_for(
    cluster: Callable[[], Any], fleet: Fleet, tmp_path: Path
) -> None:
    fleet["queen"].lacking = {"/etc/boardbench/npu/queen-key.pem"}
    with pytest.raises(RigError, match=r"queen: the certificates of the fleet are not on the board.*--tags npu first"):
        cluster()
    assert not any(verb in ("lease", "prepare") for fake in fleet.fakes.values() for verb, _ in fake.log)
    path = tmp_path / "cluster.yml"
    path.write_text(path.read_text().replace("name: npu-load", "name: npu-load, plaintext: true"))
    assert cluster().valid == 3
    argvs = [args["exec"] for fake in fleet.fakes.values() for verb, args in fake.log if verb == "start"]
    assert all("--plaintext" in argv for argv in argvs)


def test_golden_outputs_that_differ_are_the_reason_of_the_run(cluster: Callable[[], Any], fleet: Fleet) -> None:
    def lies(files: dict[str, bytes]) -> None:
        as_load(files)
        made = json.loads(files["workload/load.json"])
        why = "queen: one image gave two outputs"
        made |= {"golden": {"ok": False, "why": why, "outputs": {"king": ["0f", "0f"], "queen": ["0f", "1e"]}}}
        made |= {"intervals": [], "littles_law": None}
        made["summary"] |= {"succeeded": 0, "throughput": None, "latency": None, "per_node": []}
        files["workload/load.json"] = json.dumps(made).encode()

    fleet["server"].change_files = lies
    outcome = cluster()
    run = json.loads(next(outcome.path.glob("cells/*-server/attempt-1/run.json")).read_text())
    said = {reason["code"]: reason["detail"] for reason in run["invalid_reasons"]}
    assert said["outputs-differ"] == "golden: queen: one image gave 2 outputs"
    assert set(said) == {"outputs-differ", "workload-short"}
    assert [problem.file for problem in validate(outcome.path)] == ["cells/003-active-server"]


def test_without_one_of_its_boards_a_wave_does_not_start(cluster: Callable[[], Any], fleet: Fleet) -> None:
    fleet["queen"].fail("prepare", RigError("the fan is stuck", where="queen"))
    outcome = cluster()
    assert outcome.valid == 3
    starts = {name: sum(verb == "start" for verb, _ in fleet[name].log) for name in fleet.fakes}
    # The first time nobody starts; the others' failure is of the moment, and all begin again.
    assert starts == {"king": 1, "queen": 1, "server": 1}


def test_when_one_run_does_not_count_all_of_its_wave_are_repeated(cluster: Callable[[], Any], fleet: Fleet) -> None:
    silent = [True]

    def once(files: dict[str, bytes]) -> None:
        as_load(files, ("king",) if silent else NODES)
        silent.clear()

    fleet["server"].change_files = once
    outcome = cluster()
    assert runs(outcome) == {"king": [True, True], "queen": [True, True], "server": [False, True]}
    run = json.loads(next(outcome.path.glob("cells/*-server/attempt-1/run.json")).read_text())
    assert [reason["code"] for reason in run["invalid_reasons"]] == ["nodes-unanswered"]


def test_a_wave_with_a_board_that_is_away_is_missing_as_a_whole(cluster: Callable[[], Any], fleet: Fleet) -> None:
    fleet.unreachable["queen"] = UnreachableError("the board does not answer", where="queen")
    outcome = cluster()
    assert (outcome.valid, outcome.missing) == (0, 3)
    assert all(verb != "start" for name in ("king", "server") for verb, _ in fleet[name].log)


def test_the_loads_rate_is_no_board_beside_its_nodes(cluster: Callable[[], Any], fleet: Fleet) -> None:
    def sum_of_nodes(files: dict[str, bytes]) -> None:
        as_load(files)
        made = json.loads(files["workload/load.json"])
        for piece in made["intervals"]:
            piece |= {"amount": 2 * piece["amount"], "rate_per_s": 2 * piece["rate_per_s"]}
        made["summary"]["succeeded"] *= 2
        made["littles_law"] = {"rate_per_s": 2 * made["littles_law"]["rate_per_s"], "mean_latency_s": 1.0}
        made["littles_law"]["mean_latency_s"] = 24 / made["littles_law"]["rate_per_s"]
        files["workload/load.json"] = json.dumps(made).encode()

    fleet["server"].change_files = sum_of_nodes
    report = load_report(cluster().path)
    rates = {c.board: c.throughput.steady_per_s for c in report.cells if c.throughput is not None}
    assert rates["server"] == pytest.approx(2 * rates["king"])
    assert list(report.spreads.values()) == [pytest.approx(1.0)]
