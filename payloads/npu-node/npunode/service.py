"""NodeService: what the scheduler calls. Every request gets an answer with a code, whatever it holds."""

import asyncio
import logging
import time

from npuforge import channels, rpc, security, tensors, wire
from npuforge import npuforge_pb2 as pb
from npuforge.codes import Code, Refusal
from npuforge.service import Service, unix_us
from npunode.backends import BackendError

log = logging.getLogger("npu-node")

MAX_WARMUP_RUNS = 1000


class NodeService(Service):
    """The RPCs, over one backend and its queue. After `end` new requests are refused."""

    def __init__(self, settings, backend, queue, health, peers):
        super().__init__()
        self._worker = settings["worker"]
        self._engine = settings["transport"]["engine"]
        self._model_id = settings["models"]["model_id"]
        self._backend, self._queue, self._health = backend, queue, health
        # Who may call; None: anybody (plaintext).
        self._peers = peers
        self._running = set()

    def handlers(self):
        """The generic handler for a server."""
        functions = {
            "Infer": self.infer,
            "Health": self.health,
            "ListModels": self.list_models,
            "Warmup": self.warmup,
            "Clock": self.clock,
            "StreamTelemetry": self.stream_telemetry,
        }
        return rpc.handlers(rpc.NODE, functions, raw=("Infer",), engine=self._engine)

    def _admit(self, context):
        names = security.peer_names(context) if self._peers else None
        if self._peers and not (names and names & self._peers):
            raise Refusal(Code.UNAUTHORIZED, "only the scheduler and the load generator may call a node")

    async def idle(self):
        """Waits until no worker works for a caller that has gone."""
        while self._running:
            await asyncio.wait(self._running)

    async def infer(self, data, context):
        """One inference: bytes in, buffers out."""
        received_us = unix_us()
        request_id = ""
        try:
            self._admit(context)
            request = wire.read_request(data)
            request_id = request.request_id
            self._check(request)
            # Shielded: a caller that gives up does not free a worker that still works.
            work = asyncio.ensure_future(self._serve(request, context.peer(), received_us))
            self._running.add(work)
            work.add_done_callback(self._forget)
            return await asyncio.shield(work)
        except wire.WireError as error:
            refusal = Refusal(Code.INVALID_REQUEST, str(error))
        except Refusal as error:
            refusal = error
        except BackendError as error:
            refusal = Refusal(Code.BACKEND_ERROR, str(error))
        except Exception:
            log.exception("request %s failed", request_id)
            refusal = Refusal(Code.INTERNAL_ERROR, "the agent failed; its log says how")
        answer = pb.NodeInferResponse(
            request_id=request_id,
            error_code=refusal.code.value,
            error_message=refusal.message,
            node_received_unix_us=received_us,
            node_answered_unix_us=unix_us(),
        )
        return [answer.SerializeToString()]

    def _forget(self, work):
        self._running.discard(work)
        if not work.cancelled():
            # Read, so that a failure after its caller has gone is not reported as never retrieved.
            work.exception()

    def _check(self, request):
        if self._end.is_set():
            raise Refusal(Code.NODE_UNAVAILABLE, "the node is being drained")
        if request.payload_bytes > channels.MAX_PAYLOAD_BYTES:
            raise Refusal(Code.PAYLOAD_TOO_LARGE, f"the payload has {request.payload_bytes} bytes")
        if request.model_id != self._model_id:
            raise Refusal(Code.MODEL_NOT_FOUND, f"the node has the model '{self._model_id}' alone")
        if self._health.model_state != pb.MODEL_STATE_READY:
            raise Refusal(Code.NODE_UNAVAILABLE, "the model is not ready")
        self._backend.check(request.input_format, request.payload_bytes)

    async def _serve(self, request, peer, received_us):
        visit = await self._backend.received(peer)
        timing = pb.Timing()
        queued = time.perf_counter_ns()
        timeout_ms = min(request.queue_timeout_ms or self._worker["queue_timeout_ms"], 600_000)
        worker = await self._queue.take(timeout_ms / 1000)
        good = False
        try:
            timing.node_queue_us = (time.perf_counter_ns() - queued) // 1000
            low, high = request.payload
            inference = await self._backend.infer(worker, memoryview(request.data)[low:high], visit)
            good = True
        finally:
            self._queue.give_back(worker)
            self._health.ended(good)
        for stage, stage_us in inference.stages.items():
            setattr(timing, stage, stage_us)
        await self._backend.answered(visit)
        return wire.node_answer(request.request_id, inference.result, tensors.FORMAT, timing, received_us, unix_us())

    async def health(self, request, context):
        """The same as a heartbeat says."""
        ready = not self._end.is_set() and self._health.model_state == pb.MODEL_STATE_READY
        return pb.HealthResponse(health=self._health.read(), ready=ready)

    async def list_models(self, request, context):
        """The models of this node."""
        return pb.ListModelsResponse(models=self._health.models())

    async def warmup(self, request, context):
        """Runs the model on an empty image."""
        answer = pb.WarmupResponse()
        try:
            self._admit(context)
            if request.model_id != self._model_id:
                raise Refusal(Code.MODEL_NOT_FOUND, f"the node has the model '{self._model_id}' alone")
            if request.runs > MAX_WARMUP_RUNS:
                raise Refusal(Code.INVALID_REQUEST, f"at most {MAX_WARMUP_RUNS} runs, not {request.runs}")
            for _ in range(request.runs):
                await self.run_once()
                answer.runs_done += 1
            answer.completed = True
        except Refusal as error:
            answer.error_code, answer.error_message = error.code.value, error.message
        except BackendError as error:
            answer.error_code, answer.error_message = Code.BACKEND_ERROR.value, str(error)
        return answer

    async def run_once(self):
        """One inference of an empty image by the next free worker; returns its result as bytes."""
        visit = await self._backend.received(None)
        worker = await self._queue.take(self._worker["queue_timeout_ms"] / 1000)
        try:
            inference = await self._backend.infer(worker, bytes(tensors.INPUT_BYTES), visit)
        finally:
            self._queue.give_back(worker)
        return b"".join(inference.result)

    def telemetry(self):
        """The node's health and its counts."""
        return pb.NodeTelemetry(
            unix_us=unix_us(),
            health=self._health.read(),
            inferences_total=self._health.inferences,
            errors_total=self._health.errors,
        )
