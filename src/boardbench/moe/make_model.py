"""Make a mixture-of-experts model with random weights: a GGUF that stock llama.cpp loads, of any size.

Or a dense one of the same family, for controls: what helps experts must not change it.

For tests and timed claims: the file is deterministic (same arguments, same bytes), every slice differs from every
other, and it is written slice by slice, so a model of many GB needs no memory. Weights are random but sane: greedy
text is not one token for ever. Nothing can be learned from what such a model says.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, LlamaFileType

from ..errors import InputError
from .random_blocks import Bytes, random_rows, row_bytes, tensor_type
from .vocabulary import CHAT_TEMPLATE, small_vocabulary

HEAD = 64
SEPARATE_ARCH = "qwen3moe"
DENSE_ARCH = "qwen3"
# Of the architectures that llama.cpp loads merged gate and up experts for, the one closest to a plain transformer.
MERGED_ARCH = "granite_swa"
# Standard deviation over experts of the router's scores that follow the token.
ROUTER_SPREAD = 3.0
LayerTypes = str | Mapping[str, str]

logging.getLogger("gguf.gguf_writer").setLevel(logging.WARNING)


@dataclass(frozen=True)
class MadeModel:
    """What was written: the files in order (the first is the one to load) and the sizes that tests ask for."""

    paths: tuple[Path, ...]
    bytes_total: int
    slice_bytes: tuple[Mapping[str, int], ...]

    @property
    def path(self) -> Path:
        """The file to load; llama.cpp finds the other shards by its name."""
        return self.paths[0]

    @property
    def unit_bytes(self) -> tuple[int, ...]:
        """Bytes of one expert (all its slices) by layer."""
        return tuple(sum(kinds.values()) for kinds in self.slice_bytes)


@dataclass(frozen=True)
class _Tensor:
    name: str
    kind: GGMLQuantizationType
    shape: tuple[int, ...]
    rms: float
    # Experts come one by one; everything else is one piece.
    pieces: int = 1
    constant: float | None = None
    first_column: float | Sequence[float] | None = None
    first_row_zero: bool = False

    @property
    def row_count(self) -> int:
        return math.prod(self.shape[:-1])

    @property
    def n_bytes(self) -> int:
        return self.row_count * row_bytes(self.kind, self.shape[-1])


def make_model(
    path: Path,
    *,
    types: LayerTypes | Sequence[LayerTypes] = "f16",
    n_embd: int = 256,
    n_ff: int = 128,
    n_layers: int = 4,
    n_experts: int = 16,
    n_used: int = 4,
    n_ctx: int = 4096,
    n_heads: int | None = None,
    seed: int = 1,
    skew: float = 0.0,
    merged_gate_up: bool = False,
    split_files: int = 1,
    alignment: int = 32,
) -> MadeModel:
    """Write the model to `path` (shards get llama.cpp's names beside it) and say what lies where.

    `types`: the experts' tensor type (`f16 q8_0 q4_0 mxfp4 q4_k q6_k` ...), or `{"gate": .., "up": .., "down": ..}`,
    or a sequence of these that layers take in turn. `n_ff` is one expert's width: a slice has `n_embd * n_ff` values.
    `skew`: how uneven the use of experts is, as the standard deviation over experts of a fixed preference, in units
    of the part of the router's scores that follows the token: 0 even; 0.2 gives 128 experts a heat of about 6.6 of
    7 bits, as real models have. `merged_gate_up`: one tensor `ffn_gate_up_exps` (another architecture).
    `split_files`: into how many files. `n_experts` 0 (with `n_used` 0): a dense model, whose layers have one network
    of width `n_ff` and no router; `slice_bytes` has nothing for them. Errors: `InputError` for sizes that do not fit
    together.
    """
    _check(n_embd, n_ff, n_layers, n_experts, n_used, split_files)
    if n_experts == 0 and (skew or merged_gate_up):
        raise InputError("a dense model has neither skew nor merged experts", advice="n_experts above 0, or neither")
    heads = n_heads or n_embd // HEAD
    by_layer = _layer_types(types, n_layers)
    tensors = list(_tensors(by_layer, n_embd, n_ff, n_experts, heads, seed, skew, merged_gate_up))
    if split_files > len(tensors):
        raise InputError(f"{split_files} files for {len(tensors)} tensors", advice="split into fewer files")
    per_file = -(-len(tensors) // split_files) if split_files > 1 else 0
    arch = DENSE_ARCH if n_experts == 0 else MERGED_ARCH if merged_gate_up else SEPARATE_ARCH
    writer = GGUFWriter(path, arch, split_max_tensors=per_file)
    _metadata(writer, n_embd, n_ff, n_layers, n_experts, n_used, n_ctx, heads, alignment)
    if merged_gate_up:
        _metadata_of_merged(writer, n_layers)
    for tensor in tensors:
        writer.add_tensor_info(tensor.name, tensor.shape, np.dtype(np.float32), tensor.n_bytes, raw_dtype=tensor.kind)
    paths = tuple(writer.format_shard_names(path))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    _write_tensors(writer, tensors, per_file or len(tensors), seed)
    writer.close()
    slices = tuple(_slice_bytes(tensors, layer, n_experts) for layer in range(n_layers))
    return MadeModel(paths, sum(file.stat().st_size for file in paths), slices)


def _check(n_embd: int, n_ff: int, n_layers: int, n_experts: int, n_used: int, split_files: int) -> None:
    if n_embd % HEAD or n_embd < HEAD:
        raise InputError(f"n_embd {n_embd} is not made of heads of {HEAD}", advice=f"use a multiple of {HEAD}")
    if min(n_ff, n_layers, split_files) < 1 or n_experts < 0:
        raise InputError("n_ff, n_layers and split_files must be at least 1, n_experts at least 0")
    if not min(1, n_experts) <= n_used <= n_experts:
        raise InputError(f"n_used {n_used} of {n_experts} experts", advice="use 1 to n_experts, 0 for a dense model")


def _layer_types(types: LayerTypes | Sequence[LayerTypes], n_layers: int) -> list[dict[str, GGMLQuantizationType]]:
    turns = [types] if isinstance(types, str | Mapping) else list(types)
    made = []
    for layer in range(n_layers):
        given = turns[layer % len(turns)]
        by_kind = dict.fromkeys(("gate", "up", "down"), given) if isinstance(given, str) else given
        made.append({kind: tensor_type(by_kind[kind]) for kind in ("gate", "up", "down")})
    return made


def _tensors(
    layer_types: list[dict[str, GGMLQuantizationType]],
    n_embd: int,
    n_ff: int,
    n_experts: int,
    n_heads: int,
    seed: int,
    skew: float,
    merged: bool,
) -> Iterator[_Tensor]:
    """All tensors in file order.

    Channel 0 of the residual stream is a constant that nothing writes to (first row zero) and only the experts'
    norm lets through, so a router's first column is a fixed preference for each expert.
    """
    vocabulary = len(small_vocabulary().tokens)
    f16, f32 = GGMLQuantizationType.F16, GGMLQuantizationType.F32
    constant = _constant(n_embd)
    yield _Tensor("token_embd.weight", f32, (vocabulary, n_embd), 1.0, first_column=constant)
    yield _Tensor("output_norm.weight", f32, (n_embd,), 0.0, constant=1.0, first_column=0.0)
    yield _Tensor("output.weight", f16, (vocabulary, n_embd), 2.0 / math.sqrt(n_embd))
    width, kv_width = n_heads * HEAD, max(1, n_heads // 2) * HEAD
    sane = 1.0 / math.sqrt(n_embd)
    for layer, kinds in enumerate(layer_types):
        block = f"blk.{layer}."
        yield _Tensor(block + "attn_norm.weight", f32, (n_embd,), 0.0, constant=1.0, first_column=0.0)
        yield _Tensor(block + "ffn_norm.weight", f32, (n_embd,), 0.0, constant=1.0)
        yield _Tensor(block + "attn_q.weight", f16, (width, n_embd), 2.0 * sane)
        yield _Tensor(block + "attn_k.weight", f16, (kv_width, n_embd), 2.0 * sane)
        yield _Tensor(block + "attn_v.weight", f16, (kv_width, n_embd), sane)
        out_rms = 1.0 / math.sqrt(width)
        yield _Tensor(block + "attn_output.weight", f16, (n_embd, width), out_rms, first_row_zero=True)
        if merged:
            yield _Tensor(block + "attn_sinks.weight", f32, (n_heads,), 0.0, constant=0.0)
        else:
            # Sharp attention: it looks at a few places, so the text depends on where they are and seldom loops.
            yield _Tensor(block + "attn_q_norm.weight", f32, (HEAD,), 0.0, constant=2.0)
            yield _Tensor(block + "attn_k_norm.weight", f32, (HEAD,), 0.0, constant=2.0)
        if n_experts:
            yield _router(block, layer, n_embd, n_experts, seed, skew)
        yield from _feed_forward(block, kinds, n_embd, n_ff, n_experts, merged)


def _router(block: str, layer: int, n_embd: int, n_experts: int, seed: int, skew: float) -> _Tensor:
    taste = np.random.default_rng([seed, layer]).standard_normal(n_experts)
    # What the norm before the router divides by: the embedding, channel 0, and what each layer before added.
    stream_rms = math.sqrt(1.25 + 1.2 * (layer + 0.8))
    constant = _constant(n_embd)
    column = tuple(float(one) for one in ROUTER_SPREAD * skew * stream_rms / constant * taste)
    shape, rms = (n_experts, n_embd), ROUTER_SPREAD * (1.0 / math.sqrt(n_embd))
    return _Tensor(block + "ffn_gate_inp.weight", GGMLQuantizationType.F32, shape, rms, first_column=column)


def _constant(n_embd: int) -> float:
    """The value of channel 0 of the residual stream."""
    return 0.5 * math.sqrt(n_embd)


def _feed_forward(
    block: str, kinds: Mapping[str, GGMLQuantizationType], n_embd: int, n_ff: int, n_experts: int, merged: bool
) -> Iterator[_Tensor]:
    """The experts of a layer; of a dense one its one network."""
    into, out = 1.0 / math.sqrt(n_embd), 1.0 / math.sqrt(n_ff)
    many, suffix = ((n_experts,), "_exps") if n_experts else ((), "")
    pieces = max(1, n_experts)
    if merged:
        shape = (*many, 2 * n_ff, n_embd)
        yield _Tensor(block + "ffn_gate_up_exps.weight", kinds["gate"], shape, into, pieces=pieces)
    else:
        for name in ("gate", "up"):
            shape = (*many, n_ff, n_embd)
            yield _Tensor(f"{block}ffn_{name}{suffix}.weight", kinds[name], shape, into, pieces=pieces)
    shape = (*many, n_embd, n_ff)
    yield _Tensor(f"{block}ffn_down{suffix}.weight", kinds["down"], shape, out, pieces=pieces, first_row_zero=True)


def _metadata(
    writer: GGUFWriter,
    n_embd: int,
    n_ff: int,
    n_layers: int,
    n_experts: int,
    n_used: int,
    n_ctx: int,
    n_heads: int,
    alignment: int,
) -> None:
    vocabulary = small_vocabulary()
    if alignment != 32:
        writer.add_custom_alignment(alignment)
    writer.add_name(f"random-moe-{n_layers}x{n_experts}" if n_experts else f"random-dense-{n_layers}")
    writer.add_context_length(n_ctx)
    writer.add_embedding_length(n_embd)
    writer.add_block_count(n_layers)
    writer.add_feed_forward_length(n_ff)
    if n_experts:
        writer.add_expert_feed_forward_length(n_ff)
    writer.add_head_count(n_heads)
    writer.add_head_count_kv(max(1, n_heads // 2))
    writer.add_key_length(HEAD)
    writer.add_value_length(HEAD)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_dimension_count(HEAD)
    writer.add_rope_freq_base(10000.0)
    if n_experts:
        writer.add_expert_count(n_experts)
        writer.add_expert_used_count(n_used)
    writer.add_file_type(LlamaFileType.MOSTLY_F16)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(list(vocabulary.tokens))
    writer.add_token_types(list(vocabulary.types))
    writer.add_token_merges(list(vocabulary.merges))
    writer.add_bos_token_id(vocabulary.bos)
    writer.add_eos_token_id(vocabulary.eos)
    writer.add_pad_token_id(vocabulary.bos)
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)


def _metadata_of_merged(writer: GGUFWriter, n_layers: int) -> None:
    writer.add_logit_scale(1.0)
    writer.add_sliding_window(4096)
    writer.add_sliding_window_pattern([layer % 2 == 0 for layer in range(n_layers)])


def _write_tensors(writer: GGUFWriter, tensors: Sequence[_Tensor], per_file: int, seed: int) -> None:
    writer.write_ti_data_to_file()
    if writer.fout is None:
        raise ValueError("the writer has no open file")
    for index, tensor in enumerate(tensors):
        file = writer.fout[index // per_file]
        writer.write_padding(file, file.tell())
        _write_pieces(file, tensor, np.random.Generator(np.random.SFC64([seed, index])))
        writer.write_padding(file, tensor.n_bytes)


def _write_pieces(file: IO[bytes], tensor: _Tensor, rng: np.random.Generator) -> None:
    rows = tensor.row_count // tensor.pieces
    for _ in range(tensor.pieces):
        data = _piece(tensor, rng, rows)
        if tensor.first_row_zero:
            # Zero bytes are zero values in every type here: the scale is zero (or the quants are).
            data[0] = 0
        file.write(data.tobytes())


def _piece(tensor: _Tensor, rng: np.random.Generator, rows: int) -> Bytes:
    width = tensor.shape[-1]
    if tensor.constant is not None:
        values = np.full((rows, width), tensor.constant, dtype=np.float32)
    elif tensor.first_column is None:
        return random_rows(rng, tensor.kind, rows, width, tensor.rms)
    else:
        values = random_rows(rng, GGMLQuantizationType.F32, rows, width, tensor.rms).view(np.float32)
    if tensor.first_column is not None:
        values[:, 0] = tensor.first_column
    return values.view(np.uint8).reshape(rows, -1)


def _slice_bytes(tensors: Sequence[_Tensor], layer: int, n_experts: int) -> dict[str, int]:
    prefix, suffix = f"blk.{layer}.ffn_", "_exps.weight"
    return {
        tensor.name[len(prefix) : -len(suffix)]: tensor.n_bytes // n_experts
        for tensor in tensors
        if tensor.name.startswith(prefix) and tensor.name.endswith(suffix)
    }
