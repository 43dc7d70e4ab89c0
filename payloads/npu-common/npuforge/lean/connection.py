"""One HTTP/2 connection (RFC 9113), for both ends: takes frames in, and passes on what they say.

Large messages are the point. The body of a DATA frame is received straight into the buffer of its message, and
messages are written from the buffers that they lie in. The event loop is the only thread.
"""

import abc
import asyncio
import socket

from npuforge.lean import frames
from npuforge.lean.blocks import HeaderBlocks
from npuforge.lean.frames import ConnectionFault, frame
from npuforge.lean.outflow import Outflow
from npuforge.lean.streams import Stream

# More than a message may have: a sender never waits for us within one.
STREAM_WINDOW_BYTES = 16 * 1024 * 1024
CONNECTION_WINDOW_BYTES = 1 << 30
MAX_STREAMS = 256
# Frames other than DATA are small; one that does not fit here is a mistake or an attack.
SCRATCH_BYTES = 64 * 1024
_WRITE_HIGH_BYTES = 8 * 1024 * 1024
# The kernel wakes a reader for every piece that comes. Within a frame that is larger than the first number it need not
# before there is as much as the second, or the frame's rest.
_LARGE_BYTES, _WAKE_BYTES = 64 * 1024, 1024 * 1024
# A peer that vanished without a word is found by the kernel: it is asked on a connection that is idle for so long, and
# one on which it does not answer for so long is lost (by itself the kernel waits a quarter of an hour, or for ever).
# Peers that count HTTP/2's own pings would refuse those.
_TCP = (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 20_000))


def find_lost_peers(transport):
    """Has the kernel end the connection when its peer is gone; nothing on a transport that is no socket."""
    plain = transport.get_extra_info("socket")
    if plain is None:
        return
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _TCP:
        # Not every system has all of them.
        if hasattr(socket, name):
            plain.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


