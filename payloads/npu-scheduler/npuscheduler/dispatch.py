"""One request's way: choose and count, call, judge the answer, try another node, give up in time."""

import asyncio
import random
import time

import grpc

from npuforge import npuforge_pb2 as pb
from npuforge import wire
from npuforge.codes import RETRYABLE, Code, Refusal, from_node
from npuscheduler.links import LinkClosed

_INSIDE = ("node_queue_us", "decode_us", "preprocess_us", "npu_input_us", "inference_us", "postprocess_us")


class NodeFailed(Exception):
    """One try failed; `code` says how."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code
        self.message = message


def _transport_failure(error):
    status = error.code()
    if status == grpc.StatusCode.DEADLINE_EXCEEDED:
        return NodeFailed(Code.NODE_TIMEOUT, "no answer in time")
    if status == grpc.StatusCode.RESOURCE_EXHAUSTED:
        return NodeFailed(Code.PAYLOAD_TOO_LARGE, f"the message is too big for the node: {error.details()}")
    return NodeFailed(Code.NODE_UNAVAILABLE, f"{status.name} {error.details()}")


class Trip:
    """A request on its way: when it came, when it must be answered, which nodes have failed it."""

    def __init__(self, request, received_ns, received_unix_us, until_s):
        self.request = request
        self.received_ns, self.received_unix_us, self.until_s = received_ns, received_unix_us, until_s
        self.began_ns = self.routed_ns = received_ns
        self.tried = []

    def left_s(self):
        """Seconds until it must be answered."""
        return self.until_s - time.perf_counter()

    def tried_ids(self):
        """The nodes that have failed it."""
        return [node_id for node_id, _ in self.tried]

    def told(self):
        """What became of each try."""
        return "; ".join(f"{node_id}: {failure.code.value} {failure.message}" for node_id, failure in self.tried)

    def given_up(self):
        """The last failure's code, and all tries."""
        return Refusal(self.tried[-1][1].code, self.told(), len(self.tried))

    def too_late(self):
        """It was not answered in time; all tries."""
        told = f" ({self.told()})" if self.tried else ""
        return Refusal(Code.REQUEST_TIMEOUT, f"not answered in time{told}", len(self.tried))

    def answer(self, node, answer):
        """The client's answer as buffers, with the scheduler's own times."""
        timing = answer.timing
        # What earlier tries took; a first try waits for nothing here.
        timing.scheduler_queue_us = (self.began_ns - self.received_ns) // 1000 if self.tried else 0
        timing.scheduler_route_us = (self.routed_ns - self.began_ns) // 1000
        timing.end_to_end_us = (time.perf_counter_ns() - self.received_ns) // 1000
        return wire.client_answer(
            self.request.request_id,
            node.node_id,
            answer,
            timing,
            len(self.tried) + 1,
            self.received_unix_us,
            time.time_ns() // 1000,
        )


