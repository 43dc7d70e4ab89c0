"""Where a model's experts lie: one unit is one layer's one expert, made of its slices in two or three tensors."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import InputError
from .gguf_file import GgufFile, Tensor, read_gguf

PAGE = 4096
_SHARD = re.compile(r"^(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf$")
_WEIGHT = re.compile(r"^blk\.(?P<layer>\d{1,6})\.ffn_(?P<kind>gate|up|down|gate_up)_exps\.weight$")
_INDEXED = re.compile(r"^blk\.\d{1,6}\.(ffn_\w*exps\.|exp_probs_b|ffn_gate_inp\.|ffn_gate_tid2eid)")
_WHOLE_SETS = ({"gate", "up", "down"}, {"gate_up", "down"}, {"up", "down"})


@dataclass(frozen=True)
class ExpertTensor:
    """One kind's tensor of a layer; slice e starts at `offset + e * slice_bytes` of `file`."""

    name: str
    file: Path
    type_name: str
    offset: int
    slice_bytes: int

    @property
    def page_aligned(self) -> bool:
        """True if every slice starts and ends on a page of 4 KiB."""
        return self.offset % PAGE == 0 and self.slice_bytes % PAGE == 0


@dataclass(frozen=True)
class MoeModel:
    """A mixture-of-experts model: `layers[l][kind]` for each layer that has experts, by its true number.

    `tensor_bytes` and `parameters` are sums over all tensors (None if a type is not known); they tell models and
    quantizations apart. `extras`: tensors indexed by expert that are no expert weights (router, biases, scales).
    """

    path: Path
    files: tuple[Path, ...]
    architecture: str
    name: str | None
    block_count: int
    experts: int
    used: int
    used_in_file: int
    layers: Mapping[int, Mapping[str, ExpertTensor]]
    tensor_bytes: int | None
    parameters: int
    alignment: int
    extras: tuple[str, ...]

    def unit_bytes(self) -> dict[int, int]:
        """Bytes of one expert, all its slices, by layer."""
        return {layer: sum(one.slice_bytes for one in kinds.values()) for layer, kinds in self.layers.items()}

    @property
    def expert_bytes(self) -> int:
        """Bytes of all experts."""
        return sum(self.unit_bytes().values()) * self.experts

    @property
    def token_bytes(self) -> int:
        """The working set of a token: bytes of the units that one token uses."""
        return sum(self.unit_bytes().values()) * self.used


def read_model(path: Path, used: int | None = None) -> MoeModel:
    """Read a model and all its shards (any shard may be named). `used` overrides how many experts a token uses.

    Errors: `InputError` if a file is bad, a shard is missing, the model is dense, or an expert tensor is of an unknown
    kind or type.
    """
    files = _with_shards(read_gguf(path))
    tensors = [tensor for file in files for tensor in file.tensors.values()]
    first = files[0]
    architecture = first.text("general.architecture")
    if not architecture:
        raise InputError("the model names no architecture", where=str(first.path))
    experts = _count(first, f"{architecture}.expert_count")
    layers = _layers(tensors, experts, path)
    if not layers:
        raise InputError(
            "a dense model: it has no experts", where=str(path), advice="an expert cache has nothing to do here"
        )
    in_file = _used(first, architecture, experts or 0)
    sizes = [tensor.n_bytes for tensor in tensors]
    return MoeModel(
        path=path,
        files=tuple(file.path for file in files),
        architecture=architecture,
        name=first.text("general.name"),
        block_count=_count(first, f"{architecture}.block_count") or max(layers) + 1,
        experts=experts or 0,
        used=in_file if used is None else _override(used, experts or 0),
        used_in_file=in_file,
        layers=layers,
        tensor_bytes=None if None in sizes else sum(size for size in sizes if size is not None),
        parameters=sum(_product(tensor.shape) for tensor in tensors),
        alignment=first.alignment,
        extras=tuple(one.name for one in tensors if _INDEXED.match(one.name) and not _WEIGHT.match(one.name)),
    )


def _product(shape: Sequence[int]) -> int:
    result = 1
    for size in shape:
        result *= size
    return result


