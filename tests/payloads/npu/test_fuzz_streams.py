"""The streaming RPCs under rubbish: an answer or a code each, no crash, and nothing of a stream outlives its caller."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from npuforge import channels, rpc, security, transport
from npuforge import npuforge_pb2 as pb

from boardbench.certs import issue

from .cluster import Cluster, until

FUZZ = settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
CODE = re.compile(r"NPF-\d{4}")
TABLES = {"scheduler": rpc.SCHEDULER, "node": rpc.NODE}
STREAMS = [(end, name) for end, table in TABLES.items() for name, method in table.items() if method.streams]
HOUR_MS = 3_600_000
RIGHT = "right-and-long-enough"
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
# What a program may have more of than before: a connection that is just being closed.
SPARE = 2


class Ends:
    """A scheduler and a node, what serves them, and raw calls to both."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        node = cluster.list_nodes().nodes[0].descriptor
        assert cluster.scheduler is not None
        self.addresses = {"scheduler": cluster.address, "node": node.address}
        self.programs = {"scheduler": cluster.scheduler, "node": cluster.nodes[node.node_id]}
        self.channels = {
            end: grpc.insecure_channel(address, options=channels.client_options())
            for end, address in self.addresses.items()
        }

    def call(self, end: str, name: str, data: bytes, timeout_s: float = 30.0) -> Any:
        """The stream of answers, as bytes."""
        return self.channels[end].unary_stream(TABLES[end][name].path)(data, timeout=timeout_s)

    def first(self, end: str, name: str, data: bytes) -> tuple[bytes | None, grpc.StatusCode, str]:
        """The first answer, or the status that came in place of it; the stream is left then."""
        stream = self.call(end, name, data)
        try:
            return next(stream), grpc.StatusCode.OK, ""
        except grpc.RpcError as error:
            return None, error.code(), error.details()
        finally:
            stream.cancel()

    def files(self, end: str) -> int:
        """How many files the program has open."""
        return len(os.listdir(f"/proc/{self.programs[end].process.pid}/fd"))

    def well(self) -> None:
        """Both serve, and have said nothing of a failure of their own."""
        for end, name in STREAMS:
            assert self.first(end, name, b"")[0] is not None
            assert self.programs[end].process.poll() is None
        assert self.cluster.infer().error_code in ("", "NPF-0000")
        assert "Traceback" not in self.cluster.logs()


@pytest.fixture(scope="module", params=transport.ENGINES)
def ends(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ends]:
    engine = {"transport": {"engine": request.param}}
    with Cluster(tmp_path_factory.mktemp(request.param), engine) as cluster:
        cluster.start(("king",), engine)
        made = Ends(cluster)
        yield made
        made.well()
        for channel in made.channels.values():
            channel.close()


def test_every_stream_of_the_protocol_is_here() -> None:
    assert STREAMS == [("scheduler", "StreamTelemetry"), ("node", "StreamTelemetry")]


@pytest.mark.parametrize(("end", "name"), STREAMS)
@FUZZ
@given(data=st.binary(max_size=200))
def test_any_bytes_get_an_answer_or_a_code(ends: Ends, end: str, name: str, data: bytes) -> None:
    answer, status, details = ends.first(end, name, data)
    if answer is None:
        assert status == grpc.StatusCode.INVALID_ARGUMENT
        assert CODE.search(details)
    else:
        assert TABLES[end][name].response.FromString(answer).unix_us > 0


@pytest.mark.parametrize(("end", "name"), STREAMS)
@FUZZ
@given(period_ms=st.integers(0, 2**32 - 1))
def test_any_period_gives_a_first_sample_at_once(ends: Ends, end: str, name: str, period_ms: int) -> None:
    wanted = pb.StreamTelemetryRequest(period_ms=period_ms).SerializeToString()
    assert ends.first(end, name, wanted)[0] is not None


@pytest.mark.parametrize(("end", "name"), STREAMS)
def test_a_request_over_the_limit_is_told_as_such_and_one_below_it_is_answered(ends: Ends, end: str, name: str) -> None:
    def unknown_field(size: int) -> bytes:
        return pb.InferRequest(payload=bytes(size)).SerializeToString()

    assert ends.first(end, name, unknown_field(channels.MAX_PAYLOAD_BYTES))[0] is not None
    options = [("grpc.max_send_message_length", -1)]
    with grpc.insecure_channel(ends.addresses[end], options=options) as channel, pytest.raises(grpc.RpcError) as error:
        next(channel.unary_stream(TABLES[end][name].path)(unknown_field(channels.MAX_MESSAGE_BYTES + 1), timeout=30))
    assert error.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.parametrize(("end", "name"), STREAMS)
