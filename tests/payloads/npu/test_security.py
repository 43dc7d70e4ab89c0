"""Who may talk to whom: mutual TLS by name, the token, and plaintext only where it is asked for."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import grpc
import pytest
from npuforge import channels, rpc, security
from npuforge import npuforge_pb2 as pb

from boardbench.certs import issue

from .cluster import Cluster, request, unary, until


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fleet's certificates."""
    folder = tmp_path_factory.mktemp("certs")
    issue(folder, ["king", "queen", "npu-scheduler", "npu-load"])
    return folder


def _tls(certs: Path, name: str) -> dict[str, object]:
    return {
        "security": "tls",
        "ca_file": str(certs / "ca.pem"),
        "certificate_file": str(certs / f"{name}.pem"),
        "key_file": str(certs / f"{name}-key.pem"),
        "token_file": str(certs / "token"),
    }


def _client(cluster: Cluster, certs: Path, name: str = "npu-load") -> Any:
    sec = security.load_security(_tls(certs, name))
    return grpc.secure_channel(
        cluster.address, security.channel_credentials(sec), channels.client_options(security.SCHEDULER_NAME)
    )


def _start(tmp_path: Path, certs: Path) -> Cluster:
    cluster = Cluster(tmp_path, {"transport": _tls(certs, "npu-scheduler")})
    cluster.start_scheduler()
    cluster.channel.close()
    cluster.channel = _client(cluster, certs)
    return cluster


def test_with_certificates_of_the_fleet_everything_works(tmp_path: Path, certs: Path) -> None:
    with _start(tmp_path, certs) as cluster:
        for name in ("king", "queen"):
            cluster.start_node(name, {"transport": _tls(certs, name)})
        cluster.wait_for("king", "queen")
        assert {cluster.infer(seed).node_id for seed in range(4)} == {"king", "queen"}
        order = pb.DrainNodeRequest(node_id="king", action=pb.DRAIN_ACTION_DRAIN)
        assert cluster.call("DrainNode", order).accepted
        with _client(cluster, certs, "king") as node:
            refused = unary(node, rpc.SCHEDULER["DrainNode"], order)
            assert (refused.accepted, refused.error_code) == (False, "NPF-1004")
        # A node serves the scheduler and the load generator, not another node.
        address = cluster.list_nodes().nodes[1].descriptor.address
        sec = security.load_security(_tls(certs, "king"))
        credentials = security.channel_credentials(sec)
        with grpc.secure_channel(address, credentials, channels.client_options("queen")) as channel:
            answer = unary(channel, rpc.NODE["Infer"], pb.NodeInferRequest(request_id="r"))
            assert answer.error_code == "NPF-1004"


def test_a_node_in_plaintext_cannot_join_a_scheduler_with_tls(tmp_path: Path, certs: Path) -> None:
    with _start(tmp_path, certs) as cluster:
        node = cluster.start_node("king")
        until(lambda: "the scheduler does not answer" in node.says(), "the node is told")
        assert not cluster.list_nodes().nodes
        with grpc.insecure_channel(cluster.address) as channel, pytest.raises(grpc.RpcError) as error:
            unary(channel, rpc.SCHEDULER["Infer"], request())
        assert error.value.code() == grpc.StatusCode.UNAVAILABLE


def test_a_node_with_tls_does_not_fall_back_to_a_scheduler_in_plaintext(tmp_path: Path, certs: Path) -> None:
    with Cluster(tmp_path) as cluster:
        cluster.start_scheduler()
        node = cluster.start_node("king", {"transport": _tls(certs, "king")})
        until(lambda: "the scheduler does not answer" in node.says(), "the node is told")
        assert not cluster.list_nodes().nodes


def test_a_node_cannot_register_under_another_nodes_certificate(tmp_path: Path, certs: Path) -> None:
    with _start(tmp_path, certs) as cluster:
        node = cluster.start_node("queen", {"transport": _tls(certs, "king")})
        until(lambda: "the certificate is not that of the node 'queen'" in node.says(), "the node is told")
        with _client(cluster, certs, "king") as channel:
            beat = unary(channel, rpc.SCHEDULER["Heartbeat"], pb.HeartbeatRequest(node_id="queen"))
            assert (beat.accepted, beat.must_reregister) == (False, False)
            left = unary(channel, rpc.SCHEDULER["DeregisterNode"], pb.DeregisterNodeRequest(node_id="queen"))
            assert not left.accepted


def test_certificates_of_another_authority_are_refused(tmp_path: Path, certs: Path) -> None:
    other = tmp_path / "other"
    issue(other, ["king", "npu-load"])
    shutil.copy(certs / "ca.pem", other / "ca.pem")
    with _start(tmp_path, certs) as cluster, _client(cluster, other) as channel, pytest.raises(grpc.RpcError) as error:
        unary(channel, rpc.SCHEDULER["ListNodes"], pb.ListNodesRequest(), 5)
    assert error.value.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


@pytest.mark.parametrize("token", ["", "wrong", "x" * 10_000, "\u00e9"])
def test_a_registration_needs_the_token(tmp_path: Path, certs: Path, token: str) -> None:
    plaintext = {"security": "plaintext", "token_file": str(certs / "token")}
    with Cluster(tmp_path, {"transport": plaintext}) as cluster:
        cluster.start_scheduler()
        descriptor = pb.NodeDescriptor(node_id="king", address="127.0.0.1:1")
        answer = cluster.call("RegisterNode", pb.RegisterNodeRequest(descriptor=descriptor, token=token))
        assert (answer.accepted, answer.error_code) == (False, "NPF-1004")
        right = (certs / "token").read_text().strip()
        assert cluster.call("RegisterNode", pb.RegisterNodeRequest(descriptor=descriptor, token=right)).accepted
        assert right not in cluster.logs()


def _refused(options: dict[str, object]) -> str:
    with pytest.raises(security.SecurityError) as error:
        security.load_security(options)
    return str(error.value)


def test_plaintext_must_be_asked_for_by_name(certs: Path, tmp_path: Path) -> None:
    assert 'security = "plaintext"' in _refused({})
    assert "remove one of the two" in _refused({**_tls(certs, "king"), "security": "plaintext"})
    assert 'it can be "tls" or "plaintext"' in _refused({"security": "none"})
    assert "cannot be read" in _refused({**_tls(certs, "king"), "ca_file": str(tmp_path / "none")})
    assert security.load_security({"security": "plaintext"}).token == ""


def test_keys_and_tokens_that_others_can_read_are_refused(certs: Path, tmp_path: Path) -> None:
    shutil.copytree(certs, tmp_path / "open")
    (tmp_path / "open" / "king-key.pem").chmod(0o644)
    assert "can be read by others" in _refused(_tls(tmp_path / "open", "king"))
    short = tmp_path / "short"
    short.write_text("abc\n")
    short.chmod(0o600)
    assert "16 keep it from being guessed" in _refused({"security": "plaintext", "token_file": str(short)})
