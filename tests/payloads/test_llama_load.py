"""llama-load as a program: against a stand-in for llama-server, and read by the controller's own reader."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from boardbench.results import schema
from boardbench.workloads.llama_load import LlamaLoad

PROJECT = Path(__file__).resolve().parents[2]
PROGRAM = PROJECT / "payloads/llama-load/llama-load"
FAKE = Path(__file__).parent / "llama/fake_llama.py"


@pytest.fixture
def argv(tmp_path: Path) -> list[str]:
    build = tmp_path / "build"
    build.mkdir()
    for name in ("llama-server", "llama-perplexity"):
        shutil.copy(FAKE, build / name)
        (build / name).chmod(0o755)
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    words = [sys.executable, str(PROGRAM), "--out", str(tmp_path / "out"), "--build", str(build)]
    return [*words, "--model", str(tmp_path / "m.gguf"), "--threads", "2", "--predict", "4", "--limit-s", "20"]


def run(argv: list[str], *more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*argv, *more], capture_output=True, text=True, timeout=60, check=False)


def events(tmp_path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (tmp_path / "out/llama.jsonl").read_text().splitlines()]


def test_twelve_prompts_are_answered_and_read_back_by_the_controller(tmp_path: Path, argv: list[str]) -> None:
    done = run(argv, "--perplexity-chunks", "2", "--arguments=--cpu-moe -b 512")
    assert done.returncode == 0, done.stderr
    found = events(tmp_path)
    assert [event["event"] for event in found] == [
        "start", "ready", *["request"] * 12, "floor", "cache", "perplexity", "end",
    ]  # fmt: skip
    for event in found:
        assert list(schema.faults(event, "llama.line")) == []
    assert found[0]["argv"][-2:] == ["--cache-ram", "0"]
    assert "--cpu-moe" in found[0]["argv"]
    assert [event["language"] for event in found if event["event"] == "request"] == ["ko", "en"] * 6
    samples = LlamaLoad().read(tmp_path / "out")
    assert samples.figures["decode"].value == pytest.approx(400.0)
    assert samples.figures["perplexity"].value == 6.2344
    assert samples.ended_by_itself
    assert samples.planned == len(samples.intervals) == 12


def test_reads_are_numbers_or_say_why_not(tmp_path: Path, argv: list[str]) -> None:
    assert run(argv, "--prompts", "1").returncode == 0
    (request,) = [event for event in events(tmp_path) if event["event"] == "request"]
    for key in ("device_read_bytes", "process_read_bytes"):
        value = request[key]
        assert (isinstance(value, int) and value >= 0) or value["missing"]
    assert request["cache"] == {"missing": "the server has no expert cache in this arm"}


@pytest.mark.parametrize(
    ("mode", "why"),
    [
        ("die", "the server ended by SIGKILL"),
        ("error", "the server answered 500"),
        ("deaf", "the server was not ready within 1 s"),
    ],
)
def test_a_server_that_fails_ends_the_load_with_its_reason(
    tmp_path: Path, argv: list[str], mode: str, why: str
) -> None:
    done = run(argv, "--env", f"FAKE_LLAMA={mode}", *(["--limit-s", "1"] if mode == "deaf" else []))
    assert done.returncode == 1
    assert why in done.stderr
    last = events(tmp_path)[-1]
    assert last["event"] == "end"
    assert why in last["why"]
    assert last["requests"] == (2 if mode == "die" else 0)


def test_a_perplexity_whose_last_line_was_lost_is_measured_again(tmp_path: Path, argv: list[str]) -> None:
    tries = tmp_path / "tries"
    (tmp_path / "build/llama-perplexity").write_text(
        f"#!/bin/sh\necho x >>{tries}\n[ $(wc -l <{tries}) -lt 3 ] || echo 'Final estimate: PPL = 7.5 +/- 0.25'\n"
    )
    assert run(argv, "--prompts", "1", "--perplexity-chunks", "2").returncode == 0
    (found,) = [event for event in events(tmp_path) if event["event"] == "perplexity"]
    assert (found["value"], found["standard_error"]) == (7.5, 0.25)
    assert len(tries.read_text().split()) == 3


def test_a_perplexity_without_an_estimate_is_missing_and_not_zero(tmp_path: Path, argv: list[str]) -> None:
    build = tmp_path / "build/llama-perplexity"
    build.write_text("#!/bin/sh\necho 'out of memory'\nexit 1\n")
    assert run(argv, "--prompts", "1", "--perplexity-chunks", "2").returncode == 0
    (found,) = [event for event in events(tmp_path) if event["event"] == "perplexity"]
    assert found["value"] == {"missing": "llama-perplexity ended with code 1, without an estimate"}


def test_a_stop_signal_ends_the_server_too(tmp_path: Path, argv: list[str]) -> None:
    with subprocess.Popen([*argv, "--env", "FAKE_LLAMA=deaf"], stderr=subprocess.DEVNULL) as process:
        until = time.monotonic() + 20
        port = 0
        while not port and time.monotonic() < until:
            if (tmp_path / "out/llama.jsonl").exists() and (found := events(tmp_path)):
                words = found[0]["argv"]
                port = int(words[words.index("--port") + 1])
            time.sleep(0.05)
        assert port
        time.sleep(0.3)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 1
    assert events(tmp_path)[-1]["why"] == "stopped by SIGTERM"
    for stat in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            assert f"--port\0{port}".encode() not in stat.read_bytes()
        except OSError:
            continue


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (["--threads", "0"], "--threads must be at least 1"),
        (["--prompts", "13"], "12 prompts, 13 are wanted"),
        (["--model", "/no/such.gguf"], "there is no /no/such.gguf"),
        (["--env", "NOVALUE"], "is not NAME=VALUE"),
    ],
)
def test_a_mistake_is_one_sentence(argv: list[str], change: list[str], what: str) -> None:
    done = run(argv, *change)
    assert done.returncode in (1, 2)
    assert what in done.stderr
    assert "Traceback" not in done.stderr


def test_a_folder_that_holds_a_run_is_never_written_over(argv: list[str]) -> None:
    assert run(argv, "--prompts", "1").returncode == 0
    again = run(argv, "--prompts", "1")
    assert again.returncode == 1
    assert "llama.jsonl" in again.stderr


def test_the_payload_names_every_file_that_it_needs() -> None:
    folder = PROGRAM.parent
    named = (folder / "payload.yml").read_text()
    for path in [*folder.glob("llamaload/*.py"), folder / "prompts.json", folder / "perplexity.txt", PROGRAM]:
        assert f"source: {path.relative_to(folder)}," in named
