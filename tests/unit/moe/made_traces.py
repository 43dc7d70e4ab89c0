"""Traces for tests: of routers with a preference, or of any given table of experts."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from boardbench.moe.expert_layout import MoeModel
from boardbench.moe.trace import DECODE, PREFILL, Trace, TracedModel
from boardbench.moe.trace_build import Builder, Pass, rows_in_order


def builder_for(model: MoeModel, run: str = "1-1") -> Builder:
    """A builder that knows the model in context 0."""
    builder = Builder("made")
    builder.add_run({"run": run})
    builder.add_context(
        {
            "context": 0,
            "architecture": model.architecture,
            "name": model.name or "",
            "layers": model.block_count,
            "experts": model.experts,
            "used": model.used_in_file,
            "tensor_bytes": model.tensor_bytes,
            "parameters": model.parameters,
        }
    )
    return builder


def one_pass(
    ids: NDArray[np.integer], layers: list[int], call: int, phase: int, first: int = 0, warm_up: bool = False
) -> Pass:
    """A pass of sequence 0 from position `first`. `ids`: [layers, rows, used]."""
    rows = ids.shape[1]
    table = np.array([(layer, ids.shape[2], rows) for layer in layers], dtype=np.int32)
    return Pass(
        context=0,
        call=call,
        part=0,
        warm_up=warm_up,
        sequences=np.zeros(rows, dtype=np.int32),
        positions=np.arange(first, first + rows, dtype=np.int32),
        phases=np.full(rows, phase, dtype=np.uint8),
        layers=table,
        row_of=rows_in_order(table),
        ids=ids.reshape(-1).astype(np.uint16),
    )


def text_trace(
    model: MoeModel, *, requests: int = 3, prompt: int = 10, decoded: int = 50, skew: float = 0.7, seed: int = 1
) -> Trace:
    """Requests one after another, each a prompt and decode, of a router that prefers some experts."""
    rng = np.random.default_rng(seed)
    layers = list(model.layers)
    taste = rng.standard_normal((len(layers), model.experts)) * skew
    builder = builder_for(model)
    call = 0

    def choose(rows: int) -> NDArray[np.int64]:
        scores = taste[:, None] + rng.standard_normal((len(layers), rows, model.experts))
        return np.argsort(-scores, axis=2)[:, :, : model.used]

    for _ in range(requests):
        builder.add_pass(one_pass(choose(prompt), layers, call, PREFILL))
        call += 1
        for step in range(decoded):
            builder.add_pass(one_pass(choose(1), layers, call, DECODE, first=prompt + step))
            call += 1
    builder.ended = True
    return builder.trace(0)


def traced_model(experts: int = 8, used: int = 2, layers: int = 2) -> TracedModel:
    """A model that is not in any file."""
    return TracedModel("qwen3moe", "made", layers, experts, used, 1000, 100)
