"""Peers made from the bare protocol talk to ours, in both directions, each in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from npuforge import channels, rpc
from npuforge import npuforge_pb2 as pb

from .cluster import Cluster, free_port, image_of, request, unary, until

RIG = Path(__file__).parent / "rig"


@pytest.fixture(scope="module")
def stubs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the stubs of the bare protocol."""
    folder = tmp_path_factory.mktemp("stubs")
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{RIG}", f"--python_out={folder}"]
    subprocess.run([*command, f"--grpc_python_out={folder}", "rig.proto"], check=True, timeout=120)
    return folder


@contextmanager
def peer(stubs: Path, *arguments: str) -> Iterator[None]:
    """A peer that serves."""
    command = [sys.executable, str(RIG / "peer.py"), str(stubs), *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield
    finally:
        process.kill()
        process.wait()
        process.stdout.close() if process.stdout else None


def test_a_node_of_the_rig_serves_our_scheduler_beside_ours(stubs: Path, tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        cluster.start(("king",))
        with peer(stubs, "node", "queen", f"127.0.0.1:{free_port()}", cluster.address):
            cluster.wait_for("king", "queen")
            answers = [cluster.infer(seed) for seed in range(6)]
            assert {answer.error_code for answer in answers} == {""}, answers[0].error_message
            assert {answer.node_id for answer in answers} == {"king", "queen"}
            theirs = next(answer for answer in answers if answer.node_id == "queen")
            assert theirs.result == image_of(int(theirs.request_id[1:]))[:1000]
            assert (theirs.timing.node_queue_us, theirs.timing.inference_us) == (100, 2000)
            # It tells no clock: its legs are not measured, and not 0.
            assert not theirs.timing.HasField("leg_to_node_us")
            assert theirs.timing.network_to_node_us > 0
            # Everything that a client may say reaches it as the protocol has it.
            whole = cluster.infer(2, priority=7, deadline_unix_ms=2**45, metadata={"node": "queen", "k": "v"})
            assert (whole.node_id, whole.error_code) == ("queen", "")
        until(lambda: cluster.candidates() == {"king"}, "the rig's node is missed")
        assert {cluster.infer(seed).error_code for seed in range(3)} == {""}


def test_our_node_serves_a_scheduler_of_the_rig(stubs: Path, tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster, peer(stubs, "scheduler", cluster.address):
        node = cluster.start_node("king")
        nodes = until(lambda: cluster.list_nodes().nodes, f"registered; {node.says()}")
        assert nodes[0].descriptor.node_id == "king"
        assert nodes[0].health.boot_id != ""
        answer = cluster.infer(5)
        assert (answer.error_code, answer.node_id, len(answer.result)) == ("", "king", 1_218_000 + 16 + 9 * 36)
        assert node.end() == 0


def test_our_node_answers_all_rpcs_of_the_rigs_service(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        cluster.start(("king",))
        address = cluster.list_nodes().nodes[0].descriptor.address
        with grpc.insecure_channel(address, options=channels.client_options()) as channel:
            health = unary(channel, rpc.NODE["Health"], pb.HealthRequest())
            assert health.ready
            models = unary(channel, rpc.NODE["ListModels"], pb.ListModelsRequest()).models
            assert [(model.id, model.state) for model in models] == [("yolov8n", pb.MODEL_STATE_READY)]
            warm = unary(channel, rpc.NODE["Warmup"], pb.WarmupRequest(model_id="yolov8n", runs=3))
            assert (warm.completed, warm.runs_done, warm.error_code) == (True, 3, "")
            other = unary(channel, rpc.NODE["Warmup"], pb.WarmupRequest(model_id="other", runs=3))
            assert (other.completed, other.error_code) == (False, "NPF-1101")
            # Unknown fields of newer peers are no mistake.
            raw = channel.unary_unary(rpc.NODE["Infer"].path)(
                request().SerializeToString() + bytes([0xC8, 0x0C, 1]), timeout=30
            )
            assert pb.NodeInferResponse.FromString(raw).error_code == ""
