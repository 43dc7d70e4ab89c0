#!/usr/bin/env python3
"""Makes the model of the `onnx` backend: small, INT8, of YOLO's shape; and prints its SHA-256.

    make_onnx.py --out FILE

One 1x640x640x3 uint8 image in; nine int8 outputs: boxes (64), classes (80) and their sum (1) at strides 8, 16 and 32.
The weights are random, from a fixed seed, so that the same file comes out everywhere: it is to be computed, not to
find anything. Written as protobuf by hand; ONNX's own package is not needed.
"""

import argparse
import hashlib
import math
import os
import random
import struct
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "npu-common")]

from npuforge.wire import BYTES, encode_varint, field  # noqa: E402

FLOAT, UINT8, INT8 = 1, 2, 3
ATTRIBUTE_INTS = 7
IR_VERSION, OPSET = 8, 13
SEED = 20261130
# The same for every output, and told in the model's metadata.
HEAD_SCALE, HEAD_ZERO_POINT = 1 / 32, 0
BODY_SCALE = 1 / 64
# (name, channels in, channels out, kernel = stride)
BODY = (("stem", 3, 8, 4), ("p3", 8, 16, 2), ("p4", 16, 32, 2), ("p5", 32, 32, 2))
HEADS = (("boxes", 64), ("classes", 80), ("sum", 1))


def _data(number, data):
    return field(number, BYTES) + encode_varint(len(data)) + data


def _text(number, text):
    return _data(number, text.encode())


def _number(number, value):
    return field(number, 0) + encode_varint(value)


def tensor(name, kind, dims, raw):
    """A TensorProto."""
    return b"".join(_number(1, dim) for dim in dims) + _number(2, kind) + _text(8, name) + _data(9, raw)


def node(operator, inputs, output, **ints):
    """A NodeProto with one output; attributes are lists of whole numbers."""
    parts = [_text(1, name) for name in inputs] + [_text(2, output), _text(3, output), _text(4, operator)]
    for name, values in sorted(ints.items()):
        attribute = _text(1, name) + b"".join(_number(8, value) for value in values) + _number(20, ATTRIBUTE_INTS)
        parts.append(_data(5, attribute))
    return b"".join(parts)


def value(name, kind, dims):
    """A ValueInfoProto of a tensor."""
    shape = b"".join(_data(1, _number(1, dim)) for dim in dims)
    return _text(1, name) + _data(2, _data(1, _number(1, kind) + _data(2, shape)))


class Graph:
    """Collects nodes and constants."""

    def __init__(self):
        self.nodes, self.constants, self.outputs = [], [], []
        self._random = random.Random(SEED)

    def constant(self, name, kind, dims, raw):
        """A constant; its name."""
        self.constants.append(tensor(name, kind, dims, raw))
        return name

    def scale(self, name, number):
        """A scalar scale; its name."""
        return self.constant(name, FLOAT, (), struct.pack("<f", number))

    def zero(self, name, kind, number):
        """A scalar zero point; its name."""
        return self.constant(name, kind, (), struct.pack("<b" if kind == INT8 else "<B", number))

    def convolve(self, name, source, source_scale, source_zero, channels, kernel, scale):
        """A quantised convolution whose stride is its kernel; (output, scale, zero point) as names."""
        into, out = channels
        count = into * out * kernel * kernel
        raw = bytes(self._random.getrandbits(8 * count).to_bytes(count, "little"))
        weights = self.constant(name + ".w", INT8, (out, into, kernel, kernel), raw)
        # Random weights of this scale keep the size of what passes through.
        weight_scale = self.scale(name + ".ws", 1 / (74 * math.sqrt(into * kernel * kernel)))
        weight_zero = self.zero(name + ".wz", INT8, 0)
        out_scale, out_zero = self.scale(name + ".s", scale), self.zero(name + ".z", INT8, 0)
        inputs = [source, source_scale, source_zero, weights, weight_scale, weight_zero, out_scale, out_zero]
        self.nodes.append(node("QLinearConv", inputs, name, kernel_shape=[kernel] * 2, strides=[kernel] * 2))
        return name, out_scale, out_zero


def _entry(graph):
    """The image as int8, channels first."""
    graph.nodes.append(node("Transpose", ["image"], "planes", perm=[0, 3, 1, 2]))
    scale, zero = graph.scale("image.s", 1 / 128), graph.zero("image.z", UINT8, 128)
    graph.nodes.append(node("DequantizeLinear", ["planes", scale, zero], "real"))
    signed = graph.zero("signed.z", INT8, 0)
    graph.nodes.append(node("QuantizeLinear", ["real", scale, signed], "signed"))
    return "signed", scale, signed


def make_model():
    """The model's bytes; the same on every call."""
    graph = Graph()
    here, side = _entry(graph), 640
    for name, into, out, kernel in BODY:
        here, side = graph.convolve(name, *here, (into, out), kernel, BODY_SCALE), side // kernel
        if name == "stem":
            continue
        for head, channels in HEADS:
            output, _, _ = graph.convolve(f"{name}.{head}", *here, (out, channels), 1, HEAD_SCALE)
            graph.outputs.append(value(output, INT8, (1, channels, side, side)))
    body = (
        b"".join(_data(1, one) for one in graph.nodes)
        + _text(2, "small-yolo")
        + b"".join(_data(5, one) for one in graph.constants)
        + _data(11, value("image", UINT8, (1, 640, 640, 3)))
        + b"".join(_data(12, one) for one in graph.outputs)
    )
    told = (("output_scale", repr(HEAD_SCALE)), ("output_zero_point", str(HEAD_ZERO_POINT)))
    metadata = b"".join(_data(14, _text(1, key) + _text(2, text)) for key, text in told)
    head = _number(1, IR_VERSION) + _text(2, "boardbench")
    return head + _data(7, body) + _data(8, _text(1, "") + _number(2, OPSET)) + metadata


def main(arguments):
    """Writes the file; the exit code."""
    parser = argparse.ArgumentParser(description="Makes the small INT8 model of the onnx backend.")
    parser.add_argument("--out", required=True, help="the file to write")
    options = parser.parse_args(arguments)
    data = make_model()
    partial = options.out + ".partial"
    try:
        with open(partial, "wb") as file:
            file.write(data)
        os.replace(partial, options.out)
    except OSError as error:
        print(f"make_onnx: cannot write {options.out}: {error.strerror}", file=sys.stderr)
        return 3
    print(hashlib.sha256(data).hexdigest())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
