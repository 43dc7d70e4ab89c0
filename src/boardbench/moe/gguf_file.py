"""What is in a GGUF file: metadata, tensors and where they lie. Reads the head of the file only, never a weight.

Any bytes give either facts or one `InputError` that names the file and the fault, in bounded memory: lengths are
checked against the file before anything is read, long arrays (the vocabulary) are walked over and not kept.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

from ..errors import InputError

MAGIC = b"GGUF"
DEFAULT_ALIGNMENT = 32
_LONGEST_KEY = 65535
_LONGEST_TEXT_KEPT = 65536
_LONGEST_ARRAY_KEPT = 4096
_MOST_STRINGS = 1 << 24
_MOST_DIMENSIONS = 4
_DEEPEST_ARRAY = 2
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9

Scalar = int | float | bool | str
Value = Scalar | tuple[Scalar, ...] | None


@dataclass(frozen=True)
class Tensor:
    """A tensor's place: `shape` innermost first as in the file, `offset` in bytes from the start of `file`."""

    name: str
    file: Path
    type_number: int
    shape: tuple[int, ...]
    offset: int
    n_bytes: int | None
    """None where the type's number is not known here."""

    @property
    def type_name(self) -> str:
        """`Q4_K`, or `type 153` for a number that is not known here."""
        kind = _known_type(self.type_number)
        return kind.name if kind is not None else f"type {self.type_number}"


@dataclass(frozen=True)
class GgufFile:
    """One file: metadata (None for a value too long to keep), tensors by name in file order, alignment in bytes."""

    path: Path
    version: int
    metadata: Mapping[str, Value]
    tensors: Mapping[str, Tensor]
    alignment: int

    def whole_number(self, key: str) -> int | None:
        """The metadata value as a whole number, None if absent; `InputError` if it is something else."""
        value = self.metadata.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            raise InputError(f"metadata '{key}' is {value!r}, not a whole number", where=str(self.path))
        return value

    def text(self, key: str) -> str | None:
        """The metadata value as text, None if absent; `InputError` if it is something else."""
        value = self.metadata.get(key)
        if value is None:
            return None
        if not isinstance(value, str):
            raise InputError(f"metadata '{key}' is {value!r}, not text", where=str(self.path))
        return value


