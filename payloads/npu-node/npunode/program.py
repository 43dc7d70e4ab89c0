"""The agent as a program: start, serve, drain, end.

Exit codes: 0 ended after SIGTERM or SIGINT, 2 the config is wrong, 3 the backend or the port cannot be had.
"""

import argparse
import asyncio
import logging
import os
import signal
import sys
import time

from npuforge import loop, memory, security, tensors, transport
from npuforge import npuforge_pb2 as pb
from npuforge.codes import Refusal
from npuforge.config import ConfigError
from npunode.backends import BackendError, make_backend
from npunode.health import Health
from npunode.queue import WorkerQueue
from npunode.registration import Registration
from npunode.service import NodeService
from npunode.settings import load_settings

log = logging.getLogger("npu-node")


class Agent:
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
        """Serves and registers; returns the address. BackendError or OSError when that cannot be."""
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
        """Takes no more requests, lets those that are here end (for at most `drain_ms`), and ends."""
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
    agent = Agent(settings, base)
    ended = asyncio.Event()
    running = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        running.add_signal_handler(number, ended.set)
    address = await agent.start()
    log.info("serving at %s on %s", address, loop.NAME)
    await ended.wait()
    log.info("draining")
    await agent.drain()


async def measure(settings, base, seconds):
    """Prints the rate without a network."""
    rate = await Agent(settings, base).direct(seconds)
    print(f"{rate:.1f} inferences/s direct, {tensors.INPUT_BYTES} bytes each, {seconds:g} s")


def parse(arguments):
    """The command line."""
    parser = argparse.ArgumentParser(description="Serves inferences of one backend to the cluster's scheduler.")
    parser.add_argument("--config", required=True, help="the agent's TOML file")
    parser.add_argument("--check", action="store_true", help="look at the config and the backend, and end")
    parser.add_argument(
        "--direct", type=float, metavar="SECONDS", help="measure the backend without a network, and end"
    )
    return parser.parse_args(arguments)


def main(arguments):
    """Runs the program; returns its exit code."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    options = parse(arguments)
    memory.keep_freed_memory()
    try:
        settings = load_settings(options.config)
        base = os.path.dirname(os.path.abspath(options.config))
        if options.check:
            loop.run(look(settings, base))
        elif options.direct:
            loop.run(measure(settings, base, options.direct))
        else:
            loop.run(serve(settings, base))
    except (ConfigError, security.SecurityError) as error:
        print(f"npu-node: {error}", file=sys.stderr)
        return 2
    except (BackendError, OSError) as error:
        print(f"npu-node: {error}", file=sys.stderr)
        return 3
    return 0
