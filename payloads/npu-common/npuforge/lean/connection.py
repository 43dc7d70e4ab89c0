"""One HTTP/2 connection (RFC 9113), for both ends: frames in and out, flow control, streams of gRPC messages.

Large messages are the point. The body of a DATA frame is received straight into the buffer of its message, and
messages are written from the buffers that they lie in. The event loop is the only thread.
"""

import asyncio
import collections
import struct

from npuforge.channels import MAX_MESSAGE_BYTES
from npuforge.lean.hpack import Decoder, HpackError
from npuforge.memory import buffer

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, ACK, END_HEADERS, PADDED, HAS_PRIORITY = 0x1, 0x1, 0x4, 0x8, 0x20
NO_ERROR, PROTOCOL_ERROR, FLOW_CONTROL_ERROR, STREAM_CLOSED, FRAME_SIZE_ERROR = 0, 1, 3, 5, 6
REFUSED_STREAM, CANCEL, COMPRESSION_ERROR, ENHANCE_YOUR_CALM = 7, 8, 9, 11
MAX_CONCURRENT, INITIAL_WINDOW, MAX_FRAME = 3, 4, 5

FRAME_BYTES = (1 << 24) - 1
# More than a message may have: a sender never waits for us within one.
STREAM_WINDOW_BYTES = 16 * 1024 * 1024
CONNECTION_WINDOW_BYTES = 1 << 30
MAX_STREAMS = 256
# Frames other than DATA are small; one that does not fit here is a mistake or an attack.
SCRATCH_BYTES = 64 * 1024
MAX_BLOCK_BYTES = 32 * 1024
_WRITE_HIGH_BYTES = 8 * 1024 * 1024
_MAX_WINDOW = (1 << 31) - 1

_HEAD = struct.Struct(">HBBBI")
_SETTING = struct.Struct(">HI")
_NUMBER = struct.Struct(">I")
_PREFIX = struct.Struct(">BI")


def frame_head(length, kind, flags, stream_id):
    """The nine bytes before a frame's body."""
    return _HEAD.pack(length >> 8, length & 0xFF, kind, flags, stream_id)


def frame(kind, flags, stream_id, body=b""):
    """A whole small frame."""
    return frame_head(len(body), kind, flags, stream_id) + body


