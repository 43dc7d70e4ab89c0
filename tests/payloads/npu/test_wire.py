"""The readers and writers by hand agree with the generated classes, for all that a parser takes."""

from __future__ import annotations

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from npuforge import npuforge_pb2 as pb
from npuforge import wire

TEXTS = st.text(max_size=20)
REQUESTS = st.builds(
    pb.InferRequest,
    request_id=TEXTS,
    model_id=TEXTS,
    payload=st.binary(max_size=300),
    input_format=st.integers(0, 4),
    priority=st.integers(-(2**31), 2**31 - 1),
    deadline_unix_ms=st.integers(0, 2**64 - 1),
    metadata=st.dictionaries(TEXTS, TEXTS, max_size=3),
)
ANSWERS = st.builds(
    pb.NodeInferResponse,
    request_id=TEXTS,
    result=st.binary(max_size=300),
    result_format=TEXTS,
    timing=st.builds(pb.Timing, node_queue_us=st.integers(0, 2**64 - 1), leg_to_node_us=st.integers(-9, 9)),
    error_code=TEXTS,
    error_message=TEXTS,
    node_received_unix_us=st.integers(0, 2**64 - 1),
    node_answered_unix_us=st.integers(0, 2**64 - 1),
)


def _same(request: wire.Request, message: pb.InferRequest) -> None:
    low, high = request.payload
    assert (request.request_id, request.model_id, request.input_format, request.priority) == (
        message.request_id,
        message.model_id,
        message.input_format,
        message.priority,
    )
    assert (request.data[low:high], request.deadline_unix_ms, request.metadata) == (
        message.payload,
        message.deadline_unix_ms,
        dict(message.metadata),
    )


@given(REQUESTS)
def test_a_request_is_read_as_the_generated_class_reads_it(message: pb.InferRequest) -> None:
    _same(wire.read_request(message.SerializeToString()), message)


@given(REQUESTS, REQUESTS)
def test_fields_may_come_twice_and_in_any_order(first: pb.InferRequest, second: pb.InferRequest) -> None:
    data = first.SerializeToString() + second.SerializeToString()
    _same(wire.read_request(data), pb.InferRequest.FromString(data))


@given(st.binary(max_size=60))
def test_any_bytes_are_read_as_the_generated_class_reads_them_or_refused(data: bytes) -> None:
    try:
        request = wire.read_request(data)
    except wire.WireError:
        return
    try:
        message = pb.InferRequest.FromString(data)
    except DecodeError:
        # Groups, field numbers and nested entries are judged more strictly there; the fields we use were sound.
        return
    _same(request, message)


@given(REQUESTS, st.booleans(), st.integers(0, 2**40))
def test_a_node_gets_the_same_image_whatever_else_the_client_said(
    message: pb.InferRequest, ours: bool, timeout_ms: int
) -> None:
    data = message.SerializeToString()
    request = wire.read_request(data)
    parts = wire.node_request(request, timeout_ms, ours)
    passed = b"".join(parts)
    found = pb.NodeInferRequest.FromString(passed)
    assert (found.request_id, found.model_id, found.payload, found.input_format) == (
        message.request_id,
        message.model_id,
        message.payload,
        message.input_format,
    )
    if ours and request.plain:
        assert parts[0] is data
    else:
        assert found.queue_timeout_ms == timeout_ms
        # Nothing of the client's own fields is left for a node to misread.
        clean = pb.NodeInferRequest(
            request_id=message.request_id,
            model_id=message.model_id,
            payload=message.payload,
            input_format=message.input_format,
            queue_timeout_ms=timeout_ms,
        )
        assert passed == clean.SerializeToString()


def test_a_request_out_of_order_is_put_in_order_for_a_node() -> None:
    data = (
        pb.InferRequest(input_format=3, priority=9).SerializeToString()
        + pb.InferRequest(request_id="r", payload=b"p").SerializeToString()
    )
    found = pb.NodeInferRequest.FromString(b"".join(wire.node_request(wire.read_request(data), 3000, True)))
    assert (found.request_id, found.payload, found.input_format, found.queue_timeout_ms) == ("r", b"p", 3, 3000)


@given(ANSWERS)
def test_an_answer_passes_with_its_result_untouched(message: pb.NodeInferResponse) -> None:
    answer = wire.read_node_answer(message.SerializeToString())
    assert (answer.error_code, answer.error_message) == (message.error_code, message.error_message)
    assert answer.timing == message.timing
    made = wire.client_answer("r", "king", answer, answer.timing, 2, 5, 6)
    found = pb.InferResponse.FromString(b"".join(made))
    assert (found.request_id, found.node_id, found.result, found.result_format, found.attempts) == (
        "r",
        "king",
        message.result,
        message.result_format,
        2,
    )
    assert found.timing == message.timing
    assert (found.scheduler_received_unix_us, found.scheduler_answered_unix_us) == (5, 6)


@given(st.lists(st.binary(max_size=50), max_size=4))
def test_a_nodes_answer_is_written_as_the_generated_class_writes_it(parts: list[bytes]) -> None:
    timing = pb.Timing(inference_us=5)
    made = wire.node_answer("r", parts, "f", timing, 1, 2)
    clean = pb.NodeInferResponse(
        request_id="r", result=b"".join(parts), result_format="f", timing=timing,
        node_received_unix_us=1, node_answered_unix_us=2,
    )  # fmt: skip
    assert pb.NodeInferResponse.FromString(b"".join(made)) == clean


@pytest.mark.parametrize(
    "data",
    [b"\x0a", b"\x0a\x05ab", b"\xff" * 11, b"\x00\x01", b"\x0b", b"\x0a\x01\xff", b"\x1d\x01", b"\x80", b"\x07"],
    ids=["no length", "cut", "long number", "field 0", "group", "no UTF-8", "cut fixed", "cut tag", "kind 7"],
)
def test_what_is_no_message_is_refused_by_name(data: bytes) -> None:
    with pytest.raises(wire.WireError):
        wire.read_request(data)
