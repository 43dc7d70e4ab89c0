"""The expert cache in a real server: ill disks, counters, and all that is left to llama.cpp's own path."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from boardbench.moe.make_model import make_model

from .cache_server import PROMPTS, Server, ServerError, server

CALM = {"OMP_WAIT_POLICY": "passive"}


@dataclass(frozen=True)
class Rig:
    """The patched build and a small model, whose slices are no multiples of 4 KiB."""

    build: Path
    model: Path
    folder: Path
    preload: Path | None


def _preload(folder: Path) -> Path | None:
    if shutil.which("gcc") is None:
        return None
    library = folder / "failing_io.so"
    source = Path(__file__).parent / "failing_io.c"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"], check=True)
    return library


@pytest.fixture(scope="module")
def rig(llama_build: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Rig:
    folder = tmp_path_factory.mktemp("llama-cache")
    model = make_model(folder / "model.gguf", types="q4_0", n_ff=128).path
    return Rig(llama_build("patched"), model, folder, _preload(folder))


def cache_lines(running: Server) -> list[str]:
    return [line for line in running.log.read_text().splitlines() if "expert cache:" in line]


needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc to build the failing disk with")


@needs_gcc
def test_a_failing_read_ends_the_request_and_not_the_server(rig: Rig) -> None:
    flag = rig.folder / "disk-is-ill"
    env = CALM | {"LD_PRELOAD": str(rig.preload), "FAIL_READS_WHILE": str(flag)}
    with server(rig.build, rig.model, rig.folder, cache_mib=2, env=env) as running:
        expected = [running.complete(prompt).tokens for prompt in PROMPTS]
        for _ in range(3):
            flag.touch()
            for prompt in PROMPTS:
                with pytest.raises(ServerError) as failure:
                    running.complete(prompt)
                assert failure.value.status == 500
            flag.unlink()
            assert [running.complete(prompt).tokens for prompt in PROMPTS] == expected
        (model,) = running.counters()["models"]
        assert model["read_errors"] > 0
        assert any("failed: Input/output error" in line for line in cache_lines(running))


def test_counters_on_demand_and_at_exit(rig: Rig) -> None:
    with server(rig.build, rig.model, rig.folder, cache_mib=2, env=CALM) as running:
        running.complete(PROMPTS[0], tokens=16)
        first = running.counters()["models"][0]
        running.complete(PROMPTS[1], tokens=16)
        second = running.counters()["models"][0]
    (last,) = json.loads(running.stats_path.read_text())["models"]
    assert (first["state"], last["state"]) == ("served", "closed")
    for name in ("hits", "misses", "bytes_read", "evictions"):
        assert first[name] <= second[name] == last[name]
        assert sum(layer[name] for layer in last["layers"]) == last[name]
    assert first["misses"] < second["misses"]
    # 16 tokens after a prompt are 15 passes of decode and one of prefill, in 4 layers of 4 chosen experts.
    assert second["hits"] + second["misses"] - first["hits"] - first["misses"] >= 15 * 4 * 4


def test_a_start_with_warmup_does_not_read_the_model(rig: Rig) -> None:
    with server(rig.build, rig.model, rig.folder, cache_mib=64, env=CALM, flags=("--warmup",)) as running:
        (model,) = running.counters()["models"]
    assert model["misses"] < model["units"]


LEFT_TO_STOCK = {
    "loaded into memory": (4, ("--load-mode", "none"), {}, ("is loaded into memory: use --load-mode mmap",)),
    "repacked": (4, ("--repack",), {}, ("is in a repacked buffer: add --no-repack",)),
    "O_DIRECT refused": (4, (), {"REFUSE_O_DIRECT": "1"}, ("the file system refuses O_DIRECT: Invalid argument",)),
}


@needs_gcc
@pytest.mark.parametrize("case", LEFT_TO_STOCK)
def test_what_cannot_be_served_is_said_in_one_line_and_computed_as_ever(rig: Rig, case: str) -> None:
    mib, flags, env, said = LEFT_TO_STOCK[case]
    with server(rig.build, rig.model, rig.folder, env=CALM, flags=flags) as running:
        expected = running.complete(PROMPTS[0]).tokens
        assert cache_lines(running) == []
    settings = CALM | env | {"LD_PRELOAD": str(rig.preload)}
    with server(rig.build, rig.model, rig.folder, cache_mib=mib, env=settings, flags=flags) as running:
        assert running.complete(PROMPTS[0]).tokens == expected
        (line,) = cache_lines(running)
        (model,) = running.counters()["models"]
    assert "not served, llama.cpp's own path is used" in line
    for words in said:
        assert words in line
        assert words in model["why"]


def test_a_budget_below_one_token_is_refused_with_numbers(llama_build: Callable[[str], Path], rig: Rig) -> None:
    large = make_model(rig.folder / "large.gguf", types="f16", n_ff=256).path
    with server(rig.build, large, rig.folder, cache_mib=4, env=CALM) as running:
        expected = running.complete(PROMPTS[0]).tokens
        (line,) = cache_lines(running)
    assert "one token uses 16 units = 6.2 MiB, more than the budget of 4.0 MiB" in line
    assert line.endswith("set LLAMA_EXPERT_CACHE_MIB to 7 or more")
    with server(llama_build("stock"), large, rig.folder, env=CALM) as running:
        assert running.complete(PROMPTS[0]).tokens == expected


def test_a_dense_model_has_nothing_to_serve_and_says_the_same(llama_build: Callable[[str], Path], rig: Rig) -> None:
    dense = make_model(rig.folder / "dense.gguf", types="q8_0", n_ff=512, n_experts=0, n_used=0).path
    with server(llama_build("stock"), dense, rig.folder, env=CALM) as running:
        expected = [running.complete(prompt).tokens for prompt in PROMPTS]
        assert [running.complete(prompt).tokens for prompt in PROMPTS] == expected
    assert all(len(set(tokens)) > 4 for tokens in expected), "its text is hardly more than one token"
    with server(rig.build, dense, rig.folder, cache_mib=4, env=CALM) as running:
        assert [running.complete(prompt).tokens for prompt in PROMPTS] == expected
        (line,) = cache_lines(running)
        (model,) = running.counters()["models"]
    assert "not served, llama.cpp's own path is used: it has no expert tensors on the CPU" in line
    assert (model["state"], model["why"]) == ("not served", "it has no expert tensors on the CPU")


def test_nonsense_in_a_setting_is_one_clear_line(rig: Rig) -> None:
    env = CALM | {"LLAMA_EXPERT_CACHE_READERS": "many"}
    with server(rig.build, rig.model, rig.folder, cache_mib=4, env=env) as running:
        (line,) = cache_lines(running)
    assert (
        "LLAMA_EXPERT_CACHE_READERS='many' is not a whole number of threads from 1 to 64; the expert cache is off"
        in line
    )


def test_models_come_and_go_in_one_process(rig: Rig) -> None:
    other = make_model(rig.folder / "other.gguf", types="q8_0", n_ff=96).path
    stats = rig.folder / "bench.json"
    env = dict(os.environ) | CALM | {"LD_LIBRARY_PATH": str(rig.build), "LLAMA_EXPERT_CACHE_STATS": str(stats)}
    env["LLAMA_EXPERT_CACHE_MIB"] = "4"
    argv = [str(rig.build / "llama-bench"), "-m", str(rig.model), "-m", str(other), "-p", "8", "-n", "4", "-r", "1"]
    argv += ["-t", "1", "-lm", "mmap", "--repack", "0"]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    counters = json.loads(stats.read_text())
    assert [m["state"] for m in counters["models"]] == ["closed", "closed"]
    assert [Path(m["name"]).name for m in counters["models"]] == ["model.gguf", "other.gguf"]
    assert all(m["misses"] > 0 for m in counters["models"])
    assert counters["live_bytes"] == 0
