"""Made models: valid for the gguf package's own reader, deterministic, sane, and of the sizes that were asked for."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFReader
from gguf.quants import dequantize

from boardbench.errors import InputError
from boardbench.moe.make_model import make_model
from boardbench.moe.random_blocks import TYPES, random_rows


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("name", TYPES)
def test_random_rows_of_every_type_have_about_the_wanted_spread(name: str) -> None:
    kind = GGMLQuantizationType[name]
    rows = random_rows(np.random.default_rng(3), kind, 64, 1024, 0.03)
    values = dequantize(rows, kind).astype(np.float64) if name != "F32" else rows.view(np.float32)
    assert values.shape == (64, 1024)
    assert np.isfinite(values).all()
    assert 0.03 / 1.6 < np.sqrt(np.mean(values**2)) < 0.03 * 1.6
    assert abs(values.mean()) < 0.004


def test_the_same_arguments_give_the_same_bytes_and_another_seed_gives_others(tmp_path: Path) -> None:
    first, again, other = (
        make_model(tmp_path / name, types="q4_k", n_ff=256, n_layers=2, seed=seed)
        for name, seed in (("a.gguf", 1), ("b.gguf", 1), ("c.gguf", 2))
    )
    assert digest(first.path) == digest(again.path)
    assert digest(first.path) != digest(other.path)


def test_every_slice_differs_from_every_other(tmp_path: Path) -> None:
    made = make_model(tmp_path / "m.gguf", types="q8_0", n_ff=96, n_layers=2, n_experts=8)
    slices = [
        tensor.data[expert].tobytes()
        for tensor in GGUFReader(made.path).tensors
        if "_exps" in tensor.name
        for expert in range(8)
    ]
    assert len(slices) == 2 * 3 * 8
    assert len(set(slices)) == len(slices)


@pytest.mark.parametrize(
    ("types", "n_ff", "slice_bytes", "whole_pages"),
    [("f16", 128, 65536, True), ("f16", 100, 51200, False), ("q8_0", 96, 26112, False), ("mxfp4", 512, 69632, True)],
)
def test_slices_can_be_and_not_be_multiples_of_a_page(
    tmp_path: Path, types: str, n_ff: int, slice_bytes: int, whole_pages: bool
) -> None:
    if types == "f16" and n_ff == 100:
        slice_bytes = 256 * 100 * 2
    made = make_model(tmp_path / "m.gguf", types=types, n_ff=n_ff, n_layers=1, n_experts=4, n_used=2)
    assert made.slice_bytes[0] == {"gate": slice_bytes, "up": slice_bytes, "down": slice_bytes}
    assert (slice_bytes % 4096 == 0) == whole_pages
    assert made.unit_bytes == (3 * slice_bytes,)


def test_kinds_and_layers_can_have_types_of_their_own(tmp_path: Path) -> None:
    types = [{"gate": "q4_k", "up": "q4_k", "down": "q6_k"}, "q2_k"]
    made = make_model(tmp_path / "m.gguf", types=types, n_ff=256, n_layers=3)
    found = {tensor.name: tensor.tensor_type.name for tensor in GGUFReader(made.path).tensors}
    assert found["blk.0.ffn_down_exps.weight"] == "Q6_K"
    assert found["blk.1.ffn_down_exps.weight"] == "Q2_K"
    assert found["blk.2.ffn_gate_exps.weight"] == "Q4_K"
    assert made.unit_bytes[0] == made.unit_bytes[2] != made.unit_bytes[1]


def test_a_router_prefers_some_experts_when_skewed(tmp_path: Path) -> None:
    even, skewed = (
        make_model(tmp_path / f"{skew}.gguf", n_experts=64, n_layers=1, skew=skew, n_ff=32) for skew in (0.0, 0.5)
    )

    def preference(path: Path) -> float:
        router = next(t.data for t in GGUFReader(path).tensors if t.name == "blk.0.ffn_gate_inp.weight")
        return float(np.std(router[:, 0]))

    assert preference(even.path) == 0
    assert preference(skewed.path) > 0.1


def test_a_model_in_several_files_says_so_in_each(tmp_path: Path) -> None:
    made = make_model(tmp_path / "m.gguf", split_files=3)
    assert [path.name for path in made.paths] == [f"m-0000{n}-of-00003.gguf" for n in (1, 2, 3)]
    readers = [GGUFReader(path) for path in made.paths]
    assert [int(reader.fields["split.no"].parts[-1][0]) for reader in readers] == [0, 1, 2]
    assert sum(len(reader.tensors) for reader in readers) == 3 + 4 * 12


def test_a_dense_model_is_of_the_same_family_without_a_router_or_experts(tmp_path: Path) -> None:
    sizes = {"types": "q8_0", "n_ff": 512, "n_layers": 2}
    made = make_model(tmp_path / "dense.gguf", n_experts=0, n_used=0, **sizes)  # type: ignore[arg-type]
    reader = GGUFReader(made.path)
    fields = {name: field.contents() for name, field in reader.fields.items()}
    assert fields["general.architecture"] == "qwen3"
    assert fields["qwen3.feed_forward_length"] == 512
    assert not [name for name in fields if "expert" in name]
    layer = {tensor.name: tensor for tensor in reader.tensors if tensor.name.startswith("blk.1.")}
    assert {name.split(".")[2] for name in layer} == {
        "attn_norm", "ffn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "attn_q_norm", "attn_k_norm",
        "ffn_gate", "ffn_up", "ffn_down",
    }  # fmt: skip
    for kind, shape in (("gate", (256, 512)), ("up", (256, 512)), ("down", (512, 256))):
        tensor = layer[f"blk.1.ffn_{kind}.weight"]
        assert (tuple(int(size) for size in tensor.shape), tensor.tensor_type.name) == (shape, "Q8_0")
    assert not dequantize(layer["blk.1.ffn_down.weight"].data, GGMLQuantizationType.Q8_0)[0].any()
    assert made.slice_bytes == ({}, {})
    moe = GGUFReader(make_model(tmp_path / "moe.gguf", **sizes).path)  # type: ignore[arg-type]
    of_both = {tensor.name for tensor in moe.tensors if "exps" not in tensor.name and "gate_inp" not in tensor.name}
    assert of_both == {tensor.name for tensor in reader.tensors if not tensor.name.split(".")[2:3] or
                       tensor.name.split(".")[2] not in ("ffn_gate", "ffn_up", "ffn_down")}  # fmt: skip


def test_a_dense_model_has_the_same_bytes_again_and_says_nothing_twice(tmp_path: Path) -> None:
    first, again = (
        make_model(tmp_path / name, types="q4_0", n_layers=2, n_experts=0, n_used=0) for name in ("a.gguf", "b.gguf")
    )
    assert digest(first.path) == digest(again.path)
    networks = [tensor.data.tobytes() for tensor in GGUFReader(first.path).tensors if tensor.name.startswith("blk.")
                and tensor.name.split(".")[2] in ("ffn_gate", "ffn_up", "ffn_down")]  # fmt: skip
    assert len(set(networks)) == len(networks) == 6


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"types": "q9_9"}, "no random weights of type 'q9_9'"),
        ({"types": "q4_k"}, "rows of 128 values do not fit Q4_K"),
        ({"n_used": 17}, "n_used 17 of 16 experts"),
        ({"n_used": 0}, "n_used 0 of 16 experts"),
        ({"n_experts": 0}, "n_used 4 of 0 experts"),
        ({"n_experts": -1, "n_used": -1}, "n_experts at least 0"),
        ({"n_experts": 0, "n_used": 0, "skew": 0.5}, "a dense model has neither skew"),
        ({"n_experts": 0, "n_used": 0, "merged_gate_up": True}, "nor merged experts"),
        ({"n_embd": 100}, "n_embd 100"),
        ({"split_files": 1000}, "1000 files for"),
        ({"n_layers": 0}, "at least 1"),
    ],
)
def test_sizes_that_do_not_fit_together_are_refused(tmp_path: Path, wrong: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        make_model(tmp_path / "m.gguf", **wrong)  # type: ignore[arg-type]