class ConnectionFault(Exception):
    """The peer breaks the protocol: the connection ends with this error code."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


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
                take = 5 - len(self._prefix)
                self._prefix += view[:take]
                view = view[take:]
                if len(self._prefix) == 5:
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


class Connection(asyncio.BufferedProtocol):
    """What server and client have in common. The hooks at the end are theirs."""

    def __init__(self):
        self.transport = None
        self.streams = {}
        self.closed = None
        self.bytes_received = 0
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._have = 0
        # Of the DATA frame that is being received: its stream, how much is to come, whether it is the last.
        self._data_stream = None
        self._data_left = 0
        self._data_ends = False
        self._room = None
        self._block = None
        self._decoder = Decoder()
        self._window = 65535
        self._peer_window = 65535
        self._peer_frame = 16384
        self._consumed = 0
        self._paused = False
        self._waiting = collections.deque()

    # Receiving

    def connection_made(self, transport):
        """The connection is there: says what we take."""
        self.transport = transport
        transport.set_write_buffer_limits(high=_WRITE_HIGH_BYTES)
        settings = b"".join(
            _SETTING.pack(key, value)
            for key, value in (
                (MAX_CONCURRENT, MAX_STREAMS),
                (INITIAL_WINDOW, STREAM_WINDOW_BYTES),
                (MAX_FRAME, FRAME_BYTES),
            )
        )
        more = _NUMBER.pack(CONNECTION_WINDOW_BYTES - 65535)
        transport.write(self.greeting() + frame(SETTINGS, 0, 0, settings) + frame(WINDOW_UPDATE, 0, 0, more))

    def get_buffer(self, sizehint):
        """Where the next bytes go: into a message, when all that is next is of one."""
        if self._data_left:
            self._room = self._data_stream.room() if self._data_stream is not None else None
            if self._room is not None and len(self._room):
                self._room = self._room[: self._data_left]
                return self._room
        self._room = None
        return self._scratch[self._have :]

    def buffer_updated(self, nbytes):
        """So many bytes have come."""
        self.bytes_received += nbytes
        try:
            if self._room is not None:
                self._room = None
                self._data_stream.filled(nbytes)
                self._data_came(nbytes)
            else:
                self._have += nbytes
                self._parse()
        except ConnectionFault as fault:
            self.fail(fault.code, str(fault))

    def _parse(self):
        at = 0
        while self.closed is None:
            at = self._skip_preface(at)
            if at is None:
                return
            if self._data_left:
                take = min(self._data_left, self._have - at)
                if self._data_stream is not None:
                    self._data_stream.feed(self._scratch[at : at + take])
                at += take
                if not take:
                    break
                self._data_came(take)
                continue
            if self._have - at < 9:
                break
            high, low, kind, flags, stream_id = _HEAD.unpack_from(self._scratch, at)
            length = high << 8 | low
            stream_id &= _MAX_WINDOW
            if length > FRAME_BYTES or (kind != DATA and length > SCRATCH_BYTES - 16):
                raise ConnectionFault(FRAME_SIZE_ERROR, f"a frame of {length} bytes")
            if self._block is not None and kind != CONTINUATION:
                raise ConnectionFault(PROTOCOL_ERROR, "a header block is cut short")
            if kind == DATA and not flags & PADDED:
                at += 9
                self._begin_data(stream_id, length, bool(flags & END_STREAM))
                continue
            if self._have - at < 9 + length:
                if length > SCRATCH_BYTES - 16:
                    raise ConnectionFault(FRAME_SIZE_ERROR, "padded data of more than we take")
                break
            self._frame(kind, flags, stream_id, bytes(self._scratch[at + 9 : at + 9 + length]))
            at += 9 + length
        left = self._have - at
        if left and at:
            self._scratch[:left] = bytes(self._scratch[at : self._have])
        self._have = left

    def _skip_preface(self, at):
        return at

    def _begin_data(self, stream_id, length, ends):
        if not stream_id:
            raise ConnectionFault(PROTOCOL_ERROR, "data on no stream")
        # None: a stream that has ended here; its data is counted and dropped.
        self._data_stream = self.streams.get(stream_id)
        if self._data_stream is None and not self.knows(stream_id):
            raise ConnectionFault(PROTOCOL_ERROR, "data on a stream that was never opened")
        self._data_left, self._data_ends = length, ends
        if not length:
            self._data_ended()

    def _data_came(self, count):
        self._data_left -= count
        self._consumed += count
        stream = self._data_stream
        if stream is not None:
            stream.received += count
            if stream.received > STREAM_WINDOW_BYTES // 2:
                self.write(frame(WINDOW_UPDATE, 0, stream.id, _NUMBER.pack(stream.received)))
                stream.received = 0
        if self._consumed > CONNECTION_WINDOW_BYTES // 4:
            self.write(frame(WINDOW_UPDATE, 0, 0, _NUMBER.pack(self._consumed)))
            self._consumed = 0
        if stream is not None and (stream.messages or stream.fault) and self._data_left:
            self.progress(stream)
        if not self._data_left:
            self._data_ended()

    def _data_ended(self):
        stream, self._data_stream = self._data_stream, None
        if stream is not None:
            stream.ended = stream.ended or self._data_ends
            self.progress(stream)

    def _frame(self, kind, flags, stream_id, body):
        if kind == DATA:
            self._begin_data(stream_id, len(body), bool(flags & END_STREAM))
            data = memoryview(_unpadded(body, flags))
            if self._data_stream is not None:
                self._data_stream.feed(data)
            if len(body):
                self._data_came(len(body))
        elif kind == HEADERS:
            self._begin_block(stream_id, flags, _unpadded(body, flags))
        elif kind == CONTINUATION:
            self._continue_block(stream_id, flags, body)
        elif kind == SETTINGS:
            self._settings(flags, stream_id, body)
        elif kind == WINDOW_UPDATE:
            self._window_update(stream_id, body)
        elif kind == PING:
            _length(body, 8)
            if not flags & ACK:
                self.write(frame(PING, ACK, 0, body))
        elif kind == RST_STREAM:
            _length(body, 4)
            stream = self.streams.pop(stream_id, None)
            if stream is not None:
                self.reset(stream, _NUMBER.unpack(body)[0])
        elif kind == GOAWAY:
            if len(body) < 8:
                raise ConnectionFault(FRAME_SIZE_ERROR, "a farewell is cut short")
            self.goes_away(_NUMBER.unpack_from(body)[0] & _MAX_WINDOW)
        elif kind == PUSH_PROMISE:
            raise ConnectionFault(PROTOCOL_ERROR, "nobody may push here")

    def _begin_block(self, stream_id, flags, body):
        if not stream_id:
            raise ConnectionFault(PROTOCOL_ERROR, "headers on no stream")
        if flags & HAS_PRIORITY:
            body = body[5:]
        self._block = (stream_id, flags, bytearray(body))
        if flags & END_HEADERS:
            self._end_block()

    def _continue_block(self, stream_id, flags, body):
        if self._block is None or self._block[0] != stream_id:
            raise ConnectionFault(PROTOCOL_ERROR, "a continuation of nothing")
        self._block[2].extend(body)
        if len(self._block[2]) > MAX_BLOCK_BYTES:
            raise ConnectionFault(ENHANCE_YOUR_CALM, "too many headers")
        if flags & END_HEADERS:
            self._end_block()

    def _end_block(self):
        (stream_id, flags, body), self._block = self._block, None
        try:
            headers = self._decoder.decode(body)
        except HpackError as error:
            raise ConnectionFault(COMPRESSION_ERROR, str(error)) from None
        self.headers_came(stream_id, headers, bool(flags & END_STREAM))

    def _settings(self, flags, stream_id, body):
        if stream_id or len(body) % 6:
            raise ConnectionFault(PROTOCOL_ERROR, "settings that are none")
        if flags & ACK:
            return
        for key, value in _SETTING.iter_unpack(body):
            if key == INITIAL_WINDOW:
                if value > _MAX_WINDOW:
                    raise ConnectionFault(FLOW_CONTROL_ERROR, "a window that is too large")
                for stream in self.streams.values():
                    stream.send_window += value - self._peer_window
                self._peer_window = value
            elif key == MAX_FRAME:
                if not 16384 <= value <= FRAME_BYTES:
                    raise ConnectionFault(PROTOCOL_ERROR, "a frame size that cannot be")
                self._peer_frame = value
        self.write(frame(SETTINGS, ACK, 0))
        self._pump()

    def _window_update(self, stream_id, body):
        _length(body, 4)
        more = _NUMBER.unpack(body)[0] & _MAX_WINDOW
        if not stream_id:
            self._window += more
            if not more or self._window > _MAX_WINDOW:
                raise ConnectionFault(FLOW_CONTROL_ERROR, "a window that cannot be")
        elif stream_id in self.streams:
            self.streams[stream_id].send_window += more
        self._pump()

    # Sending

    def write(self, data):
        """Sends a small frame."""
        if self.closed is None:
            self.transport.write(data)

    def open_stream(self, stream_id):
        """A stream with the peer's window."""
        stream = self.streams[stream_id] = Stream(stream_id, self._peer_window)
        return stream

    def send_message(self, stream, parts, end=False, trailer=None):
        """Queues a message (a list of buffers); then the end of the stream, or the frame `trailer`."""
        length = sum(len(part) for part in parts)
        stream.outbox.append(memoryview(_PREFIX.pack(0, length)))
        stream.outbox.extend(memoryview(part) for part in parts if len(part))
        stream.trailer = trailer if trailer is not None else (b"" if end else None)
        self._waiting.append(stream)
        self._pump()

    def _pump(self):
        """Sends what the windows allow, stream after stream."""
        while self._waiting and not self._paused and self.closed is None:
            stream = self._waiting[0]
            if stream.id not in self.streams and stream.outbox:
                stream.outbox.clear()
                self._waiting.popleft()
                continue
            if not self._send_some(stream):
                if self._window <= 0 or self._paused:
                    return
                # This one's own window is full: the others need not wait for it.
                self._waiting.popleft()
                if not any(other.send_window > 0 for other in self._waiting):
                    self._waiting.appendleft(stream)
                    return
                self._waiting.append(stream)
                continue
            if not stream.outbox:
                self._waiting.popleft()
                self.sent(stream)

    def _send_some(self, stream):
        """One DATA frame of a stream; whether there was room for it."""
        left = sum(len(part) for part in stream.outbox)
        room = min(self._window, stream.send_window, self._peer_frame, left)
        if room <= 0 and left:
            return False
        parts, taken = [], 0
        while taken < room:
            part = stream.outbox.popleft()
            if taken + len(part) > room:
                stream.outbox.appendleft(part[room - taken :])
                part = part[: room - taken]
            parts.append(part)
            taken += len(part)
        last = not stream.outbox
        flags = END_STREAM if last and stream.trailer == b"" else 0
        self._window -= taken
        stream.send_window -= taken
        tail = [stream.trailer] if last and stream.trailer else []
        self.transport.writelines([frame_head(taken, DATA, flags, stream.id), *parts, *tail])
        return True

    def pause_writing(self):
        """The peer or the network is slower than we."""
        self._paused = True

    def resume_writing(self):
        """They have caught up."""
        self._paused = False
        self._pump()

    def reset_stream(self, stream_id, code):
        """Ends a stream at once."""
        self.streams.pop(stream_id, None)
        self.write(frame(RST_STREAM, 0, stream_id, _NUMBER.pack(code)))

    def fail(self, code, message):
        """Ends the connection, and says why."""
        if self.closed is None:
            self.write(frame(GOAWAY, 0, 0, _NUMBER.pack(0) + _NUMBER.pack(code) + message.encode()))
            self.transport.close()
            self._lost(message)

    def eof_received(self):
        """The peer will send no more; nothing is left to be done then."""
        return False

    def connection_lost(self, exc):
        """The connection is gone."""
        self._lost(str(exc) if exc else "the connection was closed")

    def _lost(self, why):
        if self.closed is None:
            self.closed = why
            streams, self.streams = list(self.streams.values()), {}
            self._waiting.clear()
            for stream in streams:
                self.reset(stream, None)
            self.ended()

    # What an end of the connection does with all that

    def greeting(self):
        """What is sent before the first frame."""
        return b""

    def knows(self, stream_id):
        """Whether there ever was such a stream."""
        raise NotImplementedError

    def headers_came(self, stream_id, headers, ends):
        """A header block has come."""
        raise NotImplementedError

    def progress(self, stream):
        """A message, an end or a fault may have come."""
        raise NotImplementedError

    def reset(self, stream, code):
        """The peer has ended the stream, or (None) the connection is gone."""
        raise NotImplementedError

    def goes_away(self, last_stream_id):
        """The peer takes no more streams than that."""

    def sent(self, stream):
        """All of a stream's outbox has been written."""

    def ended(self):
        """The connection is gone, and every stream with it."""


def _length(body, wanted):
    if len(body) != wanted:
        raise ConnectionFault(FRAME_SIZE_ERROR, f"a frame of {len(body)} bytes, not {wanted}")


def _unpadded(body, flags):
    if not flags & PADDED:
        return body
    if not body or body[0] >= len(body):
        raise ConnectionFault(PROTOCOL_ERROR, "more padding than frame")
    return body[1 : len(body) - body[0]]
