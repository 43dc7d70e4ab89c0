"""Reading GGUF heads: the same facts as the gguf package, and one clear sentence for everything that is wrong."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from gguf import GGUFReader
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from boardbench.errors import InputError
from boardbench.moe.expert_layout import read_model
from boardbench.moe.gguf_file import read_gguf
from boardbench.moe.make_model import make_model


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("small") / "m.gguf"
    return make_model(path, types="q8_0", n_embd=64, n_ff=32, n_layers=2, n_experts=4, n_used=2).path


def edited(source: Path, target: Path, old: bytes, new: bytes) -> Path:
    data = source.read_bytes()
    assert data.count(old) >= 1
    target.write_bytes(data.replace(old, new, 1))
    return target


def outcome(path: Path) -> str:
    """What reading says that is wrong; empty if nothing is."""
    try:
        read_model(path)
    except InputError as error:
        return str(error)
    return ""


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def test_tensors_and_metadata_are_what_the_gguf_package_reads(small: Path) -> None:
    mine, theirs = read_gguf(small), GGUFReader(small)
    assert {name: (one.offset, one.n_bytes, one.type_name, list(one.shape)) for name, one in mine.tensors.items()} == {
        one.name: (int(one.data_offset), int(one.n_bytes), one.tensor_type.name, [int(n) for n in one.shape])
        for one in theirs.tensors
    }
    assert mine.metadata["qwen3moe.expert_count"] == 4
    assert set(mine.metadata) == {name for name in theirs.fields if not name.startswith("GGUF.")}


def test_the_layout_of_experts(tmp_path: Path) -> None:
    types = [{"gate": "q4_k", "up": "q4_k", "down": "q6_k"}, "q8_0"]
    made = make_model(tmp_path / "m.gguf", types=types, n_ff=256, n_layers=3, n_experts=8, n_used=2)
    model = read_model(made.path)
    assert (model.architecture, model.experts, model.used, list(model.layers)) == ("qwen3moe", 8, 2, [0, 1, 2])
    assert tuple(model.unit_bytes().values()) == made.unit_bytes
    assert model.token_bytes == 2 * sum(made.unit_bytes)
    assert model.expert_bytes == 8 * sum(made.unit_bytes)
    data = made.path.read_bytes()
    down = next(t for t in GGUFReader(made.path).tensors if t.name == "blk.1.ffn_down_exps.weight")
    one = model.layers[1]["down"]
    assert data[one.offset + 5 * one.slice_bytes :][: one.slice_bytes] == down.data[5].tobytes()
    assert "blk.0.ffn_gate_inp.weight" in model.extras


def test_merged_gate_and_up_is_a_unit_of_two_slices(tmp_path: Path) -> None:
    made = make_model(tmp_path / "m.gguf", merged_gate_up=True)
    model = read_model(made.path)
    assert set(model.layers[0]) == {"gate_up", "down"}
    assert tuple(model.unit_bytes().values()) == made.unit_bytes


@pytest.mark.parametrize("named", [0, 1, 2])
def test_all_shards_are_read_whichever_is_named(tmp_path: Path, named: int) -> None:
    made = make_model(tmp_path / "m.gguf", split_files=3)
    whole = make_model(tmp_path / "w.gguf")
    model = read_model(made.paths[named])
    assert model.files == made.paths
    assert model.unit_bytes() == read_model(whole.path).unit_bytes()
    assert model.parameters == read_model(whole.path).parameters


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    made = make_model(tmp_path / "m.gguf", split_files=3)
    made.paths[1].unlink()
    with pytest.raises(InputError, match=r"m-00002-of-00003\.gguf: shard 2 of 3 is missing"):
        read_model(made.path)


def test_a_shard_under_another_name_is_refused(tmp_path: Path) -> None:
    made = make_model(tmp_path / "m.gguf", split_files=2)
    renamed = made.paths[0].rename(tmp_path / "mine.gguf")
    with pytest.raises(InputError, match="one of 2 shards, but its name"):
        read_model(renamed)


def test_a_shard_in_the_place_of_another_is_refused(tmp_path: Path) -> None:
    made = make_model(tmp_path / "m.gguf", split_files=3)
    made.paths[2].write_bytes(made.paths[1].read_bytes())
    with pytest.raises(InputError, match="not shard 3 of 3 by its metadata"):
        read_model(made.path)


def test_a_dense_model_is_said_to_be_one(small: Path, tmp_path: Path) -> None:
    data = small.read_bytes()
    for layer in (0, 1):
        for kind in ("gate", "up", "down"):
            data = data.replace(
                f"blk.{layer}.ffn_{kind}_exps.weight".encode(), f"blk.{layer}.ffn_{kind}_dens.weight".encode()
            )
    dense = tmp_path / "dense.gguf"
    dense.write_bytes(data)
    with pytest.raises(InputError, match="a dense model: it has no experts"):
        read_model(dense)


def test_an_unknown_tensor_type_is_named_with_its_tensor(small: Path, tmp_path: Path) -> None:
    name = text("blk.1.ffn_up_exps.weight")
    head = name + struct.pack("<IQQQI", 3, 64, 32, 4, 8)
    path = edited(small, tmp_path / "t.gguf", head, name + struct.pack("<IQQQI", 3, 64, 32, 4, 153))
    assert read_gguf(path).tensors["blk.1.ffn_up_exps.weight"].type_name == "type 153"
    with pytest.raises(
        InputError, match=r"t\.gguf: tensor 'blk\.1\.ffn_up_exps\.weight' has the unknown type number 153"
    ):
        read_model(path)


def test_an_expert_tensor_of_an_unknown_kind_is_refused(small: Path, tmp_path: Path) -> None:
    path = edited(small, tmp_path / "k.gguf", b"blk.1.ffn_up_exps.weight", b"blk.1.ffn_xy_exps.weight")
    with pytest.raises(InputError, match=r"'blk\.1\.ffn_xy_exps\.weight' is of an unknown kind"):
        read_model(path)


@pytest.mark.parametrize(("used", "works"), [(1, True), (4, True), (0, False), (5, False)])
def test_an_override_of_the_experts_used_is_checked_and_kept(small: Path, used: int, works: bool) -> None:
    if works:
        model = read_model(small, used)
        assert (model.used, model.used_in_file) == (used, 2)
    else:
        with pytest.raises(InputError, match=f"{used} experts a token"):
            read_model(small, used)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (b"GGUF\x03", b"GGUG\x03", "not a GGUF file"),
        (b"GGUF\x03", b"GGUF\x01", "GGUF version 1 is not supported"),
        (b"GGUF\x03\0\0\0", b"GGUF\0\0\0\x03", "a big-endian file is not supported"),
        (text("qwen3moe.expert_count") + b"\x04\0\0\0\x04", text("qwen3moe.expert_count") + b"\x04\0\0\0\x05",
         "has the shape .* but a layer has 5 experts"),
        (text("qwen3moe.expert_used_count") + b"\x04\0\0\0\x02", text("qwen3moe.expert_used_count") + b"\x04\0\0\0\x09",
         "is 9, not 1 to 4 experts"),
        (text("qwen3moe.expert_count") + b"\x04", text("qwen3moe.expert_count") + b"\x4d", "value type 77"),
        (b"blk.1.attn_norm.weight", b"blk.0.attn_norm.weight", "is there twice"),
    ],
)  # fmt: skip
def test_a_bad_file_is_told_in_one_sentence(small: Path, tmp_path: Path, old: bytes, new: bytes, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        read_model(edited(small, tmp_path / "bad.gguf", old, new))
    assert "bad.gguf" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_was_cut_off_anywhere_is_told_so(small: Path, tmp_path: Path) -> None:
    data = small.read_bytes()
    path = tmp_path / "cut.gguf"
    for length in (0, 3, 20, 24, 100, 1000, 9000, len(data) // 2, len(data) - 32):
        path.write_bytes(data[:length])
        with pytest.raises(InputError):
            read_model(path)


def test_a_missing_file_and_a_folder_are_told_so(tmp_path: Path) -> None:
    for path in (tmp_path / "none.gguf", tmp_path):
        with pytest.raises(InputError, match="cannot read the model"):
            read_gguf(path)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=400))
@example(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("a") + struct.pack("<IIQ", 9, 8, 1 << 60))
@example(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("a") + struct.pack("<IIQ", 9, 9, 1 << 23) + bytes(200))
@example(b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 1 << 60) + bytes(100))
def test_any_bytes_give_facts_or_an_error(tmp_path: Path, tail: bytes) -> None:
    path = tmp_path / "any.gguf"
    for data in (tail, b"GGUF" + struct.pack("<I", 3) + tail):
        path.write_bytes(data)
        assert "\n" not in outcome(path)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_file_with_changed_bytes_gives_facts_or_an_error(small: Path, tmp_path: Path, data: st.DataObject) -> None:
    content = bytearray(small.read_bytes()[: 1 << 16])
    head = min(len(content), 12000)
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(4, head - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path / "changed.gguf"
    path.write_bytes(content + bytes(small.stat().st_size - len(content)))
    assert outcome(path) == "" or path.name in outcome(path)
