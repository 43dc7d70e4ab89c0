"""Both engines carry the same protocol, alone and mixed."""

from __future__ import annotations

import itertools
from pathlib import Path

import grpc
import pytest
from npuforge import channels, security
from npuforge import npuforge_pb2 as pb

from boardbench.certs import issue

from .cluster import Cluster, image_of, until

ENGINES = ("lean", "grpc")


@pytest.mark.parametrize(("scheduler", "node"), list(itertools.product(ENGINES, ENGINES)))
def test_scheduler_and_node_may_have_either_engine(scheduler: str, node: str, tmp_path: Path) -> None:
    with Cluster(tmp_path, {"transport": {"engine": scheduler, "node_connections": 3}}) as cluster:
        cluster.start(("king", "queen"), {"transport": {"engine": node}})
        answers = [cluster.infer(seed) for seed in range(6)]
        assert {answer.error_code for answer in answers} == {""}
        assert {answer.node_id for answer in answers} == {"king", "queen"}
        again = cluster.infer(1, priority=3, metadata={"k": "v"})
        assert again.result == answers[1].result
        assert cluster.infer(1, payload=b"x").error_code == "NPF-1001"
        until(lambda: all(node.has_clock_offset_us for node in cluster.list_nodes().nodes), "clock offsets")
        assert cluster.infer(1).timing.HasField("leg_to_node_us")
        assert cluster.nodes["king"].end() == 0
        until(lambda: cluster.candidates() == {"queen"}, "king has left")
        assert {cluster.infer(seed).error_code for seed in range(3)} == {""}
        assert cluster.scheduler is not None
        assert cluster.scheduler.end() == 0


@pytest.mark.parametrize(("scheduler", "node"), [("grpc", "lean"), ("lean", "grpc")])
def test_engines_agree_on_certificates(scheduler: str, node: str, tmp_path: Path) -> None:
    issue(tmp_path / "certs", ["king", "npu-scheduler", "npu-load"])

    def tls(name: str, engine: str) -> dict[str, object]:
        folder = tmp_path / "certs"
        return {
            "security": "tls",
            "engine": engine,
            "ca_file": str(folder / "ca.pem"),
            "certificate_file": str(folder / f"{name}.pem"),
            "key_file": str(folder / f"{name}-key.pem"),
            "token_file": str(folder / "token"),
        }

    with Cluster(tmp_path, {"transport": tls("npu-scheduler", scheduler)}) as cluster:
        cluster.start_scheduler()
        cluster.channel.close()
        sec = security.load_security(tls("npu-load", "grpc"))
        options = channels.client_options(security.SCHEDULER_NAME)
        cluster.channel = grpc.secure_channel(cluster.address, security.channel_credentials(sec), options)
        cluster.start_node("king", {"transport": tls("king", node)})
        cluster.wait_for("king")
        answer = cluster.infer(3)
        assert (answer.error_code, answer.node_id) == ("", "king"), answer.error_message
        # A node's certificate is no operator's.
        order = pb.DrainNodeRequest(node_id="king", action=pb.DRAIN_ACTION_DRAIN)
        assert cluster.call("DrainNode", order).accepted
        assert cluster.infer(3, payload=image_of(4)).error_code == "NPF-1201"
