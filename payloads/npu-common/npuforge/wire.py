"""Infer's messages without parsing the payload: the small fields are read and written around it.

A request of a client and the request to a node share the numbers and types of fields 1 to 4, so what goes to a node
is a slice of what came. The answers differ in their numbers, so the result goes between a new head and tail.
What is written is a list of buffers, with the payload as it lies.

What these readers take is what a protobuf parser takes, in any order of fields, the last of a repeated scalar
counting (but for groups, which proto3 does not have); `WireError` for all else. Tests hold them against the generated
classes.
"""

import struct

from google.protobuf.message import DecodeError

from npuforge import npuforge_pb2 as pb

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5

_MAX_FIELD = (1 << 29) - 1


class WireError(ValueError):
    """The bytes are not the message that they should be; one sentence."""


def _varint(data, at, end):
    """The number at `at` and the place after it."""
    value = shift = 0
    while at < end:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
        shift += 7
        if shift > 63:
            break
    raise WireError("a number in the message is cut short or too long")


def encode_varint(value):
    """A number as it stands on the wire; negative ones as 64-bit two's complement."""
    value &= 0xFFFFFFFFFFFFFFFF
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(number, kind):
    """The tag of a field."""
    return encode_varint(number << 3 | kind)


def number_field(number, value):
    """A whole number as a field; nothing for 0, as proto3 has it."""
    return field(number, VARINT) + encode_varint(value) if value else b""


def bytes_field(number, data):
    """A string, bytes or message as a field; nothing when it is empty."""
    return field(number, BYTES) + encode_varint(len(data)) + data if data else b""


def fields(data):
    """Every field of a message, as (number, kind, value, start, end).

    `value` is a number for VARINT; for the other kinds the place (from, to) of its bytes. `start` and `end` are the
    place of the whole field, its tag included.
    """
    at, end = 0, len(data)
    while at < end:
        start = at
        tag, at = _varint(data, at, end)
        number, kind = tag >> 3, tag & 7
        if not 0 < number <= _MAX_FIELD:
            raise WireError(f"a field of the message has the number {number}")
        if kind == VARINT:
            value, at = _varint(data, at, end)
            yield number, kind, value, start, at
            continue
        if kind == BYTES:
            length, at = _varint(data, at, end)
        elif kind == FIXED64:
            length = 8
        elif kind == FIXED32:
            length = 4
        else:
            raise WireError(f"field {number} of the message has the unknown kind {kind}")
        if at + length > end:
            raise WireError(f"field {number} of the message is cut short")
        yield number, kind, (at, at + length), start, at + length
        at += length


def _text(data, place, what):
    try:
        return str(memoryview(data)[place[0] : place[1]], "utf-8")
    except UnicodeDecodeError:
        raise WireError(f"{what} is not UTF-8") from None


def _signed32(value):
    return struct.unpack("<i", struct.pack("<I", value & 0xFFFFFFFF))[0]


class Request:
    """The small fields of an `InferRequest` or `NodeInferRequest`, and where the payload lies in `data`."""

    __slots__ = ("_fifth", "data", "deadline_unix_ms", "head_end", "input_format", "metadata", "model_id",
                 "payload", "plain", "request_id")  # fmt: skip

    def __init__(self, data):
        self.data = data
        self.request_id = self.model_id = ""
        self.payload = (0, 0)
        self.input_format = self._fifth = self.deadline_unix_ms = 0
        self.metadata = {}
        # Where fields 1 to 4 end, when they come first and in order; else 0.
        self.head_end = 0
        # Nothing but fields 1 to 4: a node that takes a client's request can have the very same bytes.
        self.plain = True

    @property
    def payload_bytes(self):
        """The payload's length."""
        return self.payload[1] - self.payload[0]

    @property
    def priority(self):
        """Field 5, if this came from a client."""
        return _signed32(self._fifth)

    @property
    def queue_timeout_ms(self):
        """Field 5, if this came from a scheduler."""
        return self._fifth


_REQUEST_KINDS = {1: BYTES, 2: BYTES, 3: BYTES, 4: VARINT, 5: VARINT, 6: VARINT, 7: BYTES}


