"""Real llama-server and llama-perplexity, stock against patched: the same tokens and the same perplexity."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from boardbench.moe.make_model import make_model

from .cache_server import PROMPTS, server

# Threads that spin at a barrier starve each other on a busy machine; sleeping ones compute the same.
CALM = {"OMP_WAIT_POLICY": "passive"}

MODELS: dict[str, dict[str, Any]] = {
    "f16, slices a multiple of 4 KiB": {"types": "f16", "n_ff": 128},
    "f16, slices that are not": {"types": "f16", "n_ff": 100},
    "q8_0": {"types": "q8_0", "n_ff": 256},
    "q8_0, odd": {"types": "q8_0", "n_ff": 96},
    "q4_0, odd": {"types": "q4_0", "n_ff": 128},
    "mxfp4": {"types": "mxfp4", "n_ff": 512},
    "mxfp4, odd": {"types": "mxfp4", "n_ff": 96},
    "k-quants by kind": {"types": {"gate": "q4_k", "up": "q5_k", "down": "q6_k"}, "n_ff": 256},
    "units of two sizes": {"types": ["q2_k", "q3_k", "q6_k"], "n_ff": 256},
    "merged gate_up": {"types": "q8_0", "n_ff": 96, "merged_gate_up": True},
    "three files": {"types": "q4_k", "n_ff": 256, "split_files": 3},
}


@dataclass(frozen=True)
class Arm:
    """How a patched server runs: budget (MiB), compute and reader threads."""

    mib: int
    threads: int = 2
    readers: int = 4


# 1 MiB holds hardly one layer's experts of a token (0.2 to 0.9 MiB) or of a prompt; 64 MiB holds every model.
QUICK = (Arm(1, threads=1, readers=1), Arm(3, threads=2, readers=8))
GRID = tuple(
    Arm(mib, threads, readers) for mib in (1, 2, 5, 64) for threads, readers in ((1, 1), (2, 4), (5, 2), (8, 8))
)


@dataclass
class Bench:
    """Builds, made models and the stock server's tokens, each made once."""

    stock: Path
    patched: Path
    folder: Path
    models: dict[str, Path] = field(default_factory=dict)
    said: dict[str, list[tuple[int, ...]]] = field(default_factory=dict)

    def model(self, name: str) -> Path:
        if name not in self.models:
            place = self.folder / f"model-{len(self.models)}.gguf"
            self.models[name] = make_model(place, **MODELS[name]).path
        return self.models[name]

    def stock_tokens(self, name: str) -> list[tuple[int, ...]]:
        if name not in self.said:
            with server(self.stock, self.model(name), self.folder, env=CALM) as stock:
                self.said[name] = [stock.complete(prompt).tokens for prompt in PROMPTS]
        return self.said[name]

    def assert_same(self, name: str, arm: Arm) -> dict[str, Any]:
        """Every prompt twice, the same tokens as stock. The model's counters."""
        env = CALM | {"LLAMA_EXPERT_CACHE_READERS": str(arm.readers), "LLAMA_EXPERT_CACHE_SMALL": "1"}
        expected = self.stock_tokens(name)
        assert len(set(expected[0])) > 10, "a model that says one token only would prove nothing"
        with server(
            self.patched, self.model(name), self.folder, cache_mib=arm.mib, threads=arm.threads, env=env
        ) as patched:
            for _ in range(2):
                assert [patched.complete(prompt).tokens for prompt in PROMPTS] == expected, (name, arm)
            counters = patched.counters()
        (model,) = counters["models"]
        assert model["state"] == "served", model
        assert counters["live_bytes"] <= arm.mib << 20
        return dict(model)


@pytest.fixture(scope="module")
def bench(llama_build: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(llama_build("stock"), llama_build("patched"), tmp_path_factory.mktemp("llama-text"))


@pytest.mark.parametrize("name", MODELS)
def test_text_is_that_of_stock_token_by_token(bench: Bench, name: str) -> None:
    for arm in QUICK:
        counters = bench.assert_same(name, arm)
        assert counters["misses"] > 0
    assert counters["hits"] + counters["misses"] > 1000


def test_a_budget_for_all_reads_every_slice_once(bench: Bench) -> None:
    counters = bench.assert_same("q8_0, odd", Arm(64))
    assert counters["evictions"] == counters["reloads"] == 0
    assert counters["misses"] <= counters["units"]
    assert counters["slots"] == counters["units"]


@pytest.mark.slow
@pytest.mark.parametrize("arm", GRID, ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_text_is_that_of_stock_in_the_whole_grid(bench: Bench, name: str, arm: Arm) -> None:
    bench.assert_same(name, arm)


def _perplexity(build: Path, model: Path, folder: Path, settings: dict[str, str]) -> str:
    text = folder / "text.txt"
    if not text.exists():
        lines = (f"the inn on the hill and the three rivers of {n}, then on to the red land" for n in range(150))
        text.write_text("\n".join(lines))
    argv = [str(build / "llama-perplexity"), "-m", str(model), "-f", str(text), "-c", "256", "-b", "256"]
    argv += ["--chunks", "4", "-t", "2", "--load-mode", "mmap", "--no-repack"]
    env = dict(os.environ) | CALM | {"LD_LIBRARY_PATH": str(build)} | settings
    said = ""
    # llama.cpp's log, stock's too, now and then loses its last lines when the program ends.
    for _ in range(10):
        done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False, timeout=600)
        said = done.stdout + done.stderr
        assert done.returncode == 0, said[-2000:]
        if found := re.search(r"Final estimate: PPL = (\S+ \+/- \S+)", said):
            return found[1]
    raise AssertionError(f"no perplexity in ten runs:\n{said[-2000:]}")


@pytest.mark.parametrize(
    "name",
    [
        "q8_0, odd",
        "k-quants by kind",
        *(pytest.param(n, marks=pytest.mark.slow) for n in MODELS if n not in ("q8_0, odd", "k-quants by kind")),
    ],
)
def test_perplexity_is_that_of_stock(bench: Bench, name: str) -> None:
    expected = _perplexity(bench.stock, bench.model(name), bench.folder, {})
    for mib in ("1", "3", "64"):
        settings = {"LLAMA_EXPERT_CACHE_MIB": mib, "LLAMA_EXPERT_CACHE_SMALL": "1"}
        stats = bench.folder / "perplexity.json"
        stats.unlink(missing_ok=True)
        settings["LLAMA_EXPERT_CACHE_STATS"] = str(stats)
        assert _perplexity(bench.patched, bench.model(name), bench.folder, settings) == expected
        assert '"misses": 0' not in stats.read_text().splitlines()[2], "the cache was not used"