def _count(file: GgufFile, key: str) -> int | None:
    value = file.whole_number(key)
    if value is not None and not 0 <= value < 1 << 20:
        raise InputError(f"metadata '{key}' is {value}", where=str(file.path))
    return value


def _used(file: GgufFile, architecture: str, experts: int) -> int:
    key = f"{architecture}.expert_used_count"
    value = file.metadata.get(key)
    if isinstance(value, tuple):
        # Some architectures give one number for each layer; the most that a token can use bounds the working set.
        counts = [one for one in value if isinstance(one, int) and not isinstance(one, bool)]
        value = max(counts, default=0)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= experts:
        raise InputError(f"metadata '{key}' is {value!r}, not 1 to {experts} experts", where=str(file.path))
    return value


def _override(used: int, experts: int) -> int:
    if not 1 <= used <= experts:
        raise InputError(f"{used} experts a token, but a layer has {experts}", advice=f"use 1 to {experts}")
    return used


def _layers(tensors: Iterable[Tensor], experts: int | None, path: Path) -> dict[int, dict[str, ExpertTensor]]:
    layers: dict[int, dict[str, ExpertTensor]] = {}
    for tensor in tensors:
        match = _WEIGHT.match(tensor.name)
        if match is None:
            if re.match(r"^blk\.\d+\.ffn_\w*_exps\.weight$", tensor.name):
                raise InputError(f"expert tensor '{tensor.name}' is of an unknown kind", where=str(tensor.file))
            continue
        layers.setdefault(int(match["layer"]), {})[match["kind"]] = _expert_tensor(tensor, experts)
    for layer, kinds in layers.items():
        if set(kinds) not in _WHOLE_SETS:
            there = ", ".join(sorted(kinds))
            raise InputError(f"layer {layer} has only the expert tensors {there}", where=str(path))
    return dict(sorted(layers.items()))


def _expert_tensor(tensor: Tensor, experts: int | None) -> ExpertTensor:
    if tensor.n_bytes is None:
        raise InputError(
            f"tensor '{tensor.name}' has the unknown type number {tensor.type_number}",
            where=str(tensor.file),
            advice="install a newer gguf package",
        )
    if not experts or len(tensor.shape) != 3 or tensor.shape[2] != experts:
        raise InputError(
            f"tensor '{tensor.name}' has the shape {list(tensor.shape)}, but a layer has {experts or 0} experts",
            where=str(tensor.file),
        )
    return ExpertTensor(tensor.name, tensor.file, tensor.type_name, tensor.offset, tensor.n_bytes // experts)


def _with_shards(file: GgufFile) -> list[GgufFile]:
    """All files of the model, in order. Names count from 1, `split.no` from 0; `split.tensors.count` is the total."""
    count = _count(file, "split.count") or 1
    if count == 1:
        return [file]
    match = _SHARD.match(file.path.name)
    if match is None or int(match["count"]) != count:
        raise InputError(
            f"one of {count} shards, but its name does not end in -NNNNN-of-{count:05}.gguf",
            where=str(file.path),
            advice="give it back the name that it was published under",
        )
    shards = []
    for number in range(count):
        path = file.path.with_name(f"{match['stem']}-{number + 1:05}-of-{count:05}.gguf")
        if not path.is_file():
            raise InputError(f"shard {number + 1} of {count} is missing", where=str(path), advice="fetch all shards")
        shard = file if path == file.path else read_gguf(path)
        if _count(shard, "split.no") != number or _count(shard, "split.count") != count:
            raise InputError(f"not shard {number + 1} of {count} by its metadata", where=str(path))
        shards.append(shard)
    _check_shards(shards)
    return shards


def _check_shards(shards: Sequence[GgufFile]) -> None:
    names = [name for shard in shards for name in shard.tensors]
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"tensor '{twice}' is in two shards", where=str(shards[0].path))
    promised = _count(shards[0], "split.tensors.count")
    if promised is not None and promised != len(names):
        raise InputError(
            f"{promised} tensors promised, {len(names)} in the {len(shards)} shards", where=str(shards[0].path)
        )
