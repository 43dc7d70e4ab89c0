"""Frames of HTTP/2 (RFC 9113): their kinds, flags, error codes and bytes."""

import struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, ACK, END_HEADERS, PADDED, HAS_PRIORITY = 0x1, 0x1, 0x4, 0x8, 0x20
NO_ERROR, PROTOCOL_ERROR, FLOW_CONTROL_ERROR, STREAM_CLOSED, FRAME_SIZE_ERROR = 0, 1, 3, 5, 6
REFUSED_STREAM, CANCEL, COMPRESSION_ERROR, ENHANCE_YOUR_CALM = 7, 8, 9, 11
MAX_CONCURRENT, INITIAL_WINDOW, MAX_FRAME = 3, 4, 5

FRAME_BYTES = (1 << 24) - 1
LARGEST_NUMBER = (1 << 31) - 1

HEAD_BYTES = 9
# Length (in two parts), kind, flags, stream.
HEAD = struct.Struct(">HBBBI")
SETTING = struct.Struct(">HI")
NUMBER = struct.Struct(">I")


class ConnectionFault(Exception):
    """The peer breaks the protocol: the connection ends with this error code."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


def frame_head(length, kind, flags, stream_id):
    """The nine bytes before a frame's body."""
    return HEAD.pack(length >> 8, length & 0xFF, kind, flags, stream_id)


def frame(kind, flags, stream_id, body=b""):
    """A whole small frame."""
    return frame_head(len(body), kind, flags, stream_id) + body


def number_in(body):
    """The number that is the whole body of a frame. ConnectionFault."""
    exactly(body, NUMBER.size)
    return NUMBER.unpack(body)[0]


def exactly(body, wanted):
    """ConnectionFault unless the body has so many bytes."""
    if len(body) != wanted:
        raise ConnectionFault(FRAME_SIZE_ERROR, f"a frame of {len(body)} bytes, not {wanted}")


def unpadded(body, flags):
    """A body without its padding. ConnectionFault when there is more of that than of the body."""
    if not flags & PADDED:
        return body
    if not body or body[0] >= len(body):
        raise ConnectionFault(PROTOCOL_ERROR, "more padding than frame")
    return body[1 : len(body) - body[0]]
