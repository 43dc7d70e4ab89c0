"""Every RPC under rubbish: an error code each, no crash, no leak."""

from __future__ import annotations

import asyncio
import os
import re
import time
from pathlib import Path
from typing import Any

import grpc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from npuforge import channels, rpc
from npuforge import npuforge_pb2 as pb

from .cluster import MODEL, Cluster, image_of, request, unary

FUZZ = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
CODE = re.compile(r"NPF-\d{4}")
UNARY = [("scheduler", name) for name, method in rpc.SCHEDULER.items() if not method.streams]
UNARY += [("node", name) for name, method in rpc.NODE.items() if not method.streams]
# What changes the cluster for good is fuzzed with names that it does not have.
SAFE_NAMES = st.text(max_size=10).map(lambda text: "no-" + text)


@pytest.fixture(scope="module")
def ends(shared: Cluster) -> Any:
    """Raw channels to the scheduler and to one node."""
    address = shared.list_nodes().nodes[0].descriptor.address
    with grpc.insecure_channel(address, options=channels.client_options()) as node:
        yield {"scheduler": (shared.channel, rpc.SCHEDULER), "node": (node, rpc.NODE)}


def _raw(ends: Any, end: str, name: str, data: bytes) -> tuple[bytes | None, grpc.StatusCode, str]:
    channel, table = ends[end]
    try:
        return channel.unary_unary(table[name].path)(data, timeout=30), grpc.StatusCode.OK, ""
    except grpc.RpcError as error:
        return None, error.code(), error.details()


@pytest.mark.parametrize(("end", "name"), UNARY)
@FUZZ
@given(data=st.binary(max_size=200))
def test_any_bytes_get_an_answer_or_a_code(ends: Any, end: str, name: str, data: bytes) -> None:
    answer, status, details = _raw(ends, end, name, data)
    if answer is None:
        assert status == grpc.StatusCode.INVALID_ARGUMENT
        assert CODE.search(details)
    elif name == "Infer":
        method = ends[end][1][name]
        assert CODE.fullmatch(method.response.FromString(answer).error_code)


@FUZZ
@given(
    model=st.one_of(st.just(MODEL), st.text(max_size=20)),
    size=st.integers(0, 100),
    kind=st.integers(-(2**31), 2**31 - 1),
    deadline=st.integers(0, 2**64 - 1),
    metadata=st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=2),
)
def test_requests_that_cannot_be_served_get_a_code(
    shared: Cluster, model: str, size: int, kind: int, deadline: int, metadata: dict[str, str]
) -> None:
    message = pb.InferRequest(
        request_id="f", model_id=model, payload=bytes(size), deadline_unix_ms=deadline, metadata=metadata
    )
    message.input_format = kind
    answer = shared.call("Infer", message)
    assert CODE.fullmatch(answer.error_code)
    assert answer.error_code not in ("NPF-0000", "NPF-1501")
    assert (answer.request_id, answer.result) == ("f", b"")


@FUZZ
@given(descriptor=st.builds(pb.NodeDescriptor, node_id=SAFE_NAMES, address=st.text(max_size=20)))
def test_registrations_of_nodes_that_cannot_be_called_are_refused(shared: Cluster, descriptor: Any) -> None:
    answer = shared.call("RegisterNode", pb.RegisterNodeRequest(descriptor=descriptor))
    if answer.accepted:
        assert shared.call("DeregisterNode", pb.DeregisterNodeRequest(node_id=descriptor.node_id)).accepted
    else:
        assert answer.error_code == "NPF-1001"


@FUZZ
@given(
    name=SAFE_NAMES, action=st.integers(-(2**31), 2**31 - 1), wait_ms=st.integers(0, 2**32 - 1),
    error_rate=st.floats(), celsius=st.floats(),
)  # fmt: skip
def test_words_about_nodes_that_are_not_there_change_nothing(
    shared: Cluster, name: str, action: int, wait_ms: int, error_rate: float, celsius: float
) -> None:
    health = pb.NodeHealth(error_rate=error_rate, has_temperature_c=True, temperature_c=celsius)
    beat = shared.call("Heartbeat", pb.HeartbeatRequest(node_id=name, health=health))
    assert (beat.accepted, beat.must_reregister) == (False, True)
    assert not shared.call("DeregisterNode", pb.DeregisterNodeRequest(node_id=name)).accepted
    order = pb.DrainNodeRequest(node_id=name, wait_ms=wait_ms)
    order.action = action
    assert shared.call("DrainNode", order).error_code == "NPF-1001"


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"model_id": "other"}, "NPF-1101"),
        ({"model_id": ""}, "NPF-1001"),
        ({"payload": b""}, "NPF-1001"),
        ({"payload": b"x"}, "NPF-1001"),
        ({"payload": bytes(channels.MAX_PAYLOAD_BYTES)}, "NPF-1001"),
        ({"payload": bytes(channels.MAX_PAYLOAD_BYTES + 1)}, "NPF-1002"),
        ({"input_format": 1}, "NPF-1003"),
        ({"input_format": 77}, "NPF-1003"),
        ({"deadline_unix_ms": 1}, "NPF-1202"),
        ({"metadata": {"node": "nobody"}}, "NPF-1201"),
    ],
    ids=lambda value: str(value)[:30],
)  # fmt: skip
def test_each_mistake_has_its_code(shared: Cluster, fields: dict[str, Any], code: str) -> None:
    answer = shared.infer(1, **fields)
    assert (answer.error_code, answer.result) == (code, b"")
    assert answer.error_message