class Connection(asyncio.BufferedProtocol, abc.ABC):
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
        self._consumed = 0
        # Without TLS, whose records the kernel does not count: our socket, and for how many bytes it wakes us.
        self._socket = None
        self._wakes_at = 1
        self._blocks = HeaderBlocks()
        self._outflow = Outflow(self.streams, self.sent)

    # Receiving

    def connection_made(self, transport):
        """The connection is there: says what we take."""
        self.transport = transport
        find_lost_peers(transport)
        if transport.get_extra_info("sslcontext") is None:
            self._socket = transport.get_extra_info("socket")
        self._outflow.begin(transport)
        transport.set_write_buffer_limits(high=_WRITE_HIGH_BYTES)
        settings = b"".join(
            frames.SETTING.pack(key, value)
            for key, value in (
                (frames.MAX_CONCURRENT, MAX_STREAMS),
                (frames.INITIAL_WINDOW, STREAM_WINDOW_BYTES),
                (frames.MAX_FRAME, frames.FRAME_BYTES),
            )
        )
        more = frames.NUMBER.pack(CONNECTION_WINDOW_BYTES - 65535)
        first = frame(frames.SETTINGS, 0, 0, settings) + frame(frames.WINDOW_UPDATE, 0, 0, more)
        transport.write(self.greeting() + first)

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
            self._wake_at(min(self._data_left, _WAKE_BYTES) if self._data_left > _LARGE_BYTES else 1)
        except ConnectionFault as fault:
            self.fail(fault.code, str(fault))

    def _wake_at(self, count):
        """Has the kernel wake us when so many bytes have come, or the peer has gone."""
        if count != self._wakes_at and self._socket is not None and self.closed is None:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)
            self._wakes_at = count

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
            if self._have - at < frames.HEAD_BYTES:
                break
            high, low, kind, flags, stream_id = frames.HEAD.unpack_from(self._scratch, at)
            length = high << 8 | low
            stream_id &= frames.LARGEST_NUMBER
            self._check_head(kind, length)
            body_at = at + frames.HEAD_BYTES
            if kind == frames.DATA and not flags & frames.PADDED:
                at = body_at
                self._begin_data(stream_id, length, bool(flags & frames.END_STREAM))
                continue
            if self._have - body_at < length:
                if length > SCRATCH_BYTES - 16:
                    raise ConnectionFault(frames.FRAME_SIZE_ERROR, "padded data of more than we take")
                break
            at = body_at + length
            self._frame(kind, flags, stream_id, bytes(self._scratch[body_at:at]))
        left = self._have - at
        if left and at:
            self._scratch[:left] = bytes(self._scratch[at : self._have])
        self._have = left

    def _skip_preface(self, at):
        return at

    def _check_head(self, kind, length):
        if length > frames.FRAME_BYTES or (kind != frames.DATA and length > SCRATCH_BYTES - 16):
            raise ConnectionFault(frames.FRAME_SIZE_ERROR, f"a frame of {length} bytes")
        if self._blocks.open and kind != frames.CONTINUATION:
            raise ConnectionFault(frames.PROTOCOL_ERROR, "a header block is cut short")

    def _begin_data(self, stream_id, length, ends):
        if not stream_id:
            raise ConnectionFault(frames.PROTOCOL_ERROR, "data on no stream")
        # None: a stream that has ended here; its data is counted and dropped.
        self._data_stream = self.streams.get(stream_id)
        if self._data_stream is None and not self.knows(stream_id):
            raise ConnectionFault(frames.PROTOCOL_ERROR, "data on a stream that was never opened")
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
                self.write(frame(frames.WINDOW_UPDATE, 0, stream.id, frames.NUMBER.pack(stream.received)))
                stream.received = 0
        if self._consumed > CONNECTION_WINDOW_BYTES // 4:
            self.write(frame(frames.WINDOW_UPDATE, 0, 0, frames.NUMBER.pack(self._consumed)))
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
        """One whole frame, other than DATA without padding."""
        if kind == frames.DATA:
            self._begin_data(stream_id, len(body), bool(flags & frames.END_STREAM))
            data = memoryview(frames.unpadded(body, flags))
            if self._data_stream is not None:
                self._data_stream.feed(data)
            if len(body):
                self._data_came(len(body))
        elif kind == frames.HEADERS:
            self._block_came(self._blocks.begin(stream_id, flags, frames.unpadded(body, flags)))
        elif kind == frames.CONTINUATION:
            self._block_came(self._blocks.proceed(stream_id, flags, body))
        elif kind == frames.SETTINGS:
            self._settings(flags, stream_id, body)
        elif kind == frames.WINDOW_UPDATE:
            self._outflow.widen(stream_id, frames.number_in(body) & frames.LARGEST_NUMBER)
        elif kind == frames.PING:
            frames.exactly(body, 8)
            if not flags & frames.ACK:
                self.write(frame(frames.PING, frames.ACK, 0, body))
        elif kind == frames.RST_STREAM:
            code = frames.number_in(body)
            stream = self.streams.pop(stream_id, None)
            if stream is not None:
                self.reset(stream, code)
        elif kind == frames.GOAWAY:
            if len(body) < 8:
                raise ConnectionFault(frames.FRAME_SIZE_ERROR, "a farewell is cut short")
            self.goes_away(frames.NUMBER.unpack_from(body)[0] & frames.LARGEST_NUMBER)
        elif kind == frames.PUSH_PROMISE:
            raise ConnectionFault(frames.PROTOCOL_ERROR, "nobody may push here")

    def _block_came(self, block):
        if block is not None:
            self.headers_came(*block)

    def _settings(self, flags, stream_id, body):
        if stream_id or len(body) % frames.SETTING.size:
            raise ConnectionFault(frames.PROTOCOL_ERROR, "settings that are none")
        if not flags & frames.ACK:
            self._outflow.settings(frames.SETTING.iter_unpack(body))
            self.write(frame(frames.SETTINGS, frames.ACK, 0))
            self._outflow.pump()
            self.settled()

    # Sending

    def write(self, data):
        """Sends a small frame."""
        if self.closed is None:
            self.transport.write(data)

    def open_stream(self, stream_id):
        """A stream with the peer's window."""
        stream = self.streams[stream_id] = Stream(stream_id, self._outflow.stream_window)
        return stream

    def send_message(self, stream, parts, end=False, trailer=None):
        """Queues a message (a list of buffers); then the end of the stream, or the frame `trailer`."""
        stream.put(parts, trailer if trailer is not None else (b"" if end else None))
        self._outflow.send(stream)

    def pause_writing(self):
        """The peer or the network is slower than we."""
        self._outflow.pause()

    def resume_writing(self):
        """They have caught up."""
        self._outflow.resume()

    def reset_stream(self, stream_id, code):
        """Ends a stream at once."""
        self.streams.pop(stream_id, None)
        self.write(frame(frames.RST_STREAM, 0, stream_id, frames.NUMBER.pack(code)))

    # The end

    def fail(self, code, message):
        """Ends the connection, and says why."""
        if self.closed is None:
            self.write(frame(frames.GOAWAY, 0, 0, frames.NUMBER.pack(0) + frames.NUMBER.pack(code) + message.encode()))
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
            self._outflow.stop()
            streams = list(self.streams.values())
            self.streams.clear()
            for stream in streams:
                self.reset(stream, None)
            self.ended()

    # What an end of the connection does with all that

    def greeting(self):
        """What is sent before the first frame."""
        return b""

    def settled(self):
        """The peer has said what it takes."""

    @abc.abstractmethod
    def knows(self, stream_id):
        """Whether there ever was such a stream."""

    @abc.abstractmethod
    def headers_came(self, stream_id, headers, ends):
        """A header block has come."""

    @abc.abstractmethod
    def progress(self, stream):
        """A message, an end or a fault may have come."""

    @abc.abstractmethod
    def reset(self, stream, code):
        """The peer has ended the stream, or (None) the connection is gone."""

    @abc.abstractmethod
    def goes_away(self, last_stream_id):
        """The peer takes no more streams than that."""

    @abc.abstractmethod
    def sent(self, stream):
        """All of a stream's outbox has been written."""

    @abc.abstractmethod
    def ended(self):
        """The connection is gone, and every stream with it."""
