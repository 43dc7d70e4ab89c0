"""Streams of HTTP/2, each one gRPC call: a message is received where it stays, and sent from where it lies."""

import collections
import struct

from npuforge.channels import MAX_MESSAGE_BYTES
from npuforge.memory import buffer

# Before every message: whether it is compressed, and its length.
_PREFIX = struct.Struct(">BI")


class MessageFault(Exception):
    """The stream's message cannot be taken: the gRPC status, and one sentence."""

    def __init__(self, status, message):
        super().__init__(message)
        self.status = status
        self.message = message


class Stream:
    """One call: what has come of its message, and what is still to be sent."""

    def __init__(self, stream_id, send_window):
        self.id = stream_id
        self.send_window = send_window
        self.outbox = collections.deque()
        # What ends the stream after the outbox: a whole frame, b"" for the mark of its last DATA frame, None: nothing.
        self.trailer = None
        self.headers = None
        self.trailers = None
        self.messages = collections.deque()
        self.fault = None
        self.ended = False
        self.received = 0
        self._prefix = bytearray()
        self._message = None
        self._filled = 0

    def feed(self, view):
        """Takes bytes of DATA that lie elsewhere."""
        while len(view) and self.fault is None:
            if self._message is None:
                take = _PREFIX.size - len(self._prefix)
                self._prefix += view[:take]
                view = view[take:]
                if len(self._prefix) == _PREFIX.size:
                    self._begin()
            else:
                take = min(len(view), len(self._message) - self._filled)
                self._message[self._filled : self._filled + take] = view[:take]
                view = view[take:]
                self.filled(take)

    def _begin(self):
        compressed, length = _PREFIX.unpack(self._prefix)
        self._prefix.clear()
        if compressed:
            self.fault = MessageFault(12, "messages must not be compressed")
        elif length > MAX_MESSAGE_BYTES:
            self.fault = MessageFault(8, f"Received message larger than max ({length} vs. {MAX_MESSAGE_BYTES})")
        else:
            self._message, self._filled = buffer(length), 0
            self.filled(0)

    def room(self):
        """The part of the message that has not come yet, to be written to; None between messages."""
        return None if self._message is None else memoryview(self._message)[self._filled :]

    def filled(self, count):
        """So many bytes were written to `room`."""
        self._filled += count
        if self._filled == len(self._message):
            self.messages.append(self._message)
            self._message = None

    def put(self, parts, trailer):
        """Queues a message (a list of buffers), and what ends the stream after it (see `trailer`)."""
        self.outbox.append(memoryview(_PREFIX.pack(0, sum(len(part) for part in parts))))
        self.outbox.extend(memoryview(part) for part in parts if len(part))
        self.trailer = trailer

    def take(self, room):
        """Buffers of the outbox with `room` bytes together, which must be there."""
        parts, taken = [], 0
        while taken < room:
            part = self.outbox.popleft()
            if taken + len(part) > room:
                self.outbox.appendleft(part[room - taken :])
                part = part[: room - taken]
            parts.append(part)
            taken += len(part)
        return parts