@pytest.mark.parametrize("timeout_s", [0.000_001, 0.7])
def test_a_deadline_ends_the_stream_before_it_or_in_its_middle(
    ends: Ends, end: str, name: str, timeout_s: float
) -> None:
    files = ends.files(end)
    data = pb.StreamTelemetryRequest(period_ms=100).SerializeToString()
    came: list[bytes] = []
    with pytest.raises(grpc.RpcError) as error:
        came.extend(ends.call(end, name, data, timeout_s))
    assert error.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    until(lambda: ends.files(end) <= files + SPARE, "the stream's files are closed")


def leave_cancelled(address: str, path: str, data: bytes) -> None:
    """Twenty callers that say that they have enough."""
    for _ in range(20):
        with grpc.insecure_channel(address, options=channels.client_options()) as channel:
            stream = channel.unary_stream(path)(data, timeout=30)
            next(stream)
            stream.cancel()


def leave_closed(address: str, path: str, data: bytes) -> None:
    """Twenty whose connection closes under their stream."""
    for _ in range(20):
        with grpc.insecure_channel(address, options=channels.client_options()) as channel:
            next(channel.unary_stream(path)(data, timeout=30))


def leave_killed(address: str, path: str, data: bytes) -> None:
    """One that is killed with ten streams open."""
    program = (
        "import grpc, sys, time\n"
        "channels = [grpc.insecure_channel(sys.argv[1], [('n', n)]) for n in range(10)]\n"
        "streams = [one.unary_stream(sys.argv[2])(bytes.fromhex(sys.argv[3])) for one in channels]\n"
        "[next(one) for one in streams]\n"
        "print('open', flush=True)\n"
        "time.sleep(60)\n"
    )
    argv = [sys.executable, "-c", program, address, path, data.hex()]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"open\n"
        child.send_signal(signal.SIGKILL)


def leave_reset(address: str, path: str, data: bytes) -> None:
    """Twenty that reset their connection in the middle of what they send."""
    headers = b"\x82\x86\x84\x41\x01x" + path.encode()
    host, _, port = address.rpartition(":")
    for cut in range(20):
        with socket.create_connection((host, int(port)), 10) as peer:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            peer.sendall((PREFACE + bytes(3) + b"\x04" + bytes(5) + headers + data)[: 4 + 3 * cut])


@pytest.mark.parametrize("leave", [leave_cancelled, leave_closed, leave_killed, leave_reset])
@pytest.mark.parametrize(("end", "name"), STREAMS)
@pytest.mark.parametrize("period_ms", [100, HOUR_MS])
def test_a_caller_that_goes_away_in_mid_stream_leaves_nothing_open(
    ends: Ends, end: str, name: str, period_ms: int, leave: Callable[[str, str, bytes], None]
) -> None:
    ends.first(end, name, b"")
    files = ends.files(end)
    leave(
        ends.addresses[end], TABLES[end][name].path, pb.StreamTelemetryRequest(period_ms=period_ms).SerializeToString()
    )
    until(lambda: ends.files(end) <= files + SPARE, f"the {end} had {files} files open, and has {ends.files(end)}")
    assert ends.first(end, name, b"")[0] is not None


@pytest.mark.parametrize(("end", "name"), STREAMS)
@FUZZ
@given(frames=st.binary(max_size=120))
def test_frames_that_are_none_close_their_connection_alone(ends: Ends, end: str, name: str, frames: bytes) -> None:
    host, _, port = ends.addresses[end].rpartition(":")
    with socket.create_connection((host, int(port)), 10) as peer:
        peer.sendall(PREFACE + frames)
        peer.shutdown(socket.SHUT_WR)
        peer.settimeout(10)
        while peer.recv(65536):
            pass
    assert ends.first(end, name, b"")[0] is not None


