"""The serving end. The face of `grpc.aio.Server`, as far as the cluster's programs use it."""

import asyncio
import logging
import socket
import time

import grpc

from npuforge.lean import frames, hpack, status
from npuforge.lean.connection import MAX_STREAMS, Connection
from npuforge.lean.frames import ConnectionFault, frame

log = logging.getLogger("npuforge.lean")

_RESPONSE = [(":status", "200"), ("content-type", "application/grpc")]
_HEAD = hpack.encode(_RESPONSE)
_GOOD = hpack.encode(status.trailers(0))
_BACKLOG = 1024


class Context:
    """What a handler may ask about its call."""

    def __init__(self, peer, names, deadline_s):
        self._peer, self._names, self._deadline_s = peer, names, deadline_s

    def peer(self):
        """The caller's address, as gRPC writes it."""
        return self._peer

    def time_remaining(self):
        """Seconds until the caller gives up, None when it does not say."""
        return None if self._deadline_s is None else self._deadline_s - time.monotonic()

    def auth_context(self):
        """How the connection is secured."""
        return {} if self._names is None else {"transport_security_type": [b"ssl"]}

    def peer_identities(self):
        """The names in the caller's certificate."""
        return self._names

    async def abort(self, code, details=""):
        """Ends the call with a status."""
        raise status.CallError(code, details)


class _ServerConnection(Connection):
    def __init__(self, server):
        super().__init__()
        self._server = server
        self._greeted = False
        self._last_id = 0
        self._tasks = {}
        self._peer, self._names = "", None
        self._leaving = False

    def connection_made(self, transport):
        super().connection_made(transport)
        name = transport.get_extra_info("peername") or ("", 0)
        self._peer = f"ipv4:{name[0]}:{name[1]}"
        certificate = transport.get_extra_info("peercert")
        if transport.get_extra_info("ssl_object") is not None:
            names = [value for kind, value in (certificate or {}).get("subjectAltName", ()) if kind == "DNS"]
            self._names = [value.encode() for value in names]
        self._server.connections.add(self)

    def _skip_preface(self, at):
        if self._greeted:
            return at
        wanted = len(frames.PREFACE)
        have = bytes(self._scratch[at : min(self._have, wanted)])
        if have != frames.PREFACE[: len(have)]:
            raise ConnectionFault(frames.PROTOCOL_ERROR, "this is no HTTP/2")
        if len(have) < wanted:
            return None
        self._greeted = True
        return at + wanted

    def knows(self, stream_id):
        return stream_id <= self._last_id

    def headers_came(self, stream_id, headers, ends):
        stream = self.streams.get(stream_id)
        if stream is not None:
            stream.ended = True
            self.progress(stream)
            return
        if stream_id <= self._last_id or not stream_id % 2:
            raise ConnectionFault(frames.STREAM_CLOSED, "headers on a stream that has ended")
        self._last_id = stream_id
        if self._leaving or len(self.streams) >= MAX_STREAMS:
            self.reset_stream(stream_id, frames.REFUSED_STREAM)
            return
        stream = self.open_stream(stream_id)
        stream.headers = dict(headers)
        stream.ended = ends
        if ends:
            self.progress(stream)

    def progress(self, stream):
        if stream.id in self._tasks or stream.id not in self.streams:
            return
        if stream.fault is not None:
            self._refuse(stream, stream.fault.status, stream.fault.message)
        elif stream.ended or len(stream.messages) > 1:
            if len(stream.messages) != 1:
                self._refuse(stream, 13, f"{len(stream.messages)} messages, not one")
                return
            task = asyncio.ensure_future(self._answer(stream))
            self._tasks[stream.id] = task
            task.add_done_callback(lambda _: self._tasks.pop(stream.id, None))

    async def _answer(self, stream):
        headers = stream.headers
        wait_s = status.timeout_s(headers.get("grpc-timeout", ""))
        context = Context(self._peer, self._names, None if wait_s is None else time.monotonic() + wait_s)
        handler = self._server.find(headers.get(":path", ""))
        try:
            if handler is None:
                raise status.CallError(grpc.StatusCode.UNIMPLEMENTED, "there is no such RPC")
            message = stream.messages.popleft()
            if handler.response_streaming:
                await self._answer_stream(stream, handler.unary_stream(message, context))
            else:
                self._finish(stream, await handler.unary_unary(message, context))
        except status.CallError as error:
            self._refuse(stream, error.code().value[0], error.details())
        except asyncio.CancelledError:
            raise
        except Exception:
            log.exception("%s failed", headers.get(":path"))
            self._refuse(stream, 13, "the handler failed")

    def _finish(self, stream, message):
        if stream.id in self.streams:
            self.write(frame(frames.HEADERS, frames.END_HEADERS, stream.id, _HEAD))
            trailer = frame(frames.HEADERS, frames.END_HEADERS | frames.END_STREAM, stream.id, _GOOD)
            self.send_message(stream, message if isinstance(message, list) else [message], trailer=trailer)

    async def _answer_stream(self, stream, answers):
        self.write(frame(frames.HEADERS, frames.END_HEADERS, stream.id, _HEAD))
        try:
            async for message in answers:
                # A reader that is slower than we has the newest when it reads again, not a queue of old ones.
                if not stream.outbox:
                    self.send_message(stream, [message])
        finally:
            await answers.aclose()
        trailer = frame(frames.HEADERS, frames.END_HEADERS | frames.END_STREAM, stream.id, _GOOD)
        if stream.outbox:
            stream.trailer = trailer
        elif stream.id in self.streams:
            self.write(trailer)
            self._close(stream)

    def _refuse(self, stream, number, message):
        if stream.id in self.streams:
            block = hpack.encode([*_RESPONSE, *status.trailers(number, message)])
            self.write(frame(frames.HEADERS, frames.END_HEADERS | frames.END_STREAM, stream.id, block))
            if not stream.ended:
                # The rest of the request is not wanted.
                self.reset_stream(stream.id, frames.NO_ERROR)
            self._close(stream)

    def sent(self, stream):
        if stream.trailer:
            self._close(stream)

    def _close(self, stream):
        self.streams.pop(stream.id, None)
        if self._leaving and not self.streams:
            self.transport.close()

    def reset(self, stream, code):
        task = self._tasks.get(stream.id)
        if task is not None:
            task.cancel()

    def goes_away(self, last_stream_id):
        """A client's farewell: nothing here opens streams, and those of its calls are answered."""

    def leave(self):
        """Takes no more calls, and closes after those that are here."""
        if not self._leaving and self.closed is None:
            self._leaving = True
            last = self._last_id.to_bytes(4, "big")
            self.write(frame(frames.GOAWAY, 0, 0, last + bytes(4)))
            if not self.streams:
                self.transport.close()

    def ended(self):
        self._server.connections.discard(self)


