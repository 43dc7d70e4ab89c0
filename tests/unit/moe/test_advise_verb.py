"""`./inv advise` by typing: a table and a verdict, JSON, and one sentence for every mistake."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from boardbench.moe.expert_layout import MoeModel
from boardbench.moe.trace_file import read_trace, write_trace

from .made_traces import text_trace

PROJECT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def trace_path(model: MoeModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("advised") / "router.trace"
    write_trace(text_trace(model), path)
    return path


def inv(home: Path, *words: object) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "XDG_STATE_HOME": str(home)}
    command = [sys.executable, "-m", "tasks", "advise", *map(str, words)]
    return subprocess.run(command, cwd=PROJECT, env=env, capture_output=True, text=True, check=False)


def test_people_get_a_table_and_a_verdict_with_reasons(model_path: Path, trace_path: Path, tmp_path: Path) -> None:
    done = inv(tmp_path, "--model", model_path, "--trace", trace_path)
    assert done.returncode == 0, done.stderr
    assert "4 layers of 16 experts, 4 a token" in done.stdout
    assert "trace: 30 tokens of prompts, 150 decoded" in done.stdout
    assert "the expert cache here, at" in done.stdout
    assert "of decode's look-ups miss" in done.stdout


def test_a_verdict_against_the_cache_is_an_outcome(model_path: Path, trace_path: Path, tmp_path: Path) -> None:
    done = inv(tmp_path, "--model", model_path, "--trace", trace_path, "--memory", "1GiB", "--budget", "1MiB,2MiB")
    assert done.returncode == 1
    assert "do not use the expert cache here" in done.stdout
    assert "fits into memory (1,024 MiB)" in done.stdout


def test_json_has_every_budget_and_nulls_for_what_is_not_known(
    model_path: Path, trace_path: Path, tmp_path: Path
) -> None:
    done = inv(tmp_path, "--model", model_path, "--trace", trace_path, "--budget", "1,2MiB,0.5g", "--json")
    assert done.returncode == 0, done.stderr
    advice = json.loads(done.stdout)
    assert [row["budget_bytes"] for row in advice["budgets"]] == [1 << 20, 2 << 20, 1 << 29]
    assert advice["machine"]["memory_bytes"] is None
    assert advice["outlook"]["page_cache_bytes_per_token"] is None
    assert advice["verdict"]["word"] in ("use", "measure")
    # Everything fits: each unit misses once.
    assert advice["budgets"][2]["misses"] == advice["outlook"]["units_used"]


def test_a_trace_is_also_saved_as_lines(model_path: Path, trace_path: Path, tmp_path: Path) -> None:
    saved = tmp_path / "t.jsonl"
    done = inv(tmp_path, "--model", model_path, "--trace", trace_path, "--save-trace", saved)
    assert done.returncode == 0, done.stderr
    assert read_trace(saved).decode_tokens == 150


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "inv: --model: no model given"),
        (("--model", "{model}"), "inv: --trace: no trace given"),
        (("--model", "none.gguf", "--trace", "{trace}"), "inv: none.gguf: cannot read the model: No such file"),
        (("--model", "{model}", "--trace", "none"), "inv: none: cannot read the trace: No such file"),
        (("--model", "{trace}", "--trace", "{trace}"), "not a GGUF file"),
        (("--model", "{model}", "--trace", "{model}"), "not a router trace"),
        (("--model", "{model}", "--trace", "{trace}", "--budget", "lots"), "inv: --budget: 'lots' is not a size"),
        (("--model", "{model}", "--trace", "{trace}", "--budget", "1,,2"), "inv: --budget: '' is not a size"),
        (("--model", "{model}", "--trace", "{trace}", "--budget", "0"), "inv: --budget: '0' is not a size"),
        (("--model", "{model}", "--trace", "{trace}", "--budget=-5"), "inv: --budget: '-5' is not a size"),
        (("--model", "{model}", "--trace", "{trace}", "--memory", "8 apples"), "inv: --memory: '8 apples'"),
        (("--model", "{model}", "--trace", "{trace}", "--direct-mib-s", "fast"), "inv: --direct-mib-s: 'fast'"),
        (("--model", "{model}", "--trace", "{trace}", "--fault-mib-s", "nan"), "inv: --fault-mib-s: 'nan'"),
        (("--model", "{model}", "--trace", "{trace}", "--used", "99"), "99 experts a token, but a layer has 16"),
        (("--model", "{model}", "--trace", "{trace}", "--used", "x"), "inv: --used: 'x' is not a whole number"),
        (("--model", "{model}", "--trace", "{trace}", "--save-trace", "/none/t"), "cannot write the trace"),
        (("--model", "{model}", "--trace", "{trace}", "--memory", "1G", "--board", "b"), "memory or the board"),
    ],
)
def test_a_mistake_is_one_sentence(
    model_path: Path, trace_path: Path, tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    done = inv(tmp_path, *(word.format(model=model_path, trace=trace_path) for word in words))
    assert done.returncode == 2, done.stdout + done.stderr
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