def read_gguf(path: Path) -> GgufFile:
    """Read the head of `path`. Errors: `InputError`, one sentence, for a file that is missing, torn or not GGUF."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(0)
            return _read(_Head(file, size, path))
    except OSError as error:
        raise InputError(f"cannot read the model: {error.strerror or error}", where=str(path)) from error


class _Head:
    """A cursor over the head that refuses to go beyond the end of the file."""

    def __init__(self, file: BinaryIO, size: int, path: Path) -> None:
        self._file = file
        self._size = size
        self._at = 0
        self.path = path

    def error(self, what: str) -> InputError:
        """An error that names the file."""
        return InputError(what, where=str(self.path), advice="fetch the model again if it was cut off")

    @property
    def size(self) -> int:
        """Bytes of the whole file."""
        return self._size

    @property
    def at(self) -> int:
        """Bytes from the start."""
        return self._at

    def _advance(self, count: int, what: str) -> None:
        if count > self._size - self._at:
            raise self.error(f"the file ends inside {what} (at byte {self._at:,} of {self._size:,})")
        self._at += count

    def take(self, count: int, what: str) -> bytes:
        """The next `count` bytes."""
        self._advance(count, what)
        data = self._file.read(count)
        if len(data) != count:
            raise self.error(f"the file became shorter while {what} was read")
        return data

    def skip(self, count: int, what: str) -> None:
        """Go on without reading."""
        self._advance(count, what)
        self._file.seek(count, 1)

    def number(self, code: str, what: str) -> int:
        """One little-endian whole number."""
        return int(struct.unpack("<" + code, self.take(struct.calcsize("<" + code), what))[0])

    def text(self, longest: int, what: str) -> str | None:
        """A string; None if it is longer than `longest`, which is then skipped."""
        length = self.number("Q", what)
        if length > longest:
            self.skip(length, what)
            return None
        return self.take(length, what).decode("utf-8", "replace")


def _read(head: _Head) -> GgufFile:
    if head.size < 24 or head.take(4, "the magic") != MAGIC:
        raise InputError("not a GGUF file", where=str(head.path), advice="give a model in llama.cpp's format")
    version = head.number("I", "the version")
    if version not in (2, 3):
        kind = "a big-endian file" if version in (2 << 24, 3 << 24) else f"GGUF version {version}"
        raise InputError(f"{kind} is not supported", where=str(head.path), advice="convert it to GGUF version 3")
    tensor_count = head.number("Q", "the counts")
    pair_count = head.number("Q", "the counts")
    # The shortest entries possible; more than fit are a broken count, found before the loop and not after it.
    if pair_count * 13 + tensor_count * 24 > head.size:
        raise head.error(f"{tensor_count:,} tensors and {pair_count:,} metadata keys do not fit into the file")
    metadata = _metadata(head, pair_count)
    alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if isinstance(alignment, bool) or not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
        raise head.error(f"general.alignment is {alignment!r}, not a power of two")
    entries = [_tensor_entry(head) for _ in range(tensor_count)]
    start = -(-head.at // alignment) * alignment
    tensors: dict[str, Tensor] = {}
    for name, shape, type_number, offset in entries:
        if name in tensors:
            raise head.error(f"tensor '{name}' is there twice")
        tensors[name] = _tensor(head, name, shape, type_number, offset, start, alignment)
    _refuse_overlaps(head, tensors)
    return GgufFile(head.path, version, metadata, tensors, alignment)


def _metadata(head: _Head, count: int) -> dict[str, Value]:
    metadata: dict[str, Value] = {}
    for index in range(count):
        key = head.text(_LONGEST_KEY, f"metadata key {index + 1}")
        if key is None:
            raise head.error(f"metadata key {index + 1} is longer than {_LONGEST_KEY:,} bytes")
        if key in metadata:
            raise head.error(f"metadata key '{key}' is there twice")
        metadata[key] = _value(head, head.number("I", f"'{key}'"), f"'{key}'", 0)
    return metadata


def _value(head: _Head, kind: int, what: str, depth: int) -> Value:
    if kind in _SCALARS:
        return _scalar(head.take(struct.calcsize("<" + _SCALARS[kind]), what), kind)
    if kind == _STRING:
        return head.text(_LONGEST_TEXT_KEPT, what)
    if kind != _ARRAY:
        raise head.error(f"{what} has the value type {kind}, which GGUF does not have")
    if depth >= _DEEPEST_ARRAY:
        raise head.error(f"{what} has arrays nested deeper than {_DEEPEST_ARRAY}")
    return _array(head, what, depth)


def _array(head: _Head, what: str, depth: int) -> Value:
    kind = head.number("I", what)
    count = head.number("Q", what)
    if kind in _SCALARS:
        width = struct.calcsize("<" + _SCALARS[kind])
        if count > _LONGEST_ARRAY_KEPT:
            head.skip(count * width, what)
            return None
        data = head.take(count * width, what)
        return tuple(_scalar(data[at : at + width], kind) for at in range(0, len(data), width))
    if count > _MOST_STRINGS:
        raise head.error(f"{what} is an array of {count:,} entries")
    kept: list[Scalar] = []
    for _ in range(count):
        one = _value(head, kind, what, depth + 1)
        if len(kept) < _LONGEST_ARRAY_KEPT and isinstance(one, str):
            kept.append(one)
    return tuple(kept) if kind == _STRING and len(kept) == count else None


def _scalar(data: bytes, kind: int) -> Scalar:
    value: Scalar = struct.unpack("<" + _SCALARS[kind], data)[0]
    # NaN would not survive JSON, and means nothing here.
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _tensor_entry(head: _Head) -> tuple[str, tuple[int, ...], int, int]:
    name = head.text(_LONGEST_KEY, "a tensor's name")
    if not name:
        raise head.error("a tensor has no name, or one that is far too long")
    what = f"the entry of tensor '{name}'"
    dimensions = head.number("I", what)
    if not 1 <= dimensions <= _MOST_DIMENSIONS:
        raise head.error(f"tensor '{name}' has {dimensions} dimensions")
    shape = tuple(head.number("Q", what) for _ in range(dimensions))
    return name, shape, head.number("I", what), head.number("Q", what)


def _tensor(
    head: _Head, name: str, shape: tuple[int, ...], type_number: int, offset: int, start: int, alignment: int
) -> Tensor:
    if min(shape) < 1 or math.prod(shape) >= 1 << 62:
        raise head.error(f"tensor '{name}' has the shape {list(shape)}")
    if offset % alignment:
        raise head.error(f"tensor '{name}' starts at {offset:,}, not a multiple of {alignment}")
    kind = _known_type(type_number)
    n_bytes = None
    if kind is not None:
        block, width = GGML_QUANT_SIZES[kind]
        if shape[0] % block:
            raise head.error(f"tensor '{name}': rows of {shape[0]} values are not whole blocks of {kind.name}")
        n_bytes = math.prod(shape) // block * width
    if start + offset + (n_bytes or 0) > head.size:
        raise head.error(f"tensor '{name}' ends beyond the file's {head.size:,} bytes")
    return Tensor(name, head.path, type_number, shape, start + offset, n_bytes)


def _known_type(number: int) -> GGMLQuantizationType | None:
    try:
        return GGMLQuantizationType(number)
    except ValueError:
        return None


def _refuse_overlaps(head: _Head, tensors: Mapping[str, Tensor]) -> None:
    end, last = 0, ""
    for tensor in sorted(tensors.values(), key=lambda one: one.offset):
        if tensor.offset < end:
            raise head.error(f"tensors '{last}' and '{tensor.name}' overlap")
        end, last = tensor.offset + (tensor.n_bytes or 0), tensor.name