class Server:
    """Serves generic handlers on one port."""

    def __init__(self, tls=None):
        self._tls = tls
        self._handlers = []
        self._found = {}
        self._socket = self._server = None
        self.connections = set()

    def add_generic_rpc_handlers(self, handlers):
        """Handlers as `npuforge.rpc.handlers` makes them."""
        self._handlers.extend(handlers)

    def find(self, path):
        """The handler of an RPC, or None."""
        if path not in self._found:
            details = _Details(path)
            found = [handler.service(details) for handler in self._handlers]
            handler = next((one for one in found if one is not None), None)
            if handler is None:
                return None
            self._found[path] = handler
        return self._found[path]

    def bind(self, listen):
        """Binds to `host:port`; the port. OSError."""
        host, _, port = listen.rpartition(":")
        host = host.strip("[]")
        self._socket = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind((host, int(port)))
            self._socket.listen(_BACKLOG)
        except OSError:
            self._socket.close()
            raise
        return self._socket.getsockname()[1]

    async def start(self):
        """Serves."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: _ServerConnection(self), sock=self._socket, ssl=self._tls, backlog=_BACKLOG
        )

    async def stop(self, grace_s):
        """Takes no more calls, and ends those that are here after `grace_s` at the latest."""
        self._server.close()
        for connection in list(self.connections):
            connection.leave()
        until = time.monotonic() + grace_s
        while self.connections and time.monotonic() < until:
            await asyncio.sleep(0.01)
        for connection in list(self.connections):
            connection.transport.abort()


class _Details:
    def __init__(self, method):
        self.method = method