def read_request(data):
    """The `InferRequest` in these bytes. WireError when they are none."""
    request = Request(data)
    last, in_order = 0, True
    for number, kind, value, _, end in fields(data):
        if _REQUEST_KINDS.get(number) != kind:
            # An unknown field, or one of another type: a parser keeps it aside.
            request.plain = in_order = False
            continue
        in_order = in_order and (number > last or number == last == 7)
        last = number
        if number == 1:
            request.request_id = _text(data, value, "request_id")
        elif number == 2:
            request.model_id = _text(data, value, "model_id")
        elif number == 3:
            request.payload = value
        elif number == 4:
            request.input_format = _signed32(value)
        else:
            _read_tail(request, data, number, value)
        if number <= 4 and in_order:
            request.head_end = end
    if not in_order:
        request.head_end = 0
    return request


def _read_tail(request, data, number, value):
    request.plain = False
    if number == 5:
        request._fifth = value
    elif number == 6:
        request.deadline_unix_ms = value
    else:
        key = text = ""
        entry = bytes(memoryview(data)[value[0] : value[1]])
        for entry_number, kind, place, _, _ in fields(entry):
            if kind == BYTES and entry_number == 1:
                key = _text(entry, place, "a key of metadata")
            elif kind == BYTES and entry_number == 2:
                text = _text(entry, place, "a value of metadata")
        request.metadata[key] = text


def node_request(request, queue_timeout_ms, accepts_client_requests):
    """The `NodeInferRequest` for a node, as buffers; the very same bytes when the node takes a client's request."""
    if accepts_client_requests and request.plain:
        return [request.data]
    tail = number_field(5, queue_timeout_ms)
    if request.head_end:
        return [memoryview(request.data)[: request.head_end], tail]
    low, high = request.payload
    payload = memoryview(request.data)[low:high]
    head = bytes_field(1, request.request_id.encode()) + bytes_field(2, request.model_id.encode())
    if payload:
        head += field(3, BYTES) + encode_varint(len(payload))
    return [head, payload, number_field(4, request.input_format), tail]


class NodeAnswer:
    """The small fields of a `NodeInferResponse`, and where its result lies in `data`."""

    __slots__ = ("answered_unix_us", "data", "error_code", "error_message",
                 "received_unix_us", "request_id", "result", "result_format", "timing")  # fmt: skip

    def __init__(self, data):
        self.data = data
        self.request_id = self.result_format = self.error_code = self.error_message = ""
        self.result = (0, 0)
        self.timing = pb.Timing()
        self.received_unix_us = self.answered_unix_us = 0


_ANSWER_TEXTS = {1: "request_id", 3: "result_format", 5: "error_code", 6: "error_message"}


def read_node_answer(data):
    """The `NodeInferResponse` in these bytes. WireError when they are none."""
    answer = NodeAnswer(data)
    for number, kind, value, _, _ in fields(data):
        if kind == BYTES:
            if number == 2:
                answer.result = value
            elif number == 4:
                _merge_timing(answer.timing, data, value)
            elif number in _ANSWER_TEXTS:
                setattr(answer, _ANSWER_TEXTS[number], _text(data, value, _ANSWER_TEXTS[number]))
        elif kind == VARINT:
            if number == 101:
                answer.received_unix_us = value
            elif number == 102:
                answer.answered_unix_us = value
    return answer


def _merge_timing(timing, data, place):
    try:
        timing.MergeFromString(bytes(memoryview(data)[place[0] : place[1]]))
    except DecodeError:
        raise WireError("the timing of the answer cannot be read") from None


def node_answer(request_id, result, result_format, timing, received_unix_us, answered_unix_us):
    """A node's `NodeInferResponse` without error, as buffers; `result` as a list of buffers."""
    length = sum(len(part) for part in result)
    head = bytes_field(1, request_id.encode())
    if length:
        head += field(2, BYTES) + encode_varint(length)
    tail = (
        bytes_field(3, result_format.encode())
        + bytes_field(4, timing.SerializeToString())
        + number_field(101, received_unix_us)
        + number_field(102, answered_unix_us)
    )
    return [head, *result, tail]


def client_answer(request_id, node_id, answer, timing, attempts, received_unix_us, answered_unix_us):
    """The `InferResponse` for a client from a node's answer without error, as buffers."""
    low, high = answer.result
    head = bytes_field(1, request_id.encode()) + bytes_field(2, node_id.encode())
    if high > low:
        head += field(3, BYTES) + encode_varint(high - low)
    tail = (
        bytes_field(4, answer.result_format.encode())
        + bytes_field(5, timing.SerializeToString())
        + number_field(8, attempts)
        + number_field(101, received_unix_us)
        + number_field(102, answered_unix_us)
    )
    return [head, memoryview(answer.data)[low:high], tail]
