"""The programs as a user starts them: a mistake is one sentence and an exit code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from npuforge import smalltoml

from boardbench.payload import load_payload

from .cluster import PAYLOADS, free_port, write_toml

NODE = {
    "node": {"id": "king", "scheduler_address": "127.0.0.1:1", "listen": "127.0.0.1:0"},
    "transport": {"security": "plaintext"},
    "backend": {"type": "virtual", "zero_time": True},
}
SCHEDULER = {"transport": {"security": "plaintext"}}


def _check(name: str, tables: object, tmp_path: Path, *more: str) -> tuple[int, str]:
    config = tmp_path / "c.toml"
    if isinstance(tables, str):
        config.write_text(tables)
    else:
        write_toml(config, tables)  # type: ignore[arg-type]
    command = [sys.executable, str(PAYLOADS / name / "main.py"), "--config", str(config), *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr


def test_good_configs_are_good(tmp_path: Path) -> None:
    assert _check("npu-node", NODE, tmp_path, "--check") == (0, "")
    assert _check("npu-scheduler", SCHEDULER, tmp_path, "--check") == (0, "")
    # The rig's own keys, all of them.
    rig = {
        "server": {"grpc_listen": "127.0.0.1:50051", "http_listen": "127.0.0.1:8080",
                   "metrics_listen": "127.0.0.1:9090", "max_payload_bytes": 10485760},
        "scheduler": {"policy": "ect", "request_timeout_ms": 5000, "node_rpc_timeout_ms": 3000, "max_retries": 1,
                      "retry_backoff_min_ms": 10, "retry_backoff_max_ms": 100},
        "transport": {"node_connections": 2, "security": "plaintext"},
        "thresholds": {"busy_queue_depth": 8, "degraded_error_rate": 0.10, "degraded_temperature_c": 80,
                       "disable_temperature_c": 90},
    }  # fmt: skip
    assert _check("npu-scheduler", rig, tmp_path, "--check") == (0, "")


@pytest.mark.parametrize(
    ("name", "tables", "code", "sentence"),
    [
        ("npu-scheduler", {}, 2, 'asked for by name: security = "plaintext"'),
        ("npu-scheduler", {**SCHEDULER, "scheduler": {"policy": "fastest"}}, 2, "it can be round-robin, least-"),
        ("npu-scheduler", {**SCHEDULER, "scheduler": {"polcy": "ect"}}, 2, "did you mean 'policy'?"),
        ("npu-scheduler", {**SCHEDULER, "servr": {}}, 2, "did you mean 'server'?"),
        ("npu-scheduler", {**SCHEDULER, "scheduler": {"max_retries": "1"}}, 2, "max_retries must be a int"),
        ("npu-scheduler", "[server\n", 2, "is not TOML"),
        ("npu-node", {**NODE, "node": {"id": "king"}}, 2, "scheduler_address is missing"),
        ("npu-node", {**NODE, "backend": {"type": "mock"}}, 3, "there is no backend 'mock'"),
        ("npu-node", {**NODE, "backend": {"type": "rknn"}}, 3, "does not have the backend 'rknn'"),
        ("npu-node", {**NODE, "node": {**NODE["node"], "listen": "0.0.0.0:1"}}, 2, "advertise_address is needed"),
    ],
    ids=lambda value: str(value)[:40],
)  # fmt: skip
def test_a_mistake_is_one_sentence(name: str, tables: object, code: int, sentence: str, tmp_path: Path) -> None:
    found, said = _check(name, tables, tmp_path, "--check")
    assert (found, said.count("\n")) == (code, 1), said
    assert sentence in said


def test_a_port_that_is_taken_is_told(tmp_path: Path) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        server = {"grpc_listen": address, "http_listen": f"127.0.0.1:{free_port()}"}
        code, said = _check("npu-scheduler", {**SCHEDULER, "server": server}, tmp_path)
    assert code == 3
    assert f"cannot listen on {address}" in said


def test_the_direct_rate_can_be_measured(tmp_path: Path) -> None:
    config = write_toml(tmp_path / "c.toml", NODE)
    command = [sys.executable, str(PAYLOADS / "npu-node/main.py"), "--config", str(config), "--direct", "0.2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert "inferences/s direct, 1228800 bytes each, 0.2 s" in done.stdout


@pytest.mark.parametrize("name", ["npu-common", "npu-node", "npu-scheduler"])
def test_a_payload_names_every_file_of_its_folder(name: str) -> None:
    payload = load_payload(PAYLOADS / name)
    named = {file.source.relative_to(payload.folder).as_posix() for file in payload.files}
    there = {
        path.relative_to(PAYLOADS / name).as_posix()
        for path in (PAYLOADS / name).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.name not in ("payload.yml", "README.md")
    }
    units = {unit.source.relative_to(payload.folder).as_posix() for unit in payload.units}
    assert named | units == there


SCALARS = st.one_of(
    st.booleans(), st.integers(-(2**60), 2**60), st.floats(-1e9, 1e9), st.text('ab"\\ #=[]x\n\t', max_size=9)
)
VALUES = st.one_of(SCALARS, st.lists(SCALARS, max_size=3))


@given(st.dictionaries(st.sampled_from("abcd"), st.dictionaries(st.sampled_from("xyz"), VALUES)))
def test_the_small_toml_reader_reads_what_the_big_one_reads(tables: dict[str, dict[str, object]]) -> None:
    import json
    import tomllib

    text = ""
    for name, keys in tables.items():
        text += f"[{name}] # a comment\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items())
    assert smalltoml.loads(text) == tomllib.loads(text)


@pytest.mark.parametrize(
    "text", ["a", "a = ", "a = 1 2", "[a]\n[a]", "a = 1\na = 2", "a = 'x'", 'a = "x', "a = [1", "a = 2020-01-01"]
)
def test_the_small_toml_reader_refuses_what_it_does_not_understand(text: str) -> None:
    with pytest.raises(ValueError, match="line "):
        smalltoml.loads(text)
