"""Golden outputs: before any load every node makes one image twice, and whoever makes something else of it is named."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from npuforge import npuforge_pb2 as pb
from npuforge import tensors

from boardbench.results.quantities import evidence_in

from .cluster import PAYLOADS, Cluster
from .test_load import load, report_of

sys.path.insert(0, str(PAYLOADS / "npu-load"))

from npuload.images import Requests
from npuload.loops import Numbers
from npuload.outputs import golden

WORDS = ("--concurrency", "2", "--requests", "6", "--report", "load.json")


class WrongNode:
    """A node beside those of a cluster, in service when made, whose tensors are wrong."""

    def __init__(self, cluster: Cluster, name: str, how: str) -> None:
        cluster.start_node(name).end()  # for its config file, as a good node has it
        self.log = (cluster.folder / f"{name}.log").open("ab")
        argv = [sys.executable, str(Path(__file__).with_name("wrong_node.py")), how]
        argv += ["--config", str(cluster.folder / f"{name}.toml")]
        self.process = subprocess.Popen(argv, stdout=self.log, stderr=self.log)

    def end(self) -> None:
        self.process.terminate()
        self.process.wait()
        self.log.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("golden")) as made:
        made.start(("jack", "king"))
        yield made


def evidence_of(out: Path) -> Any:
    (found,) = [entry for entry in evidence_in(out, "npu-load") if entry["gate"] == "golden"]
    return found


def test_they_come_before_every_load_without_being_asked_for(cluster: Cluster, tmp_path: Path) -> None:
    assert load(cluster.address, tmp_path / "run", *WORDS).returncode == 0
    made = report_of(tmp_path / "run")["golden"]
    assert made["ok"] is True
    assert {name: len(seen) for name, seen in made["outputs"].items()} == {"jack": 2, "king": 2}
    assert len({digest for seen in made["outputs"].values() for digest in seen}) == 1
    assert [(group["backend"], group["nodes"]) for group in made["groups"]] == [("virtual", ["jack", "king"])]
    assert evidence_of(tmp_path / "run")["ok"] is True


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("always", "queen: its output is not that of jack, king for the same image"),
        ("sometimes", "queen: one image gave two outputs"),
    ],
)
def test_a_node_with_a_wrong_tensor_is_named_and_nothing_is_loaded(
    cluster: Cluster, tmp_path: Path, how: str, said: str
) -> None:
    wrong = WrongNode(cluster, "queen", how)
    try:
        cluster.wait_for("jack", "king", "queen")
        done = load(cluster.address, tmp_path / "run", *WORDS)
    finally:
        wrong.end()
        cluster.wait_for("jack", "king")
    assert done.returncode == 3
    assert f"INVALID: the golden outputs differ, no throughput is measured: {said}\n" in done.stderr
    made = report_of(tmp_path / "run")
    assert made["verdict"] == {"valid": False, "reasons": [{"kind": "golden-outputs-differ", "why": said}]}
    assert (made["summary"]["total_requests"], made["summary"]["throughput"]) == (0, None)
    found = evidence_of(tmp_path / "run")
    assert found["ok"] is False
    assert "queen: " in found["why"]
    assert "jack: " not in found["why"]


class Answers:
    """A scheduler that answers as it likes: `turns` are (node, value of its tensors or None for an error)."""

    def __init__(self, *turns: tuple[str, int | None]) -> None:
        self.turns, self.asked = turns, 0

    async def infer_raw(self, _connection: int, _request: bytes) -> tuple[Any, bytes]:
        node, value = self.turns[self.asked % len(self.turns)]
        self.asked += 1
        data = tensors.header([(1, (1,), 0, 0, 1.0)]) + bytes([value or 0])
        code = "NPF-0000" if value is not None else "NPF-1402"
        return SimpleNamespace(node=node, code=code, message="", result=(0, len(data))), data


def nodes(**sha256: str) -> list[Any]:
    return [
        pb.NodeStatus(descriptor=pb.NodeDescriptor(node_id=name, models=[pb.ModelDescriptor(id="m", sha256=value)]))
        for name, value in sha256.items()
    ]


def judged(scheduler: Answers, listed: list[Any]) -> Any:
    return asyncio.run(golden(scheduler, Requests("m", 1, 1, 10, "run"), Numbers(), listed, "m"))


def test_a_scheduler_that_chooses_by_itself_is_asked_until_all_have_answered_twice() -> None:
    scheduler = Answers(("king", 1), ("king", 1), ("king", 1), ("queen", 1))
    made = judged(scheduler, nodes(king="a", queen="a"))
    assert (made["ok"], made["outputs"]["king"] + made["outputs"]["queen"]) == (True, [made["outputs"]["king"][0]] * 4)
    assert scheduler.asked == 8


@pytest.mark.parametrize(
    ("turns", "said"),
    [
        ([("king", 1)], "queen: no answer of it came: the scheduler gives all requests to others"),
        ([("king", 1), ("king", 1), ("queen", None)], "queen: NPF-1402"),
        (
            [("king", 1), ("king", 1), ("eve", 1)],
            "queen: the node 'eve' answered for it, which is none of those that are here",
        ),
        ([("king", 1), ("king", 1), ("queen", 2), ("queen", 2)], "king, queen: their outputs for one image differ"),
    ],
)
def test_what_is_not_two_equal_outputs_of_each_node_is_a_fault(turns: list[Any], said: str) -> None:
    made = judged(Answers(*turns), nodes(king="a", queen="a"))
    assert (made["ok"], made["why"]) == (False, said)


def test_nodes_of_other_models_are_not_compared_with_each_other() -> None:
    made = judged(Answers(("king", 1), ("king", 1), ("queen", 2), ("queen", 2)), nodes(king="a", queen="b"))
    assert made["ok"] is True
    assert [group["nodes"] for group in made["groups"]] == [["king"], ["queen"]]