def test_a_message_over_the_limit_of_both_sides_is_told_as_such(shared: Cluster) -> None:
    options = [("grpc.max_send_message_length", -1)]
    with grpc.insecure_channel(shared.address, options=options) as channel, pytest.raises(grpc.RpcError) as error:
        unary(channel, rpc.SCHEDULER["Infer"], request(payload=bytes(channels.MAX_MESSAGE_BYTES + 1)))
    assert error.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


def test_a_deadline_that_ends_on_the_way_is_told_by_the_status(shared: Cluster) -> None:
    # The shortest deadline that gRPC sends is a millisecond; an image of the usual size may be there and back in that.
    large = request(payload=bytes(channels.MAX_PAYLOAD_BYTES))
    with pytest.raises(grpc.RpcError) as error:
        shared.call("Infer", large, timeout_s=0.000_001)
    assert error.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED


def test_an_rpc_that_is_not_there_is_told(shared: Cluster) -> None:
    with pytest.raises(grpc.RpcError) as error:
        shared.channel.unary_unary("/npuforge.v1.SchedulerService/BatchInfer")(b"", timeout=30)
    assert error.value.code() == grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"GET /metrics HTTP/1.1\r\n\r\n",
        b"POST /metrics HTTP/1.1\r\n\r\n",
        b"\r\n\r\n",
        b"x" * 20_000,
        b"\xff\xff \r\n\r\n",
    ],
)
def test_the_page_server_answers_rubbish_or_closes(shared: Cluster, head: bytes) -> None:
    async def ask() -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", shared.http_port)
        writer.write(head)
        writer.write_eof()
        try:
            return await reader.read()
        except ConnectionError:
            return b""
        finally:
            writer.close()

    answer = asyncio.run(ask())
    assert not answer or re.match(rb"HTTP/1.1 (200|400|405) ", answer)
    assert shared.page("/healthz") == "ok\n"


def _open_files(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def _resident_mib(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def test_a_thousand_connections_are_served_and_leave_nothing(shared: Cluster) -> None:
    assert shared.scheduler is not None
    pid = shared.scheduler.process.pid
    shared.infer()
    files = _open_files(pid)

    async def one(index: int, gate: asyncio.Semaphore) -> str:
        method = rpc.SCHEDULER["Infer" if index % 2 else "ListNodes"]
        channel = channels.open_channel(shared.address, None)
        async with gate:
            await channel.channel_ready()
        opened.append(channel)
        bad = pb.InferRequest(request_id="c", model_id="other", payload=b"x")
        message = bad if index % 2 else pb.ListNodesRequest()
        answer = await rpc.call(channel, method)(message, timeout=60)
        return answer.error_code if index % 2 else answer.policy

    opened: list[Any] = []

    async def all_of_them() -> list[str]:
        gate = asyncio.Semaphore(50)
        try:
            answers = await asyncio.gather(*(one(index, gate) for index in range(1000)))
            assert _open_files(pid) >= files + 1000
            return answers
        finally:
            await asyncio.gather(*(channel.close() for channel in opened))

    answers = asyncio.run(all_of_them())
    assert answers.count("round-robin") == answers.count("NPF-1101") == 500
    end = time.monotonic() + 30
    while _open_files(pid) > files + 5:
        assert time.monotonic() < end, f"{_open_files(pid)} files are open, {files} were"
        time.sleep(0.1)


def test_memory_does_not_grow_with_requests(shared: Cluster) -> None:
    assert shared.scheduler is not None
    pids = [shared.scheduler.process.pid, *(node.process.pid for node in shared.nodes.values())]

    def load() -> None:
        for seed in range(60):
            shared.infer(seed % 5)
            shared.infer(1, payload=image_of(1)[:1000])

    load()
    before = [_resident_mib(pid) for pid in pids]
    load()
    load()
    after = [_resident_mib(pid) for pid in pids]
    # 120 images of 1.2 MB each way would be 290 MiB.
    assert max(now - then for now, then in zip(after, before, strict=True)) < 60
    assert all(program.process.poll() is None for program in [shared.scheduler, *shared.nodes.values()])
    assert "Traceback" not in shared.logs()
