"""Our HTTP/2: header compression by the RFC's examples, and peers that keep to nothing."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import grpc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from npuforge import channels
from npuforge.lean import frames as h2
from npuforge.lean import hpack, status
from npuforge.lean.client import Channel
from npuforge.lean.connection import MAX_STREAMS
from npuforge.lean.server import Server

RFC_REQUESTS = [
    ("828684418cf1e3c2e5f23a6ba0ab90f4ff", []),
    ("828684be5886a8eb10649cbf", [("cache-control", "no-cache")]),
    ("828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf", [("custom-key", "custom-value")]),
]


def test_the_requests_of_the_rfc_are_decoded() -> None:
    decoder = hpack.Decoder()
    first = [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "www.example.com")]
    https = [(":method", "GET"), (":scheme", "https"), (":path", "/index.html"), (":authority", "www.example.com")]
    for index, (block, more) in enumerate(RFC_REQUESTS):
        assert decoder.decode(bytes.fromhex(block)) == (https if index == 2 else first) + more


def test_the_huffman_code_is_whole() -> None:
    symbols = b"".join(hpack._SYMBOLS_BY_LENGTH.values())
    assert sorted(symbols) == list(range(256))
    # With the end of a string, 30 bits, nothing is left over.
    assert sum(len(group) * 2 ** (30 - bits) for bits, group in hpack._SYMBOLS_BY_LENGTH.items()) + 1 == 2**30


@given(
    st.lists(
        st.tuples(st.text("abc-:", min_size=1), st.text(st.characters(max_codepoint=255), max_size=200)), max_size=9
    )
)
def test_what_we_encode_is_decoded(headers: list[tuple[str, str]]) -> None:
    assert hpack.Decoder().decode(hpack.encode(headers)) == headers


@given(st.binary(max_size=80))
def test_any_bytes_are_headers_or_refused(data: bytes) -> None:
    try:
        found = hpack.Decoder().decode(data)
    except hpack.HpackError:
        return
    assert all(isinstance(name, str) and isinstance(value, str) for name, value in found)


def test_the_dynamic_table_has_an_end() -> None:
    decoder = hpack.Decoder()
    for index in range(500):
        name = f"k{index}".encode()
        decoder.decode(b"\x40" + bytes([len(name)]) + name + b"\x64" + b"v" * 100)
    assert decoder._bytes <= hpack.DYNAMIC_TABLE_BYTES
    assert decoder.decode(b"\xbe") == [("k499", "v" * 100)]
    with pytest.raises(hpack.HpackError):
        decoder.decode(b"\xff\x20")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("5S", 5.0), ("100m", 0.1), ("1H", 3600.0), ("", None), ("5", None), ("-5S", None), ("5X", None)],
)
def test_time_outs_are_read(text: str, seconds: float | None) -> None:
    assert status.timeout_s(text) == (None if seconds is None else pytest.approx(seconds))


@given(st.text(max_size=60))
def test_any_message_of_an_error_arrives(message: str) -> None:
    headers = hpack.Decoder().decode(hpack.encode(status.trailers(5, message)))
    error = status.error_in(headers)
    assert error is not None
    assert (error.code(), error.details()) == (grpc.StatusCode.NOT_FOUND, message)


class Handlers(grpc.GenericRpcHandler):
    """/echo gives back what came, /slow after a while, /fail fails, /stream counts."""

    def service(self, details: Any) -> Any:
        async def echo(data: Any, _: Any) -> Any:
            return [data]

        async def slow(*_: Any) -> Any:
            self.slow.append("began")
            try:
                await asyncio.sleep(30)
            except asyncio.CancelledError:
                self.slow.append("cancelled")
                raise

        async def fail(*_: Any) -> Any:
            raise ValueError("a bug")

        async def stream(*_: Any) -> Any:
            for index in range(5):
                yield bytes([index])
                await asyncio.sleep(0.01)

        unary = {"/echo": echo, "/slow": slow, "/fail": fail}.get(details.method)
        if unary is not None:
            return grpc.unary_unary_rpc_method_handler(unary)
        return grpc.unary_stream_rpc_method_handler(stream) if details.method == "/stream" else None

    def __init__(self) -> None:
        self.slow: list[str] = []


@dataclass(frozen=True)
class Served:
    """A server that runs."""

    port: int
    handlers: Handlers
    server: Server


def serve(work: Callable[[Served], Awaitable[Any]]) -> Any:
    """Runs `work` beside a server."""

    async def run() -> Any:
        server, handlers = Server(), Handlers()
        server.add_generic_rpc_handlers((handlers,))
        port = server.bind("127.0.0.1:0")
        await server.start()
        try:
            return await work(Served(port, handlers, server))
        finally:
            await server.stop(0.5)
            assert not server.connections

    return asyncio.run(run())


SIZES = [0, 1, 5, 16_379, 16_384, 65_535, 65_536, 1_228_800, channels.MAX_PAYLOAD_BYTES]


@pytest.mark.parametrize("ours", [True, False], ids=["lean client", "grpc client"])
def test_messages_of_all_sizes_come_back_as_they_were(ours: bool) -> None:
    async def work(at: Served) -> None:
        address = f"127.0.0.1:{at.port}"
        channel: Any = Channel(address) if ours else channels.open_channel(address, None)
        call = channel.unary_unary("/echo")
        messages = [random.Random(size).randbytes(size) for size in SIZES]
        answers = await asyncio.gather(*(call(message, timeout=60) for message in messages))
        assert [bytes(answer) for answer in answers] == messages
        await channel.close()

    serve(work)


def test_a_peer_with_small_frames_and_windows_gets_everything() -> None:
    async def work(at: Served) -> None:
        # gRPC's own defaults: 16 KiB frames, 64 KiB windows.
        options = [("grpc.max_receive_message_length", -1), ("grpc.http2.bdp_probe", 0)]
        async with grpc.aio.insecure_channel(f"127.0.0.1:{at.port}", options=options) as channel:
            messages = [random.Random(seed).randbytes(300_000 + seed) for seed in range(6)]
            calls = [channel.unary_unary("/echo")(message, timeout=60) for message in messages]
            assert await asyncio.gather(*calls) == messages

    serve(work)


def test_a_lean_client_calls_a_grpc_server() -> None:
    async def run() -> None:
        server = grpc.aio.server(options=channels.server_options())
        server.add_generic_rpc_handlers((_GrpcEcho(),))
        port = channels.add_port(server, "127.0.0.1:0", None)
        await server.start()
        channel = Channel(f"127.0.0.1:{port}")
        messages = [random.Random(size).randbytes(size) for size in SIZES]
        answers = await asyncio.gather(*(channel.unary_unary("/echo")(message, timeout=60) for message in messages))
        assert [bytes(answer) for answer in answers] == messages
        with pytest.raises(grpc.RpcError) as error:
            await channel.unary_unary("/none")(b"", timeout=5)
        assert error.value.code() == grpc.StatusCode.UNIMPLEMENTED
        await channel.close()
        await server.stop(0)

    asyncio.run(run())


class _GrpcEcho(grpc.GenericRpcHandler):
    def service(self, details: Any) -> Any:
        async def echo(data: Any, _: Any) -> Any:
            return data

        return grpc.unary_unary_rpc_method_handler(echo) if details.method == "/echo" else None


def test_failures_have_their_status_and_the_connection_lives_on() -> None:
    async def work(at: Served) -> None:
        channel = Channel(f"127.0.0.1:{at.port}")
        for path, message, code in (
            ("/none", b"", grpc.StatusCode.UNIMPLEMENTED),
            ("/fail", b"", grpc.StatusCode.INTERNAL),
            ("/echo", bytes(channels.MAX_MESSAGE_BYTES + 1), grpc.StatusCode.RESOURCE_EXHAUSTED),
        ):
            with pytest.raises(grpc.RpcError) as error:
                await channel.unary_unary(path)(message, timeout=30)
            assert error.value.code() == code
        assert bytes(await channel.unary_unary("/echo")(b"x", timeout=30)) == b"x"
        assert len(at.server.connections) == 1
        await channel.close()

    serve(work)


def test_a_caller_that_gives_up_ends_the_work_at_the_server() -> None:
    async def work(at: Served) -> None:
        channel = Channel(f"127.0.0.1:{at.port}")
        with pytest.raises(grpc.RpcError) as error:
            await channel.unary_unary("/slow")(b"", timeout=0.2)
        assert error.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        for _ in range(200):
            if at.handlers.slow == ["began", "cancelled"]:
                break
            await asyncio.sleep(0.02)
        assert at.handlers.slow == ["began", "cancelled"]
        await channel.close()

    serve(work)


@pytest.mark.parametrize("piece", [3_000, 60_000, 250_000])
def test_a_large_frame_may_come_in_pieces_with_pauses(piece: int) -> None:
    # The kernel wakes the reader late within a large frame; its last bytes must never be waited for in vain.
    message = random.Random(piece).randbytes(1_300_000)
    body = b"\0" + struct.pack(">I", len(message)) + message
    whole = _frame(h2.SETTINGS, 0, 0, b"") + _frame(h2.HEADERS, h2.END_HEADERS, 1, GOOD_HEADERS)
    whole += _frame(h2.DATA, h2.END_STREAM, 1, body)

    async def work(at: Served) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", at.port)
        writer.write(h2.PREFACE)
        widen = struct.pack(">I", 1 << 24)
        writer.write(_frame(h2.WINDOW_UPDATE, 0, 0, widen) + _frame(h2.SETTINGS, 0, 0, struct.pack(">HI", 4, 1 << 24)))
        for begin in range(0, len(whole), piece):
            writer.write(whole[begin : begin + piece])
            await writer.drain()
            await asyncio.sleep(0.001)
        found = b""
        while found.count(message[-64:]) < 1:
            found += await asyncio.wait_for(reader.read(1 << 20), 10)
        writer.close()
        return found

    assert len(serve(work)) > len(message)


def test_a_peer_that_goes_within_a_large_frame_is_noticed_at_once() -> None:
    head = _frame(h2.SETTINGS, 0, 0, b"") + _frame(h2.HEADERS, h2.END_HEADERS, 1, GOOD_HEADERS)
    data = _frame(h2.DATA, h2.END_STREAM, 1, bytes(1_300_000))[: 9 + 400_000]

    async def work(at: Served) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", at.port)
        writer.write(h2.PREFACE + head + data)
        await writer.drain()
        await asyncio.sleep(0.2)
        assert len(at.server.connections) == 1
        writer.close()
        for _ in range(100):
            if not at.server.connections:
                break
            await asyncio.sleep(0.02)
        assert not at.server.connections

    serve(work)


def test_a_client_waits_while_the_peer_takes_no_more_calls() -> None:
    async def work(at: Served) -> None:
        channel = Channel(f"127.0.0.1:{at.port}")
        echo, slow = channel.unary_unary("/echo"), channel.unary_unary("/slow")
        # The first call learns how many the peer takes at once.
        assert bytes(await echo(b"x", timeout=30)) == b"x"
        answers = await asyncio.gather(*(echo(bytes([n % 251]) * 70_000, timeout=60) for n in range(3 * MAX_STREAMS)))
        assert [(answer[0], len(answer)) for answer in answers] == [(n % 251, 70_000) for n in range(3 * MAX_STREAMS)]
        held = [asyncio.ensure_future(slow(b"", timeout=60)) for _ in range(MAX_STREAMS)]
        for _ in range(500):
            if len(at.handlers.slow) == MAX_STREAMS:
                break
            await asyncio.sleep(0.02)
        with pytest.raises(grpc.RpcError) as error:
            await echo(b"late", timeout=0.2)
        assert error.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        gone, waits = (asyncio.ensure_future(echo(b"y", timeout=60)) for _ in range(2))
        await asyncio.sleep(0.05)
        # The one whose turn it would be has gone in the same moment: the next one is not forgotten.
        held.pop().cancel()
        gone.cancel()
        assert bytes(await asyncio.wait_for(waits, 20)) == b"y"
        for call in held:
            call.cancel()
        await asyncio.gather(gone, *held, return_exceptions=True)
        await channel.close()

    serve(work)


def test_calls_that_wait_for_room_go_on_over_a_new_connection() -> None:
    async def work(at: Served) -> None:
        channel = Channel(f"127.0.0.1:{at.port}")
        echo, slow = channel.unary_unary("/echo"), channel.unary_unary("/slow")
        assert bytes(await echo(b"x", timeout=30)) == b"x"
        held = [asyncio.ensure_future(slow(b"", timeout=60)) for _ in range(MAX_STREAMS)]
        await asyncio.sleep(0.1)
        waits = asyncio.ensure_future(echo(b"y", timeout=60))
        await asyncio.sleep(0.05)
        for connection in list(at.server.connections):
            connection.transport.abort()
        assert bytes(await asyncio.wait_for(waits, 20)) == b"y"
        failed = await asyncio.gather(*held, return_exceptions=True)
        assert all(isinstance(error, grpc.RpcError) for error in failed)
        await channel.close()

    serve(work)


def test_a_server_that_is_not_there_is_told_at_once_and_found_when_it_comes() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    async def run() -> None:
        channel = Channel(f"127.0.0.1:{port}")
        with pytest.raises(grpc.RpcError) as error:
            await channel.unary_unary("/echo")(b"", timeout=5)
        assert error.value.code() == grpc.StatusCode.UNAVAILABLE
        server = Server()
        server.add_generic_rpc_handlers((Handlers(),))
        server.bind(f"127.0.0.1:{port}")
        await server.start()
        await asyncio.sleep(0.15)
        assert bytes(await channel.unary_unary("/echo")(b"x", timeout=5)) == b"x"
        await channel.close()
        await server.stop(1)

    asyncio.run(run())


def test_a_stream_comes_in_order_and_ends() -> None:
    async def work(at: Served) -> None:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{at.port}") as channel:
            found = [bytes(item) async for item in channel.unary_stream("/stream")(b"", timeout=30)]
        assert found == sorted(found)
        assert found[0] == b"\x00"

    serve(work)


def _frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
    return struct.pack(">I", len(body))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + body


FRAMES = st.builds(
    _frame, st.integers(0, 12), st.integers(0, 255), st.sampled_from([0, 1, 2, 3, 5, 2**31 - 1]), st.binary(max_size=40)
)
GOOD_HEADERS = hpack.encode([(":method", "POST"), (":scheme", "http"), (":path", "/echo"), ("te", "trailers")])
OPENED = st.just(_frame(h2.HEADERS, h2.END_HEADERS, 1, GOOD_HEADERS))


@settings(max_examples=15, deadline=None)
@given(st.lists(st.lists(st.one_of(FRAMES, OPENED), max_size=8), min_size=10, max_size=20), st.booleans())
def test_a_peer_that_keeps_to_nothing_is_closed_and_others_are_served(
    lives: list[list[bytes]], with_preface: bool
) -> None:
    async def work(at: Served) -> None:
        channel = Channel(f"127.0.0.1:{at.port}")
        for frames in lives:
            reader, writer = await asyncio.open_connection("127.0.0.1", at.port)
            writer.write((h2.PREFACE if with_preface else b"") + b"".join(frames))
            writer.write_eof()
            try:
                await asyncio.wait_for(reader.read(), 20)
            except ConnectionError:
                pass
            writer.close()
        assert bytes(await channel.unary_unary("/echo")(b"x", timeout=30)) == b"x"
        await channel.close()

    serve(work)


@pytest.mark.parametrize(
    ("frames", "code"),
    [
        (_frame(h2.DATA, 0, 0, b"x"), h2.PROTOCOL_ERROR),
        (_frame(h2.DATA, 0, 5, b"x"), h2.PROTOCOL_ERROR),
        (_frame(h2.PING, 0, 0, b"x"), h2.FRAME_SIZE_ERROR),
        (_frame(h2.PUSH_PROMISE, 0, 1, b""), h2.PROTOCOL_ERROR),
        (_frame(h2.HEADERS, h2.END_HEADERS, 1, b"\x80"), h2.COMPRESSION_ERROR),
        (_frame(h2.HEADERS, h2.END_HEADERS, 2, GOOD_HEADERS), h2.STREAM_CLOSED),
        (_frame(h2.HEADERS, 0, 1, b"") + _frame(h2.PING, 0, 0, bytes(8)), h2.PROTOCOL_ERROR),
        (_frame(h2.WINDOW_UPDATE, 0, 0, b"\x7f\xff\xff\xff") * 2, h2.FLOW_CONTROL_ERROR),
        (_frame(h2.SETTINGS, 0, 0, b"x"), h2.PROTOCOL_ERROR),
        (b"\xff\xff\xff\x04" + bytes(5), h2.FRAME_SIZE_ERROR),
    ],
)
def test_each_breach_of_the_protocol_has_its_error(frames: bytes, code: int) -> None:
    async def work(at: Served) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", at.port)
        writer.write(h2.PREFACE + frames)
        try:
            return await asyncio.wait_for(reader.read(), 20)
        finally:
            writer.close()

    said = serve(work)
    at = said.rindex(bytes([h2.GOAWAY, 0, 0, 0, 0, 0]))
    assert struct.unpack(">I", said[at + 10 : at + 14])[0] == code
