"""Random weights straight in the bytes of a tensor type, as fast as the random numbers come.

A quantized block is random bits with its scale fields set, so every block is valid data of its type. The
scale is chosen so that the values have the wanted root mean square (within 1.5 x: some types scale by powers
of two only). Nothing is quantized, so types that have no quantizer here (the K-quants) work too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize
from numpy.typing import NDArray

from ..errors import InputError

Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class _Scale:
    """Where a block's float16 scale lies, and (if it has one) the offset term: where, and its ratio to the scale."""

    at: int
    offset_at: int | None = None
    offset_ratio: float = 0.0


# The ratio puts the mean of the values at 0: half the range of the quants, or minus that where the offset is added.
_SCALES = {
    "Q4_0": _Scale(0),
    "Q4_1": _Scale(0, 2, -7.5),
    "Q5_0": _Scale(0),
    "Q5_1": _Scale(0, 2, -15.5),
    "Q8_0": _Scale(0),
    "Q2_K": _Scale(80, 82, 1.5),
    "Q3_K": _Scale(108),
    "Q4_K": _Scale(0, 2, 7.5),
    "Q5_K": _Scale(0, 2, 15.5),
    "Q6_K": _Scale(208),
    "IQ4_NL": _Scale(0),
    "IQ4_XS": _Scale(0),
}
# Sign, mantissa and two bits of the exponent are random: values over four octaves. Root mean square in units of the
# lowest octave: sqrt(mean of (1 + m)^2) * sqrt(mean of 4^r), r = 0..3.
_OCTAVES_RMS = math.sqrt(7 / 3 * (1 + 4 + 16 + 64) / 4)
_HALF = {"F16": (0x83FF, 10, 15), "BF16": (0x807F, 7, 127)}
TYPES = ("F32", "F16", "BF16", "MXFP4", *_SCALES)


def tensor_type(name: str) -> GGMLQuantizationType:
    """`q4_k` -> the type; `InputError` for a type that random weights cannot be made for."""
    if name.upper() not in TYPES:
        raise InputError(f"no random weights of type '{name}'", advice=f"types: {', '.join(TYPES).lower()}")
    return GGMLQuantizationType[name.upper()]


def row_bytes(kind: GGMLQuantizationType, row: int) -> int:
    """Bytes of a row of `row` values; `InputError` if the type's blocks do not fill it."""
    block, size = GGML_QUANT_SIZES[kind]
    if row % block:
        raise InputError(f"rows of {row} values do not fit {kind.name}", advice=f"use a multiple of {block}")
    return row // block * size


def random_rows(rng: np.random.Generator, kind: GGMLQuantizationType, rows: int, row: int, rms: float) -> Bytes:
    """`rows` x `row` values of about the root mean square `rms`, as the bytes of a tensor: uint8 [rows, row bytes]."""
    width = row_bytes(kind, row)
    if kind.name == "F32":
        values = rng.standard_normal((rows, row), dtype=np.float32) * np.float32(rms)
        return values.view(np.uint8)
    bits = _random_bytes(rng, rows * width)
    if kind.name in _HALF:
        return _half_floats(bits, kind.name, rms).reshape(rows, width)
    blocks = bits.reshape(-1, GGML_QUANT_SIZES[kind][1])
    if kind.name == "MXFP4":
        blocks[:, 0] = np.clip(round(math.log2(rms / _unit_rms(kind))) + 127, 1, 254)
    else:
        _set_scales(blocks, kind, rms / _unit_rms(kind))
    return blocks.reshape(rows, width)


def _random_bytes(rng: np.random.Generator, count: int) -> Bytes:
    words = rng.integers(0, 2**64, size=-(-count // 8), dtype=np.uint64)
    return words.view(np.uint8)[:count]


def _half_floats(bits: Bytes, name: str, rms: float) -> Bytes:
    keep, shift, bias = _HALF[name]
    words = bits.view(np.uint16)
    lowest = max(1, round(math.log2(rms / _OCTAVES_RMS)) + bias)
    exponent = ((words >> shift) & 3) + np.uint16(lowest)
    return ((words & np.uint16(keep)) | (exponent << shift)).astype(np.uint16).view(np.uint8)


def _set_scales(blocks: Bytes, kind: GGMLQuantizationType, scale: float) -> None:
    if kind.name == "Q8_0":
        # Real data never holds -128, and some kernels may take its magnitude in 8 bits.
        quants = blocks[:, 2:]
        quants[quants == 0x80] = 0x81
    where = _SCALES[kind.name]
    blocks[:, where.at : where.at + 2] = np.array([scale], dtype=np.float16).view(np.uint8)
    if where.offset_at is not None:
        offset = np.array([scale * where.offset_ratio], dtype=np.float16).view(np.uint8)
        blocks[:, where.offset_at : where.offset_at + 2] = offset


@cache
def _unit_rms(kind: GGMLQuantizationType) -> float:
    """Root mean square of random blocks whose scale is 1."""
    rng = np.random.Generator(np.random.SFC64(0))
    size = GGML_QUANT_SIZES[kind][1]
    blocks = _random_bytes(rng, 1024 * size).reshape(-1, size)
    if kind.name == "MXFP4":
        blocks[:, 0] = 127
    else:
        _set_scales(blocks, kind, 1.0)
    values = dequantize(blocks, kind).astype(np.float64)
    return float(np.sqrt(np.mean(values**2)))
