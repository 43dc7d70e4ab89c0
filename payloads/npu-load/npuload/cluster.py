"""What the client sees of a scheduler: its nodes, its clock, and connections of its own to it."""

import time

import grpc

from npuforge import npuforge_pb2 as pb
from npuforge import rpc, security, transport, wire
from npuforge.wire import WireError
from npuload.requests import OK, Answer, read_answer

ROUND_TRIPS = 5
OTHERS_ANSWER = "TRANSPORT-OTHERS-ANSWER"


class ClusterError(Exception):
    """The scheduler cannot be asked; one sentence."""


class Scheduler:
    """One scheduler. `connections`: so many of its own for requests."""

    def __init__(self, address, secured, connections, timeout_s, engine="lean"):
        self.address = address
        self._timeout_s = timeout_s
        self._joined = engine == "grpc"
        *self._channels, self._control = (
            transport.open_channel(engine, address, secured, security.SCHEDULER_NAME) for _ in range(connections + 1)
        )
        self._infer = [rpc.raw_call(channel, rpc.SCHEDULER["Infer"]) for channel in self._channels]

    async def close(self):
        """Closes all connections."""
        for channel in (*self._channels, self._control):
            await channel.close()

    async def infer(self, connection, request):
        """The answer to a request, a list of buffers that begins with its id (see `images`).

        What fails on the way is an answer with the code TRANSPORT-<status>, and so is a result that is another
        request's.
        """
        answer, _ = await self.infer_raw(connection, request)
        return answer

    async def infer_raw(self, connection, request):
        """The answer and its bytes."""
        data = b""
        try:
            message = b"".join(request) if self._joined else request
            data = await self._infer[connection % len(self._infer)](message, timeout=self._timeout_s)
            answer = read_answer(data)
            told = answer.request_id.encode()
            if answer.code != OK or not told or request[0] == wire.bytes_field(1, told):
                return answer, data
            failed = Answer()
            failed.code, failed.message = OTHERS_ANSWER, f"the answer is to request '{answer.request_id}'"
        except grpc.RpcError as error:
            failed = Answer()
            failed.code, failed.message = f"TRANSPORT-{error.code().name}", error.details() or ""
        except WireError as error:
            failed = Answer()
            failed.code, failed.message = "TRANSPORT-UNREADABLE", str(error)
        return failed, data

    async def _ask(self, name, request):
        try:
            return await rpc.call(self._control, rpc.SCHEDULER[name])(request, timeout=self._timeout_s)
        except grpc.RpcError as error:
            why = error.details() or error.code().name
            raise ClusterError(f"the scheduler at {self.address} does not answer {name}: {why}") from None

    async def nodes(self):
        """`ListNodesResponse`. ClusterError when there is none."""
        return await self._ask("ListNodes", pb.ListNodesRequest())

    async def clock_offset(self):
        """(offset, error) of the scheduler's wall clock to ours in microseconds; None where it has no such RPC."""
        best = None
        for _ in range(ROUND_TRIPS):
            sent = time.time_ns() // 1000
            try:
                answer = await self._ask("Clock", pb.ClockRequest())
            except ClusterError:
                return None
            back = time.time_ns() // 1000
            way = (back - sent) - (answer.answered_unix_us - answer.received_unix_us)
            offset = ((answer.received_unix_us - sent) + (answer.answered_unix_us - back)) // 2
            if best is None or way < best[1]:
                best = (offset, way)
        return best[0], max(1, best[1] // 2)


def snapshot(listed):
    """The nodes as the report keeps them, sorted by id; what a node does not say is null."""
    return [
        {
            "node_id": node.descriptor.node_id,
            "boot_id": node.health.boot_id,
            "temperature_c": node.health.temperature_c if node.health.has_temperature_c else None,
            "input_voltage_v": node.health.input_voltage_v if node.health.has_input_voltage_v else None,
            "state": pb.NodeState.Name(node.state).replace("NODE_STATE_", "").lower(),
            "npu_type": node.descriptor.npu_type,
            "runtime_version": node.descriptor.runtime_version,
            "model_sha256": {model.id: model.sha256 for model in node.descriptor.models},
            "reboot_count": node.reboot_count,
            "excluded_because": node.excluded_because,
        }
        for node in sorted(listed.nodes, key=lambda node: node.descriptor.node_id)
    ]
