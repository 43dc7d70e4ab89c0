"""Trace files: both forms hold the same, damage is told, impossible traces are refused."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from boardbench.errors import InputError
from boardbench.moe.expert_layout import MoeModel, read_model
from boardbench.moe.make_model import make_model
from boardbench.moe.trace import DECODE, PREFILL, Trace
from boardbench.moe.trace_file import read_trace, write_trace

from .made_traces import builder_for, one_pass, text_trace


def assert_same(one: Trace, other: Trace) -> None:
    for field in dataclasses.fields(Trace):
        mine, theirs = getattr(one, field.name), getattr(other, field.name)
        same = np.array_equal(mine, theirs) if isinstance(mine, np.ndarray) else mine == theirs
        assert same, field.name


@pytest.mark.parametrize("names", [("t.trace",), ("t.jsonl",), ("t.jsonl", "t.trace", "u.jsonl")])
def test_a_trace_comes_back_as_it_was_written(model: MoeModel, tmp_path: Path, names: tuple[str, ...]) -> None:
    trace = text_trace(model)
    read = trace
    for name in names:
        write_trace(read, tmp_path / name)
        read = read_trace(tmp_path / name)
    assert_same(trace, read)
    assert (read.decode_tokens, read.prefill_tokens) == (150, 30)
    assert list(read.problems()) == []


def test_fewer_rows_in_the_last_layer_and_wide_ids_come_back(tmp_path: Path) -> None:
    path = tmp_path / "wide.gguf"
    wide = read_model(make_model(path, types="q4_0", n_embd=64, n_ff=32, n_layers=2, n_experts=300, n_used=2).path)
    builder = builder_for(wide)
    whole = one_pass(np.array([[[299, 1], [2, 3], [4, 5]], [[7, 8], [9, 256], [1, 0]]]), [0, 1], 0, PREFILL)
    layers = np.array([(0, 2, 3), (1, 2, 1)], dtype=np.int32)
    last = dataclasses.replace(whole, layers=layers, row_of=np.array([0, 1, 2, 2]), ids=whole.ids[:8])
    for one in (last, whole, last):
        builder.add_pass(one)
    trace = builder.trace(0)
    for name in ("t.trace", "t.jsonl"):
        write_trace(trace, tmp_path / name)
        read = read_trace(tmp_path / name)
        assert_same(trace, read)
        assert read.use_row.tolist() == [0, 1, 2, 2, 3, 4, 5, 3, 4, 5, 6, 7, 8, 8]
        assert list(read.problems()) == ["the traced program did not end its trace: it was killed, or still runs"]


def test_a_torn_end_is_left_out_and_told(model: MoeModel, tmp_path: Path) -> None:
    trace = text_trace(model, requests=1)
    for name in ("t.trace", "t.jsonl"):
        path = tmp_path / name
        write_trace(trace, path)
        data = path.read_bytes()
        # Inside the end's own record, and inside the last pass.
        for cut in (3, 100):
            path.write_bytes(data[:-cut])
            read = read_trace(path)
            assert read.torn_bytes > 0
            assert any("cut off" in problem for problem in read.problems())
            assert len(read.pass_rows) >= len(trace.pass_rows) - 2
            kept = np.arange(len(trace.pass_rows)) < len(read.pass_rows)
            assert np.array_equal(trace.only_passes(kept).ids, read.ids)


def test_damage_before_the_end_is_refused(model: MoeModel, tmp_path: Path) -> None:
    path = tmp_path / "t.trace"
    write_trace(text_trace(model), path)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"t\.trace: the record at byte [\d,]+ is damaged"):
        read_trace(path)


def test_two_runs_in_one_file_are_one_trace(model: MoeModel, tmp_path: Path) -> None:
    first, second = text_trace(model, requests=1), text_trace(model, requests=2, seed=2)
    path, other = tmp_path / "t.trace", tmp_path / "u.trace"
    write_trace(first, path)
    write_trace(second, other)
    path.write_bytes(path.read_bytes() + other.read_bytes()[8:])
    read = read_trace(path)
    assert len(read.runs) == 2
    assert read.decode_tokens == first.decode_tokens + second.decode_tokens
    assert np.array_equal(read.ids, np.concatenate((first.ids, second.ids)))


def test_two_models_in_one_file_are_refused_by_name(model: MoeModel) -> None:
    builder = builder_for(model)
    builder.add_pass(one_pass(np.zeros((1, 1, 1), dtype=int), [0], 0, DECODE))
    other = {"context": 0, "architecture": "x", "name": "draft", "layers": 1, "experts": 2, "used": 1}
    builder.add_run({"run": "2"})
    builder.add_context({**other, "tensor_bytes": 5, "parameters": 5})
    builder.add_pass(one_pass(np.zeros((1, 1, 1), dtype=int), [0], 0, DECODE))
    with pytest.raises(InputError, match="2 models: draft, random-moe"):
        builder.trace(0)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda ids: ids.__setitem__(5, 16), "pass 0, layer 0 names expert 16 of 16"),
        (lambda ids: ids.__setitem__(slice(8, 12), [1, 2, 3, 1]), "pass 0, layer 0 names an expert twice"),
    ],
)
def test_impossible_experts_are_refused_with_their_place(
    model: MoeModel, tmp_path: Path, change: Callable[[np.ndarray], None], words: str
) -> None:
    trace = text_trace(model)
    ids = trace.ids.copy()
    change(ids)
    path = tmp_path / "t.trace"
    write_trace(dataclasses.replace(trace, ids=ids), path)
    with pytest.raises(InputError, match=words):
        read_trace(path)


def test_layers_out_of_order_are_refused(model: MoeModel) -> None:
    builder = builder_for(model)
    builder.add_pass(one_pass(np.zeros((2, 1, 1), dtype=int), [3, 1], 0, DECODE))
    with pytest.raises(InputError, match="has layer 1 after a higher one"):
        builder.trace(0).check("t")


def test_a_trace_of_another_quantization_is_refused(model: MoeModel, tmp_path: Path) -> None:
    other = make_model(tmp_path / "o.gguf", types="q8_0", n_embd=128, n_ff=96, n_layers=4, n_experts=16, n_used=4)
    with pytest.raises(InputError, match="another model or quantization: bytes of tensors"):
        text_trace(model).check_model(read_model(other.path), "t")
    text_trace(model).check_model(model, "t")


def test_warm_up_can_be_left_out(model: MoeModel) -> None:
    builder = builder_for(model)
    ids = np.arange(16).reshape(4, 1, 4)
    builder.add_pass(one_pass(ids, [0, 1, 2, 3], 0, PREFILL, warm_up=True))
    builder.add_pass(one_pass(ids + 0, [0, 1, 2, 3], 1, DECODE))
    trace = builder.trace(0)
    assert (len(trace.pass_rows), trace.decode_tokens, trace.prefill_tokens) == (2, 1, 0)
    assert trace.without_warm_up().pass_call.tolist() == [1]
    assert trace.without_warm_up().use_row.tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not a router trace"),
        (b"hello", "not a router trace"),
        (b"{}\n", "not a router trace"),
        (b"BBROUTE1", "the trace holds no pass"),
        (b'{"trace":"boardbench-router-trace","version":1}\n{"pass":{}}\n', r"t:2: not a pass\W KeyError"),
        (b'{"trace":"boardbench-router-trace","version":1}\n{"what":1}\n', "t:2: neither a run"),
        (b'{"trace":"boardbench-router-trace","version":1}\n{"run":1}\n', "t:2: 'run' is not a JSON object"),
        (b'{"trace":"boardbench-router-trace","version":1}\nhm\n', "t:2: not JSON"),
    ],
)
def test_what_is_no_trace_is_told_with_its_place(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "t"
    path.write_bytes(content)
    with pytest.raises(InputError, match=words):
        read_trace(path)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_changed_bytes_give_a_trace_or_an_error(model: MoeModel, tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / data.draw(st.sampled_from(["t.trace", "t.jsonl"]))
    write_trace(text_trace(model, requests=1, prompt=3, decoded=3), path)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    try:
        read_trace(path)
    except InputError as error:
        said = str(error)
    else:
        said = ""
    assert "\n" not in said


def test_jsonl_is_one_object_a_line(model: MoeModel, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    write_trace(text_trace(model, requests=1, prompt=2, decoded=1), path)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [next(iter(line)) for line in lines] == ["trace", "run", "context", "pass", "pass", "end"]
    decode = lines[4]["pass"]
    assert (decode["phases"], decode["positions"], len(decode["layers"])) == (["decode"], [2], 4)
