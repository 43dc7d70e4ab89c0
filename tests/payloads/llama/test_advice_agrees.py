"""`advise` against the cache itself: one server run with cache and tracer, the same look-ups, misses within 1 %."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from boardbench.builds.tracer import VARIABLE, tracer_here
from boardbench.moe.accesses import slot_bytes
from boardbench.moe.expert_layout import read_model
from boardbench.moe.make_model import make_model
from boardbench.payload import load_payload

from .cache_server import PROMPTS, server

PROJECT = Path(__file__).resolve().parents[3]
SHARES = (0.15, 0.3, 0.6)
MODELS = {
    "equal": {"types": "q8_0", "n_ff": 96, "n_layers": 8},
    "unequal": {"types": ["q4_0", "q8_0", "f16"], "n_ff": 128, "n_layers": 6},
}


@pytest.mark.parametrize("units", MODELS)
def test_predicted_misses_are_the_counted_ones_within_a_percent(
    llama_build: Callable[[str], Path], tmp_path: Path, units: str
) -> None:
    build = llama_build("patched")
    tracer = tracer_here(load_payload(PROJECT / "payloads" / "llama-expert-cache"))
    made = make_model(
        tmp_path / "m.gguf",
        n_experts=64,
        n_used=6,
        skew=0.4,
        seed=3,
        **MODELS[units],  # type: ignore[arg-type]
    )
    model = read_model(made.path)
    whole = sum(slot_bytes(model).values()) * model.experts
    for share in SHARES:
        budget_mib = int(whole * share) >> 20
        trace = tmp_path / f"{budget_mib}.trace"
        env = {"LD_PRELOAD": str(tracer), VARIABLE: str(trace)}
        with server(build, made.path, tmp_path, cache_mib=budget_mib, env=env) as one:
            for prompt in PROMPTS:
                one.complete(prompt, 96)
            stats = one.stats_path
        (counted,) = json.loads(stats.read_text())["models"]
        predicted = advise(made.path, trace, budget_mib)
        assert predicted["lookups"] == counted["hits"] + counted["misses"]
        assert predicted["misses"] == pytest.approx(counted["misses"], rel=0.01)


def advise(model: Path, trace: Path, budget_mib: int) -> dict[str, int]:
    """What the verb says at one budget."""
    command = [sys.executable, "-m", "tasks", "advise", "--json", "--budget", str(budget_mib)]
    command += ["--model", str(model), "--trace", str(trace)]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    (row,) = json.loads(done.stdout)["budgets"]
    return dict(row)
