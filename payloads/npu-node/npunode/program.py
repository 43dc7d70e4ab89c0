"""The agent: what it starts in which order, how it drains, and what it can be asked to do instead of serving."""

import asyncio
import functools
import logging
import time

from npuforge import npuforge_pb2 as pb
from npuforge import program, security, tensors, transport
from npuforge.codes import Refusal
from npunode.backends import BackendError, make_backend
from npunode.health import Health
from npunode.queue import WorkerQueue
from npunode.registration import Registration
from npunode.service import NodeService
from npunode.settings import load_settings

log = logging.getLogger("npu-node")


class Agent(program.Program):
    """One node: its backend, its server, its registration."""

    def __init__(self, settings, base):
        self._settings = settings
        self._security = security.load_security(settings["transport"], base)
        self._backend = make_backend(settings)
        worker = settings["worker"]
        self._queue = WorkerQueue(worker["worker_count"], worker["max_queue_depth"])
        self._health = Health(settings, self._backend, self._queue)
        peers = {security.SCHEDULER_NAME, security.CLIENT_NAME} if self._security.kind == security.TLS else None
        self.service = NodeService(settings, self._backend, self._queue, self._health, peers)
        self._server = None
        self._registration = self._beating = None

    async def start(self):
        """See `Program.start`; registers too. Also BackendError."""
        node = self._settings["node"]
        await self._backend.start()
        try:
            await self._warm_up()
            engine = self._settings["transport"]["engine"]
            self._server, port = transport.bind_server(engine, node["listen"], self._security, self.service.handlers())
            await self._server.start()
        except BaseException:
            await self._backend.close()
            raise
        self._health.model_state = pb.MODEL_STATE_READY
        host = node["listen"].rpartition(":")[0]
        address = node["advertise_address"] or f"{host}:{port}"
        self._registration = Registration(self._settings, self._security, self._health, address)
        self._beating = asyncio.ensure_future(self._registration.run())
        return address

    async def _warm_up(self):
        """Runs the model some times: the first inference is slow, and equal input must give equal output."""
        results = set()
        for _ in range(self._settings["models"]["warmup_runs"]):
            try:
                results.add(await self.service.run_once())
            except Refusal as error:
                raise BackendError(f"the warm-up failed: {error.message}") from None
        if len(results) > 1:
            raise BackendError("equal images gave different outputs: the backend is not to be trusted")

    async def direct(self, seconds):
        """Inferences per second of all workers without a network."""
        await self._backend.start()
        try:
            ended, done = time.monotonic() + seconds, 0

            async def work():
                nonlocal done
                while time.monotonic() < ended:
                    await self.service.run_once()
                    done += 1

            began = time.monotonic()
            await asyncio.gather(*(work() for _ in range(self._settings["worker"]["worker_count"])))
            return done / (time.monotonic() - began)
        finally:
            await self._backend.close()

    async def drain(self):
        """See `Program.drain`; requests have `drain_ms` to end."""
        self.service.end()
        self._beating.cancel()
        await asyncio.gather(self._beating, return_exceptions=True)
        await self._registration.leave("the node ends")
        await self._server.stop(self._settings["node"]["drain_ms"] / 1000)
        await self.service.idle()
        await self._registration.close()
        await self._backend.close()


async def look(settings, base):
    """Makes an agent that does not start, for what that says of its config and backend."""
    Agent(settings, base)


async def serve(settings, base):
    """Runs the agent until a signal comes."""
    await program.serve(Agent(settings, base), log)


async def measure(seconds, settings, base):
    """Prints the rate without a network."""
    rate = await Agent(settings, base).direct(seconds)
    print(f"{rate:.1f} inferences/s direct, {tensors.INPUT_BYTES} bytes each, {seconds:g} s")


def parse(arguments):
    """The command line."""
    parser = program.command_line("Serves inferences of one backend to the cluster's scheduler.", "the agent's")
    parser.add_argument("--check", action="store_true", help="look at the config and the backend, and end")
    parser.add_argument(
        "--direct", type=float, metavar="SECONDS", help="measure the backend without a network, and end"
    )
    return parser.parse_args(arguments)


def main(arguments):
    """Runs the program; returns its exit code."""
    options = parse(arguments)
    act = look if options.check else functools.partial(measure, options.direct) if options.direct else serve
    return program.run("npu-node", options.config, load_settings, act, faults=(BackendError,))
