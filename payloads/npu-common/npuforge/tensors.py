"""The result blob of an inference: "RKNT" version 2, little-endian.

u32 magic, version, count, dtype (0 native, 1 float32); per tensor 36 bytes: u32 length, u32 n_dims, u32 dims[4],
u32 qnt_type, i32 zero_point, f32 scale; then the data of all tensors in order.
"""

import collections
import struct

MAGIC = int.from_bytes(b"RKNT", "little")
VERSION = 2
NATIVE, FLOAT32 = 0, 1
# Named so on the wire since version 1; peers compare it, so it stays.
FORMAT = "rknn-tensors-v1"

_HEAD = struct.Struct("<4I")
_TENSOR = struct.Struct("<2I4IIif")
_MAX_TENSORS = 256

Tensor = collections.namedtuple("Tensor", "dims qnt_type zero_point scale data")


class BlobError(ValueError):
    """The bytes are no result blob; one sentence."""


# The nine outputs of a YOLOv8 detector at 640 x 640: per stride the boxes, the classes and the sum of the classes.
YOLO_DIMS = tuple((1, channels, side, side) for side in (80, 40, 20) for channels in (64, 80, 1))
YOLO_LENGTHS = tuple(dims[1] * dims[2] * dims[3] for dims in YOLO_DIMS)
YOLO_BYTES = sum(YOLO_LENGTHS)
INPUT_BYTES = 640 * 640 * 3


def header(tensors, dtype=NATIVE):
    """The head of a blob; `tensors` as (length, dims, qnt_type, zero_point, scale)."""
    parts = [_HEAD.pack(MAGIC, VERSION, len(tensors), dtype)]
    for length, dims, qnt_type, zero_point, scale in tensors:
        padded = tuple(dims) + (0,) * (4 - len(dims))
        parts.append(_TENSOR.pack(length, len(dims), *padded, qnt_type, zero_point, scale))
    return b"".join(parts)


def parse(blob):
    """The tensors of a blob, data as views into it. BlobError when it is cut, too long or of another kind."""
    view = memoryview(blob)
    if len(view) < _HEAD.size:
        raise BlobError("the result is shorter than its head")
    magic, version, count, dtype = _HEAD.unpack_from(view)
    if magic != MAGIC or version != VERSION or dtype not in (NATIVE, FLOAT32):
        raise BlobError(f"the result is of another kind: magic {magic:#x}, version {version}, dtype {dtype}")
    at = _HEAD.size + count * _TENSOR.size
    if count > _MAX_TENSORS or at > len(view):
        raise BlobError(f"the result says it has {count} tensors and is too short for them")
    tensors = []
    for index in range(count):
        length, n_dims, *rest = _TENSOR.unpack_from(view, _HEAD.size + index * _TENSOR.size)
        if n_dims > 4 or at + length > len(view):
            raise BlobError(f"tensor {index} of the result is cut short")
        tensors.append(Tensor(tuple(rest[:n_dims]), rest[4], rest[5], rest[6], view[at : at + length]))
        at += length
    if at != len(view):
        raise BlobError(f"{len(view) - at} bytes follow the last tensor of the result")
    return tensors
