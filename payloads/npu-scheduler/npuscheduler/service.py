"""SchedulerService: what clients, nodes and operators call."""

import asyncio
import hmac
import logging
import time

from npuforge import npuforge_pb2 as pb
from npuforge import rpc, security, wire
from npuforge.codes import Code, Refusal
from npuforge.service import Service, unix_us
from npuscheduler.dispatch import refused

log = logging.getLogger("npu-scheduler")

# The longest that DrainNode waits for what is in flight.
LONGEST_WAIT_MS = 60_000


class SchedulerService(Service):
    """The RPCs, over the registry and the dispatcher."""

    def __init__(self, settings, sec, registry, links, dispatcher, metrics):
        super().__init__()
        self._max_payload_bytes = settings["server"]["max_payload_bytes"]
        self._interval_ms = settings["health"]["interval_ms"]
        self._engine = settings["transport"]["engine"]
        self._stale = settings["scheduler"]["stale"]
        self._secure = sec.kind == security.TLS
        self._token = sec.token
        self._registry, self._links = registry, links
        self._dispatcher, self._metrics = dispatcher, metrics

    def handlers(self):
        """The generic handler for a server."""
        functions = {
            "Infer": self.infer,
            "RegisterNode": self.register_node,
            "Heartbeat": self.heartbeat,
            "DeregisterNode": self.deregister_node,
            "ListNodes": self.list_nodes,
            "DrainNode": self.drain_node,
            "Clock": self.clock,
            "StreamTelemetry": self.stream_telemetry,
        }
        return rpc.handlers(rpc.SCHEDULER, functions, raw=("Infer",), engine=self._engine)

    async def infer(self, data, context):
        """One request, bytes in and buffers out: answered once, with a result or a code."""
        received_ns, received_us = time.perf_counter_ns(), unix_us()
        request_id, code = "", Code.OK
        try:
            request = wire.read_request(data)
            request_id = request.request_id
            self._check(request)
            answer = await self._dispatcher.infer(request, received_ns, received_us, context.time_remaining())
        except Exception as error:
            refusal = _refusal(error, request_id)
            code = refusal.code
            answer = refused(request_id, refusal, received_us)
        seconds = (time.perf_counter_ns() - received_ns) / 1e9
        self._metrics.request_ended(code, seconds, len(data), sum(map(len, answer)))
        return answer

    def _check(self, request):
        if request.payload_bytes > self._max_payload_bytes:
            raise Refusal(
                Code.PAYLOAD_TOO_LARGE,
                f"the payload has {request.payload_bytes} bytes, the limit is {self._max_payload_bytes}",
            )
        if not request.model_id:
            raise Refusal(Code.INVALID_REQUEST, "model_id is missing")
        if not request.payload_bytes:
            raise Refusal(Code.INVALID_REQUEST, "the payload is empty")
        if request.input_format not in pb.InputFormat.values():
            raise Refusal(Code.UNSUPPORTED_INPUT_FORMAT, f"there is no input format {request.input_format}")

    def _is(self, context, *names):
        """Whether the caller's certificate has one of these names; in plaintext nobody can be told apart."""
        found = security.peer_names(context)
        return not self._secure or bool(found and found & set(names))

    async def register_node(self, request, context):
        """Takes a node in, or again."""
        node_id = request.descriptor.node_id
        try:
            if self._token and not hmac.compare_digest(request.token.encode(), self._token.encode()):
                raise Refusal(Code.UNAUTHORIZED, "the registration token is wrong")
            if not self._is(context, node_id):
                raise Refusal(Code.UNAUTHORIZED, f"the certificate is not that of the node '{node_id}'")
            node = self._registry.register(request.descriptor, time.monotonic())
        except Refusal as error:
            log.warning("refused node %r: %s", node_id[:64], error.message)
            return pb.RegisterNodeResponse(error_code=error.code.value, error_message=error.message)
        self._links.renew(node)
        log.info("node %s is at %s", node_id, request.descriptor.address)
        return pb.RegisterNodeResponse(accepted=True, heartbeat_interval_ms=self._interval_ms)

    async def heartbeat(self, request, context):
        """Takes a heartbeat in; a node that is not known must register first."""
        if not self._is(context, request.node_id):
            return pb.HeartbeatResponse(accepted=False)
        node, rebooted = self._registry.heartbeat(
            request.node_id, request.health, time.monotonic(), time.time_ns() // 1_000_000
        )
        if node is None:
            return pb.HeartbeatResponse(accepted=False, must_reregister=True)
        if rebooted:
            log.warning("node %s has rebooted", node.node_id)
            # What the dead life still owes fails now, not at its time-out.
            self._links.drop(node.node_id)
        return pb.HeartbeatResponse(accepted=True, state=node.state(self._registry.rules))

    async def deregister_node(self, request, context):
        """Takes a node out; what it still works on ends."""
        if not self._is(context, request.node_id, security.CLIENT_NAME):
            return pb.DeregisterNodeResponse(accepted=False)
        node = self._registry.deregister(request.node_id)
        if node is None:
            return pb.DeregisterNodeResponse(accepted=False)
        log.info("node %s leaves: %s", node.node_id, request.reason[:200])
        return pb.DeregisterNodeResponse(accepted=True)

    async def list_nodes(self, request, context):
        """All nodes by id; changes nothing."""
        return pb.ListNodesResponse(
            nodes=self._registry.statuses(), policy=self._registry.policy.name, stale=self._stale
        )

    async def drain_node(self, request, context):
        """An operator's word: drain, disable or resume; waits for what is in flight as long as it was asked to."""
        try:
            if not self._is(context, security.CLIENT_NAME):
                raise Refusal(Code.UNAUTHORIZED, "only the operator's certificate may drain a node")
            node = self._registry.order(request.node_id, request.action)
        except Refusal as error:
            return pb.DrainNodeResponse(error_code=error.code.value, error_message=error.message)
        until = time.monotonic() + min(request.wait_ms, LONGEST_WAIT_MS) / 1000
        while node.local_in_flight and node.operator_state is not None and time.monotonic() < until:
            await asyncio.sleep(0.01)
        return pb.DrainNodeResponse(
            accepted=True, state=node.state(self._registry.rules), in_flight=node.local_in_flight
        )

    def telemetry(self):
        """All nodes, and the counts of requests."""
        return pb.SchedulerTelemetry(
            unix_us=unix_us(),
            nodes=self._registry.statuses(),
            policy=self._registry.policy.name,
            requests_total=self._metrics.total,
            errors_total=self._metrics.errors,
        )


def _refusal(error, request_id):
    if isinstance(error, Refusal):
        return error
    if isinstance(error, wire.WireError):
        return Refusal(Code.INVALID_REQUEST, str(error))
    log.error("request %s failed", request_id, exc_info=error)
    return Refusal(Code.INTERNAL_ERROR, "the scheduler failed; its log says how")