class Dispatcher:
    """Carries requests to nodes. For one event loop."""

    def __init__(self, settings, registry, links, metrics):
        scheduler = settings["scheduler"]
        self._request_timeout_s = scheduler["request_timeout_ms"] / 1000
        self._node_timeout_s = scheduler["node_rpc_timeout_ms"] / 1000
        self._queue_timeout_ms = scheduler["queue_timeout_ms"]
        self._tries = scheduler["max_retries"] + 1
        self._backoff_s = (scheduler["retry_backoff_min_ms"] / 1000, scheduler["retry_backoff_max_ms"] / 1000)
        self._registry, self._links, self._metrics = registry, links, metrics

    def _until(self, request, received_ns, left_s):
        """When the request must be answered. Refusal when that has passed already."""
        limit_s = self._request_timeout_s
        if left_s is not None:
            limit_s = min(limit_s, left_s)
        if request.deadline_unix_ms:
            limit_s = min(limit_s, request.deadline_unix_ms / 1000 - time.time())
            if limit_s <= 0:
                raise Refusal(Code.DEADLINE_UNSATISFIABLE, "the deadline had passed when the request came")
        return received_ns / 1e9 + limit_s

    async def infer(self, request, received_ns, received_unix_us, left_s):
        """The `InferResponse` as buffers. `received_ns` by perf_counter. Refusal, which names the nodes tried."""
        trip = Trip(request, received_ns, received_unix_us, self._until(request, received_ns, left_s))
        only = request.metadata.get("node") or None
        while trip.left_s() > 0:
            trip.began_ns = time.perf_counter_ns()
            try:
                reservation = self._registry.reserve(request.model_id, trip.tried_ids(), only)
            except Refusal:
                if not trip.tried:
                    raise
                raise trip.given_up() from None
            with reservation:
                trip.routed_ns = time.perf_counter_ns()
                try:
                    return await self._try(trip, reservation)
                except NodeFailed as failure:
                    self._metrics.node_answered(reservation.node.node_id, failure.code)
                    trip.tried.append((reservation.node.node_id, failure))
            if failure_is_final(trip) or len(trip.tried) == self._tries:
                raise trip.given_up()
            self._metrics.retried()
            await asyncio.sleep(min(random.uniform(*self._backoff_s), max(0.0, trip.left_s())))
        raise trip.too_late()

    async def _try(self, trip, reservation):
        """One try at one node: the client's answer as buffers. NodeFailed."""
        node = reservation.node
        timeout_s = min(self._node_timeout_s, trip.left_s())
        parts = wire.node_request(trip.request, self._queue_timeout_ms, node.descriptor.accepts_client_requests)
        sent_unix_us, sent_ns = time.time_ns() // 1000, time.perf_counter_ns()
        try:
            raw = await self._links.get(node).infer(parts, timeout_s)
        except grpc.RpcError as error:
            failure = _transport_failure(error)
            # A time-out that the client's own short deadline made says nothing of the node.
            if failure.code != Code.NODE_TIMEOUT or timeout_s == self._node_timeout_s:
                self._registry.failed(reservation)
            raise failure from None
        except LinkClosed:
            raise NodeFailed(Code.NODE_UNAVAILABLE, "it has rebooted or left") from None
        got_ns, got_unix_us = time.perf_counter_ns(), time.time_ns() // 1000
        answer = _judged(raw)
        self._time(answer, node, (got_ns - sent_ns) // 1000, sent_unix_us, got_unix_us)
        self._metrics.node_answered(node.node_id, Code.OK)
        return trip.answer(node, answer)

    def _time(self, answer, node, wall_us, sent_unix_us, got_unix_us):
        """Fills the network's stages, and the node's averages."""
        timing = answer.timing
        inside_us = sum(getattr(timing, name) for name in _INSIDE)
        outside_us = max(0, wall_us - inside_us)
        timing.network_to_node_us = outside_us // 2
        timing.network_to_client_us = outside_us - outside_us // 2
        if node.clock_offset_us is not None and answer.received_unix_us and answer.answered_unix_us:
            timing.leg_to_node_us = answer.received_unix_us - node.clock_offset_us - sent_unix_us
            timing.leg_from_node_us = got_unix_us - (answer.answered_unix_us - node.clock_offset_us)
            timing.leg_error_us = node.clock_error_us
        working_us = inside_us - timing.node_queue_us
        self._registry.answered(node, working_us / 1000, outside_us / 1000)


def _judged(raw):
    """A node's good answer. NodeFailed when it is none."""
    try:
        answer = wire.read_node_answer(raw)
    except wire.WireError as error:
        raise NodeFailed(Code.INFERENCE_FAILED, f"an answer that cannot be read: {error}") from None
    code = from_node(answer.error_code)
    if code != Code.OK:
        known = "" if code.value == answer.error_code else f"unknown code {answer.error_code}: "
        raise NodeFailed(code, known + answer.error_message)
    return answer


def failure_is_final(trip):
    """Whether the last failure would be the same on every node."""
    return trip.tried[-1][1].code not in RETRYABLE


def refused(request_id, refusal, received_unix_us):
    """The `InferResponse` of a request that has no result, as buffers."""
    answer = pb.InferResponse(
        request_id=request_id,
        error_code=refusal.code.value,
        error_message=refusal.message,
        attempts=refusal.attempts,
        scheduler_received_unix_us=received_unix_us,
        scheduler_answered_unix_us=time.time_ns() // 1000,
    )
    return [answer.SerializeToString()]
