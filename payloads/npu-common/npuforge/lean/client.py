"""The calling end: one connection of its own, made when it is needed, and made again when it is lost."""

import asyncio
import collections
import time

import grpc

from npuforge.lean import frames, hpack, status
from npuforge.lean.connection import Connection
from npuforge.lean.frames import frame

CONNECT_S = 1.0
# After a failed try nobody waits for another one within this time.
PAUSE_S = 0.1
_LAST_STREAM_ID = (1 << 31) - 1


class _ClientConnection(Connection):
    def __init__(self):
        super().__init__()
        self.next_id = 1
        self.leaving = False
        # Nothing is sent before: how many calls the peer takes is not known, and gRPC's own server breaks off a TLS
        # handshake whose last message has more than a few KiB of a call behind it.
        self.ready = asyncio.get_running_loop().create_future()
        self._answers = {}
        # Calls that wait until the peer takes one more stream, in turn.
        self._waiting = collections.deque()

    def greeting(self):
        return frames.PREFACE

    def knows(self, stream_id):
        return stream_id < self.next_id

    def settled(self):
        if not self.ready.done():
            self.ready.set_result(None)

    @property
    def has_room(self):
        """Whether the peer takes one more stream."""
        return len(self.streams) < self._outflow.most_streams

    async def wait_for_room(self, timeout):
        """Waits until there may be room, or no connection any more; whether that came in time."""
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await asyncio.wait({turn}, timeout=timeout)
        except asyncio.CancelledError:
            if turn.done():
                self._next_turn()
            raise
        came = turn.done()
        turn.cancel()
        return came

    def _next_turn(self):
        while self._waiting and self.has_room:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return

    def call(self, head, parts):
        """Opens a stream; (its id, a future of its message)."""
        stream = self.open_stream(self.next_id)
        self.next_id += 2
        answer = self._answers[stream.id] = asyncio.get_running_loop().create_future()
        self.write(frame(frames.HEADERS, frames.END_HEADERS, stream.id, head))
        self.send_message(stream, parts, end=True)
        return stream.id, answer

    def give_up(self, stream_id):
        """Nobody waits for that answer any more."""
        self._answers.pop(stream_id, None)
        if stream_id in self.streams:
            self.reset_stream(stream_id, frames.CANCEL)
        self._next_turn()
        if self.leaving and not self.streams and self.closed is None:
            # Nobody else would close it, and a way that was only cut for a while keeps it open for ever.
            self.transport.abort()

    def headers_came(self, stream_id, headers, ends):
        stream = self.streams.get(stream_id)
        if stream is None:
            return
        if stream.headers is None:
            stream.headers = headers
        if ends:
            stream.trailers = headers
            stream.ended = True
            self.progress(stream)

    def progress(self, stream):
        if stream.fault is not None:
            error = status.CallError(grpc.StatusCode.RESOURCE_EXHAUSTED, stream.fault.message)
            self.reset_stream(stream.id, frames.CANCEL)
            self._settle(stream.id, error=error)
        elif stream.ended:
            self.streams.pop(stream.id, None)
            error = status.error_in(stream.trailers or stream.headers or [])
            if error is None and len(stream.messages) != 1:
                error = status.CallError(grpc.StatusCode.INTERNAL, f"{len(stream.messages)} messages, not one")
            self._settle(stream.id, error=error, value=stream.messages[0] if error is None else None)

    def _settle(self, stream_id, value=None, error=None):
        answer = self._answers.pop(stream_id, None)
        if answer is not None and not answer.done():
            if error is None:
                answer.set_result(value)
            else:
                answer.set_exception(error)

    def reset(self, stream, code):
        why = self.closed if code is None else f"the peer ended the call (HTTP/2 error {code})"
        kind = grpc.StatusCode.CANCELLED if code == frames.CANCEL else grpc.StatusCode.UNAVAILABLE
        self._settle(stream.id, error=status.CallError(kind, why))

    def goes_away(self, last_stream_id):
        self.leaving = True
        for stream_id in [number for number in self.streams if number > last_stream_id]:
            self.reset(self.streams.pop(stream_id), frames.REFUSED_STREAM)

    def sent(self, stream):
        """The answer is what is waited for."""

    def ended(self):
        """Whoever waited for an answer has heard of it by `reset`; whoever waited for room looks for it elsewhere."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
        self.settled()


class Channel:
    """Calls one peer over one connection. The face of `grpc.aio.Channel`, for unary calls."""

    def __init__(self, address, tls=None, target_name=None):
        self._host, _, port = address.rpartition(":")
        self._host, self._port = self._host.strip("[]"), int(port)
        self._tls, self._name = tls, target_name or self._host
        self._connection = None
        self._connecting = None
        self._failed = (0.0, "")
        self._closed = False
        self._heads = {}

    def unary_unary(self, path, request_serializer=None, response_deserializer=None):
        """A callable for one RPC: `await call(message, timeout=seconds)`. Without serialisers messages are bytes.

        A message in bytes may also be a list of buffers, which are sent as they lie.
        """

        async def call(message, timeout=None):
            data = message if request_serializer is None else request_serializer(message)
            answer = await self._call(path, data if isinstance(data, list) else [data], timeout)
            return answer if response_deserializer is None else response_deserializer(bytes(answer))

        return call

    def _head(self, path, timeout):
        base = self._heads.get(path)
        if base is None:
            scheme = "http" if self._tls is None else "https"
            base = self._heads[path] = hpack.encode(
                [(":method", "POST"), (":scheme", scheme), (":path", path), (":authority", self._name),
                 ("te", "trailers"), ("content-type", "application/grpc"), ("user-agent", "grpc-python-boardbench")]
            )  # fmt: skip
        if timeout is None:
            return base
        return base + hpack.encode([("grpc-timeout", status.timeout_text(timeout))])

    async def _call(self, path, parts, timeout):
        began = time.monotonic()
        connection = await self._with_room(timeout)
        seen = connection.bytes_received
        left_s = None if timeout is None else max(0.0, timeout - (time.monotonic() - began))
        stream_id, answer = connection.call(self._head(path, left_s), parts)
        timer = None
        if left_s is not None:
            timer = asyncio.get_running_loop().call_later(left_s, _too_late, answer)
        try:
            return await answer
        except status.CallError as error:
            if error.code() == grpc.StatusCode.DEADLINE_EXCEEDED and connection.bytes_received == seen:
                # Not one byte in all that time: the way is cut, and a new connection will find it open again sooner.
                self._drop(connection)
            raise
        finally:
            connection.give_up(stream_id)
            if timer is not None:
                timer.cancel()

    async def _with_room(self, timeout):
        """A connection that takes one more stream."""
        began = time.monotonic()
        while True:
            left_s = None if timeout is None else max(0.0, timeout - (time.monotonic() - began))
            connection = self._usable() or await self._wait_for_connection(left_s)
            if connection.has_room:
                return connection
            if not await connection.wait_for_room(left_s):
                raise status.CallError(grpc.StatusCode.DEADLINE_EXCEEDED, "the peer took no more calls in time")

    def _drop(self, connection):
        if self._connection is connection:
            self._connection = None
        if not connection.streams or connection.closed is not None:
            connection.transport.abort()
        else:
            connection.leaving = True

    def _usable(self):
        """The connection, None when another one is needed."""
        now = self._connection
        good = now is not None and now.closed is None and not now.leaving and now.next_id < _LAST_STREAM_ID
        return now if good else None

    async def _wait_for_connection(self, timeout):
        """A new connection, the same for all who wait for one."""
        if self._connecting is None or self._connecting.done():
            self._connecting = asyncio.ensure_future(self._open())
            # Read, since all who wait may have given up before it fails.
            self._connecting.add_done_callback(lambda task: task.cancelled() or task.exception())
        connecting = self._connecting
        # Not wait_for: it may swallow a cancellation that comes in the moment of the connection.
        await asyncio.wait({connecting}, timeout=timeout)
        if not connecting.done():
            raise status.CallError(grpc.StatusCode.DEADLINE_EXCEEDED, "no connection in time")
        return connecting.result()

    async def _open(self):
        if self._closed:
            raise status.CallError(grpc.StatusCode.CANCELLED, "the channel is closed")
        at, why = self._failed
        if time.monotonic() - at < PAUSE_S:
            raise status.CallError(grpc.StatusCode.UNAVAILABLE, why)
        try:
            # Who has taken the connection may be busy for a while before it says a word.
            connection = await asyncio.wait_for(self._connected(), 3 * CONNECT_S)
        except (OSError, asyncio.TimeoutError, ValueError) as error:
            # ssl.SSLError and ssl.CertificateError are OSError and ValueError.
            why = f"cannot connect to {self._host}:{self._port}: {error or 'no answer'}"
            self._failed = (time.monotonic(), why)
            raise status.CallError(grpc.StatusCode.UNAVAILABLE, why) from None
        if self._closed:
            connection.transport.abort()
            raise status.CallError(grpc.StatusCode.CANCELLED, "the channel is closed")
        self._connection = connection
        return connection

    async def _connected(self):
        """A connection whose peer has said what it takes. OSError."""
        opening = asyncio.get_running_loop().create_connection(
            _ClientConnection,
            self._host,
            self._port,
            ssl=self._tls,
            server_hostname=None if self._tls is None else self._name,
        )
        transport, connection = await asyncio.wait_for(opening, CONNECT_S if self._tls is None else 3 * CONNECT_S)
        try:
            await connection.ready
        except asyncio.CancelledError:
            transport.abort()
            raise
        if connection.closed is not None:
            raise ConnectionError(connection.closed)
        return connection

    async def close(self):
        """Ends the connection; calls on it fail."""
        self._closed = True
        if self._connecting is not None:
            await asyncio.gather(self._connecting, return_exceptions=True)
        if self._connection is not None:
            self._connection.transport.abort()
            self._connection = None


def _too_late(answer):
    if not answer.done():
        answer.set_exception(status.CallError(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded"))
