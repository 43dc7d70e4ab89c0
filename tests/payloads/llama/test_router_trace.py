"""The preloaded tracer on a stock llama-server: same text, and what it writes is what the router chose."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader
from gguf.quants import dequantize

from boardbench.builds.tracer import VARIABLE, tracer_here
from boardbench.moe.expert_layout import read_model
from boardbench.moe.make_model import make_model
from boardbench.moe.trace import DECODE, PREFILL, Trace
from boardbench.moe.trace_file import read_trace
from boardbench.payload import load_payload

from .cache_server import Server, server

PROJECT = Path(__file__).resolve().parents[3]
PROMPT = "the quick brown fox and the lazy dog"
LONG = "한국어 문장 하나를 길게 이어서 적습니다. " * 8


@pytest.fixture(scope="module")
def stock(llama_build: Callable[[str], Path]) -> Path:
    return llama_build("stock")


@pytest.fixture(scope="module")
def tracer(stock: Path) -> Path:
    """Needs what the build of `stock` needs."""
    assert stock.is_dir()
    return tracer_here(load_payload(PROJECT / "payloads" / "llama-expert-cache"))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("traced") / "m.gguf"
    return make_model(path, types="f16", n_ff=64, n_layers=4, n_experts=32, n_used=4, skew=0.4, seed=5).path


@contextmanager
def traced(stock: Path, tracer: Path, model: Path, folder: Path, *flags: str) -> Iterator[tuple[Server, Path]]:
    """A server that traces into a new file of `folder`."""
    path = folder / "router.trace"
    with server(stock, model, folder, flags=flags, env={"LD_PRELOAD": str(tracer), VARIABLE: str(path)}) as one:
        yield one, path


def positions_of(trace: Trace, phase: int) -> list[tuple[int, int]]:
    """(sequence, position) of all rows of a phase, warm-up left out."""
    trace = trace.without_warm_up()
    rows = trace.row_phase == phase
    return list(zip(trace.row_sequence[rows].tolist(), trace.row_position[rows].tolist(), strict=True))


def test_a_traced_server_says_the_same_and_every_token_is_in_the_trace(
    stock: Path, tracer: Path, model: Path, tmp_path: Path
) -> None:
    with server(stock, model, tmp_path) as plain:
        wanted = [plain.complete(prompt, 24).tokens for prompt in (PROMPT, LONG)]
    with traced(stock, tracer, model, tmp_path) as (one, path):
        assert [one.complete(prompt, 24).tokens for prompt in (PROMPT, LONG)] == wanted
    trace = read_trace(path)
    trace.check_model(read_model(model), str(path))
    assert list(trace.problems()) == []
    # The first new token comes out of the prompt's pass.
    assert trace.decode_tokens == 2 * 23
    decoded = [position for _, position in positions_of(trace, DECODE)]
    prompts = [position for _, position in positions_of(trace, PREFILL)]
    second = prompts.index(0, 1)
    assert prompts == [*range(second), *range(len(prompts) - second)]
    assert decoded == [*range(second, second + 23), *range(len(prompts) - second, len(prompts) - second + 23)]
    # The warm-up, and a trial of what the context can do.
    assert trace.pass_warm_up.tolist() == [True] * 2 + [False] * (len(trace.pass_rows) - 2)
    assert set(np.unique(trace.use_layer)) == {0, 1, 2, 3}
    assert set(trace.use_count.tolist()) == {4}


def test_without_warm_up_and_without_the_variable(stock: Path, tracer: Path, model: Path, tmp_path: Path) -> None:
    with traced(stock, tracer, model, tmp_path, "--no-warmup") as (one, path):
        one.complete(PROMPT, 4)
    assert read_trace(path).pass_warm_up.sum() == 1
    path.unlink()
    with server(stock, model, tmp_path, env={"LD_PRELOAD": str(tracer)}) as one:
        one.complete(PROMPT, 4)
    assert not path.exists()


def test_the_experts_of_the_first_token_are_those_that_the_weights_choose(
    stock: Path, tracer: Path, model: Path, tmp_path: Path
) -> None:
    with traced(stock, tracer, model, tmp_path, "--no-warmup") as (one, path):
        for token in (65, 66, 200, 31):
            one.complete([token, 70, 71], 1)  # type: ignore[arg-type]
    trace = read_trace(path).without_warm_up()
    first_uses = np.flatnonzero((trace.row_position[trace.use_row] == 0) & (trace.use_layer == 0))
    starts = (np.cumsum(trace.use_count) - trace.use_count)[first_uses]
    chosen = [set(trace.ids[start : start + 4].tolist()) for start in starts]
    assert chosen == [first_layer_choice(model, token, 4) for token in (65, 66, 200, 31)]


def first_layer_choice(path: Path, token: int, used: int) -> set[int]:
    """What layer 0's router chooses for a lone token: attention over itself is its own value."""
    weights = {
        t.name.removesuffix(".weight"): dequantize(t.data, t.tensor_type).astype(np.float64)
        for t in GGUFReader(path).tensors
        if t.name.startswith(("blk.0.attn", "blk.0.ffn_norm", "blk.0.ffn_gate_inp", "token_embd"))
    }

    def normed(x: np.ndarray, name: str) -> np.ndarray:
        return np.asarray(x / np.sqrt(np.mean(x**2) + 1e-6) * weights[name])

    x = weights["token_embd"][token]
    value = (weights["blk.0.attn_v"] @ normed(x, "blk.0.attn_norm")).reshape(-1, 64)
    heads = weights["blk.0.attn_q"].shape[0] // 64
    x = x + weights["blk.0.attn_output"] @ np.repeat(value, heads // len(value), axis=0).reshape(-1)
    scores = weights["blk.0.ffn_gate_inp"] @ normed(x, "blk.0.ffn_norm")
    return set(np.argsort(-scores)[:used].tolist())


@pytest.mark.parametrize("flags", [("-kvu",), ("-no-kvu",)], ids=["one-cache", "a-cache-each"])
def test_sequences_that_run_together_are_told_apart(
    stock: Path, tracer: Path, model: Path, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    prompts = [f"{word} {PROMPT}" for word in ("one", "two and", "three of them", "four")]
    with (
        traced(stock, tracer, model, tmp_path, "-np", "4", *flags) as (one, path),
        ThreadPoolExecutor(4) as pool,
    ):
        answers = list(pool.map(lambda prompt: one.complete(prompt, 40), prompts))
    trace = read_trace(path)
    assert [len(answer.tokens) for answer in answers] == [40] * 4
    assert trace.decode_tokens == 4 * 39
    rows = positions_of(trace, DECODE)
    assert all(sequence >= 0 for sequence, _ in rows)
    # However they were put into slots: in each sequence every request goes on position by position.
    steps = 0
    for sequence in range(4):
        mine = [position for at, position in rows if at == sequence]
        steps += sum(after == before + 1 for before, after in pairwise(mine))
    assert steps >= 4 * 39 - 4


def test_a_long_prompt_comes_in_parts_and_only_its_last_row_is_in_the_last_layer(
    stock: Path, tracer: Path, model: Path, tmp_path: Path
) -> None:
    with traced(stock, tracer, model, tmp_path, "-b", "128", "-ub", "32", "--no-warmup") as (one, path):
        one.complete(LONG * 2, 3)
    trace = read_trace(path).without_warm_up()
    prompt = [position for _, position in positions_of(trace, PREFILL)]
    assert prompt == list(range(len(prompt)))
    assert trace.pass_rows.max() == 32
    assert trace.pass_part.max() >= 3
    last_layer = np.unique(trace.use_row[trace.use_layer == 3])
    wanted = [len(prompt) - 1, len(prompt), len(prompt) + 1]
    assert [row for row in last_layer.tolist() if row >= len(prompt) - 1] == wanted
    assert np.unique(trace.use_row[trace.use_layer == 0]).size == len(prompt) + 2


def test_a_killed_server_leaves_a_trace_that_can_be_read(
    stock: Path, tracer: Path, model: Path, tmp_path: Path
) -> None:
    with traced(stock, tracer, model, tmp_path) as (one, path):
        one.complete(PROMPT, 8)
        os.kill(one.pid, signal.SIGKILL)
    trace = read_trace(path)
    assert trace.decode_tokens == 7
    assert "did not end its trace" in " ".join(trace.problems())


def test_a_trace_that_cannot_be_written_is_told_and_the_server_serves(
    stock: Path, tracer: Path, model: Path, tmp_path: Path
) -> None:
    env = {"LD_PRELOAD": str(tracer), VARIABLE: str(tmp_path / "none" / "t.trace")}
    with server(stock, model, tmp_path, env=env) as one:
        assert len(one.complete(PROMPT, 4).tokens) == 4
        assert "router trace:" in one.log.read_text()
        assert "cannot be opened" in one.log.read_text()


def test_merged_experts_in_several_files_are_traced_and_advised_on(stock: Path, tracer: Path, tmp_path: Path) -> None:
    made = make_model(tmp_path / "m.gguf", types="q4_0", merged_gate_up=True, split_files=2, n_experts=32, skew=0.4)
    with traced(stock, tracer, made.path, tmp_path) as (one, path):
        one.complete(LONG, 60)
    command = [sys.executable, "-m", "tasks", "advise", "--model", str(made.path), "--trace", str(path), "--json"]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    advice = json.loads(done.stdout)
    assert advice["outlook"]["decode_tokens"] == 59
    misses = [row["decode_miss_rate"] for row in advice["budgets"]]
    assert misses == sorted(misses, reverse=True)
    assert misses[0] > 0.5 > 0.2 > misses[-1]
