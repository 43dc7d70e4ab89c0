"""A run's parts by mutual TLS, as a matrix starts them: who has no certificate of the fleet takes no part."""

from __future__ import annotations

import re
import shutil
import tomllib
from pathlib import Path

import grpc
import pytest
from npuforge import npuforge_pb2 as pb
from npuforge import rpc, security

from boardbench.certs import issue
from boardbench.workloads.npu_load import CERTIFICATES, LOAD_NAMES

from .cluster import PAYLOADS, free_port, unary, until, write_toml
from .cluster import Program as Agent
from .test_run_parts import Run, start

NODES = ("king", "queen")


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fleet's certificates, as `./inv certs` makes them and provision pushes them."""
    folder = tmp_path_factory.mktemp("certs")
    issue(folder, [*NODES, "npu-scheduler", "npu-load"])
    return folder


def _settings(path: Path) -> dict[str, str]:
    found: dict[str, str] = tomllib.loads(path.read_text())["transport"]
    return found


@pytest.mark.slow
def test_a_run_by_tls_goes_as_one_in_plaintext_and_a_node_in_plaintext_cannot_join(tmp_path: Path, certs: Path) -> None:
    run = Run(tmp_path, NODES, 4.0, words=("--certificates", str(certs)))
    until((tmp_path / "load" / "scheduler.log").exists, "the scheduler starts")
    intruder = {
        "node": {
            "id": "jack", "scheduler_address": f"{run.host}:50051", "listen": f"127.0.0.1:{free_port()}",
        },
        "transport": {"security": "plaintext"},
        "backend": {"type": "virtual", "zero_time": True},
    }  # fmt: skip
    agent = Agent("npu-node", write_toml(tmp_path / "jack.toml", intruder), tmp_path / "jack.log")
    try:
        until(lambda: "the scheduler does not answer: UNAVAILABLE" in agent.says(), "the intruder is turned away")
        # And nobody without a certificate asks the scheduler for anything.
        with grpc.insecure_channel(f"{run.host}:50051") as channel, pytest.raises(grpc.RpcError) as error:
            unary(channel, rpc.SCHEDULER["ListNodes"], pb.ListNodesRequest(), 5)
        assert error.value.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
        assert run.ends() == (0, dict.fromkeys(NODES, 0)), run.why()
    finally:
        agent.end()
    made = run.report()
    assert made["conditions"]["security"] == "tls"
    assert made["golden"]["ok"] is True
    assert [node["node_id"] for node in made["nodes_after"]] == list(NODES)
    for name in NODES:
        # The part has read its own agent's count over TLS.
        assert run.events(name)[-1]["total"] > 0
        assert _settings(tmp_path / name / "node.toml")["security"] == "tls"
    assert _settings(tmp_path / "load" / "scheduler.toml")["security"] == "tls"
    token = (certs / "token").read_text().strip()
    collected = "\n".join(p.read_text(errors="replace") for p in tmp_path.rglob("*") if p.is_file())
    assert token not in collected
    assert "PRIVATE KEY" not in collected


@pytest.mark.slow
@pytest.mark.parametrize(
    ("other", "said"),
    [("token", "the scheduler refuses this node: NPF-1004"), ("*", "UNAVAILABLE .*certificate verify failed")],
)
def test_a_node_of_another_fleet_says_why_it_could_not_join(tmp_path: Path, certs: Path, other: str, said: str) -> None:
    others = tmp_path / "others"
    shutil.copytree(certs, others)
    issue(tmp_path / "fresh", [*NODES, "npu-scheduler", "npu-load"])
    for path in (tmp_path / "fresh").glob(other):
        if path.is_file():
            shutil.copy2(path, others / path.name)
    # The last one given counts.
    strange = ("--certificates", str(others))
    run = Run(tmp_path, NODES, 2.0, *strange, words=("--certificates", str(certs)), lead_s=8.0)
    load, nodes = run.ends()
    assert load == 1, run.why()
    assert "nodes are not ready: king (not registered)" in (tmp_path / "load.stderr").read_text()
    assert nodes["king"] == 1
    assert re.search(f"the agent said last: .*{said}", (tmp_path / "king.stderr").read_text())


def test_a_part_without_its_certificates_says_so(tmp_path: Path) -> None:
    words = ["--name", "king", "--listen", f"127.0.0.1:{free_port()}", "--scheduler", "127.0.0.1:1"]
    words += ["--backend", "virtual", "--zero-time", "--bell", f"127.0.0.1:{free_port()}", "--patience-s", "1"]
    words += ["--duration-s", "1", "--interval-s", "1", "--certificates", str(tmp_path / "none")]
    node = start("node", tmp_path / "node", *words)
    _, said = node.communicate(timeout=60)
    assert node.returncode == 1
    assert "none/token cannot be read: No such file or directory (./inv provision --tags npu" in said


def test_the_folder_that_a_matrix_names_is_the_one_that_the_parts_and_provision_know() -> None:
    assert f'FOLDER = "{CERTIFICATES}"' in (PAYLOADS / "npu-run" / "npurun" / "identity.py").read_text()
    playbook = (PAYLOADS.parent / "playbooks" / "provision.yml").read_text()
    assert all(f"{CERTIFICATES}/{name}.pem" in playbook for name in ("ca", *LOAD_NAMES))
    assert (security.SCHEDULER_NAME, security.CLIENT_NAME) == LOAD_NAMES