@pytest.mark.parametrize("engine", transport.ENGINES)
def test_no_task_and_no_source_of_a_stream_outlives_its_caller(engine: str) -> None:
    """In one process with the server: its tasks, and the sources of its streams, are counted."""
    open_sources = 0

    async def telemetry(request: Any, _: Any) -> AsyncIterator[Any]:
        nonlocal open_sources
        open_sources += 1
        try:
            while True:
                yield pb.NodeTelemetry(unix_us=1)
                await asyncio.sleep(request.period_ms / 1000)
        finally:
            open_sources -= 1

    async def nothing(*_: Any) -> Any:
        raise AssertionError("nobody asks for this")

    async def settled(check: Callable[[], bool], what: Callable[[], str]) -> None:
        for _ in range(400):
            if check():
                return
            await asyncio.sleep(0.05)
        raise AssertionError(what())

    async def run() -> None:
        plain = security.load_security({"security": "plaintext"})
        functions = {**dict.fromkeys(rpc.NODE, nothing), "StreamTelemetry": telemetry}
        handlers = rpc.handlers(rpc.NODE, functions, raw=("Infer",), engine=engine)
        server, port = transport.bind_server(engine, "127.0.0.1:0", plain, handlers)
        await server.start()
        await asyncio.sleep(0.1)
        before = len(asyncio.all_tasks())
        for period_ms in (20, HOUR_MS):
            opened = [channels.open_channel(f"127.0.0.1:{port}", None) for _ in range(10)]
            calls = [rpc.call(one, rpc.NODE["StreamTelemetry"]) for one in opened]
            streams = [one(pb.StreamTelemetryRequest(period_ms=period_ms), timeout=60) for one in calls]
            iterators = [aiter(stream) for stream in streams]
            for iterator in iterators:
                assert (await anext(iterator)).unix_us == 1
            assert open_sources == 10
            for stream in streams[:5]:
                stream.cancel()
            for one in opened:
                await one.close()
            del streams, iterators, calls
            await settled(lambda: open_sources == 0, lambda: f"{open_sources} sources of streams are open")
            await settled(
                lambda: len(asyncio.all_tasks()) <= before, lambda: f"{before} tasks then, now {asyncio.all_tasks()}"
            )
        await server.stop(1.0)

    asyncio.run(run())


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certs")
    issue(folder / "ours", ["king", "npu-scheduler", "npu-load"])
    issue(folder / "theirs", ["npu-load"])
    return folder


def _tls(folder: Path, name: str) -> dict[str, object]:
    return {
        "ca_file": str(folder / "ca.pem"),
        "certificate_file": str(folder / f"{name}.pem"),
        "key_file": str(folder / f"{name}-key.pem"),
    }


def test_a_stream_is_for_the_fleet_alone(tmp_path: Path, certs: Path) -> None:
    path = rpc.SCHEDULER["StreamTelemetry"].path

    def first(cluster: Cluster, folder: Path | None) -> str:
        options = channels.client_options(security.SCHEDULER_NAME)
        if folder is None:
            made = grpc.insecure_channel(cluster.address)
        else:
            table = _tls(folder, "npu-load")
            if folder.name == "theirs":  # they trust our authority; ours must not trust theirs
                table["ca_file"] = str(certs / "ours" / "ca.pem")
            credentials = security.channel_credentials(security.load_security(table))
            made = grpc.secure_channel(cluster.address, credentials, options)
        with made as channel:
            try:
                return str(pb.SchedulerTelemetry.FromString(next(channel.unary_stream(path)(b"", timeout=5))).policy)
            except grpc.RpcError as error:
                return str(error.code().name)

    with Cluster(tmp_path, {"transport": {**_tls(certs / "ours", "npu-scheduler"), "security": "tls"}}) as cluster:
        cluster.start_scheduler()
        assert first(cluster, certs / "ours") == "round-robin"
        assert first(cluster, certs / "theirs") in ("UNAVAILABLE", "DEADLINE_EXCEEDED")
        assert first(cluster, None) in ("UNAVAILABLE", "DEADLINE_EXCEEDED")
        assert first(cluster, certs / "ours") == "round-robin"


def test_any_token_but_the_right_one_is_refused(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(RIGHT)
    token.chmod(0o600)
    with Cluster(tmp_path, {"transport": {"token_file": str(token)}}) as cluster:
        cluster.start_scheduler()
        descriptor = pb.NodeDescriptor(node_id="king", address="127.0.0.1:1")

        @FUZZ
        @given(
            word=st.one_of(st.text(max_size=40), st.sampled_from(["right-and-long-enoug", "right-and-long-enough "]))
        )
        def refused(word: str) -> None:
            answer = cluster.call("RegisterNode", pb.RegisterNodeRequest(descriptor=descriptor, token=word))
            assert (answer.accepted, answer.error_code) == (False, "NPF-1004")

        refused()
        assert not cluster.list_nodes().nodes
        assert RIGHT not in cluster.logs()
