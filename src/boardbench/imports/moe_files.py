"""Router traces and models: their facts, by the readers of `boardbench.moe`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from boardbench.imports.model import Fact, FactValue, Fault, Missing, Parsed
from boardbench.moe.gguf_file import read_gguf
from boardbench.moe.trace_file import read_trace


def parse_trace(path: Path, name: str) -> Parsed:
    """Facts of a router trace. Raises InputError for one that is damaged before its end."""
    trace = read_trace(path)
    model = trace.model
    facts: dict[str, FactValue] = {
        "model.architecture": model.architecture,
        "model.name": model.name,
        "model.layers": float(model.layers),
        "model.experts_a_layer": float(model.experts),
        "model.experts_used": float(model.used),
        "model.tensor_bytes": float(model.tensor_bytes),
        "model.parameters": float(model.parameters),
        "runs": float(len(trace.runs)),
        "passes": float(trace.pass_rows.size),
        "decode_tokens": float(trace.decode_tokens),
        "prefill_tokens": float(trace.prefill_tokens),
        "expert_uses": float(trace.ids.size),
    }
    torn = bool(trace.torn_bytes) or not trace.ended
    faults = tuple(Fault("torn-line" if torn else "malformed-file", name, what) for what in trace.problems())
    return Parsed(
        facts=tuple(Fact(key, value, name) for key, value in facts.items()),
        faults=faults,
        not_known=("times: a router trace holds order, no clock",),
    )


def parse_gguf(path: Path, name: str) -> Parsed:
    """Facts of a model file; no weight is read. Raises InputError for a file that is torn or no GGUF."""
    model = read_gguf(path)
    types = Counter(tensor.type_name for tensor in model.tensors.values())
    unknown = [tensor for tensor in model.tensors.values() if tensor.n_bytes is None]
    facts: dict[str, FactValue] = {
        "gguf_version": float(model.version),
        "alignment_bytes": float(model.alignment),
        "tensors": float(len(model.tensors)),
        "tensor_bytes": (
            Missing("there are tensors of unknown type")
            if unknown
            else float(sum(tensor.n_bytes or 0 for tensor in model.tensors.values()))
        ),
        **{f"tensors_of.{kind}": float(count) for kind, count in sorted(types.items())},
        **{f"metadata.{key}": _fact(value) for key, value in model.metadata.items()},
    }
    faults = tuple(
        Fault("malformed-file", name, f"tensor {tensor.name} has the unknown type {tensor.type_number}")
        for tensor in unknown[:20]
    )
    return Parsed(
        facts=tuple(Fact(key, value, name) for key, value in facts.items()),
        faults=faults,
        not_known=("the weights: only the head of the file was read",),
    )


def _fact(value: Any) -> FactValue:
    if value is None:
        return Missing("too long to keep")
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return float(value) if abs(value) < 1 << 53 else str(value)
    if isinstance(value, float | str):
        return value
    return tuple(str(entry) for entry in value)
