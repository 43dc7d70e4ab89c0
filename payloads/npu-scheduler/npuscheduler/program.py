"""The scheduler: what it starts in which order, what it does beside its answers, how it drains."""

import asyncio
import logging
import random
import time

from npuforge import program, security, transport
from npuscheduler import metrics as metrics_module
from npuscheduler.dispatch import Dispatcher
from npuscheduler.http import start_http
from npuscheduler.links import Links
from npuscheduler.policies import POLICIES
from npuscheduler.registry import Registry
from npuscheduler.service import SchedulerService
from npuscheduler.settings import health_rules, load_settings

log = logging.getLogger("npu-scheduler")

TICK_S = 0.1


class Scheduler(program.Program):
    """The registry, the connections, the server and the pages."""

    def __init__(self, settings, base):
        self._settings = settings
        self._security = security.load_security(settings["transport"], base)
        rules, scheduler = health_rules(settings), settings["scheduler"]
        policy = POLICIES[scheduler["policy"]](rules, random.Random(), scheduler["stale"])
        self.registry = Registry(rules, policy)
        self.metrics = metrics_module.Metrics()
        transport_settings = settings["transport"]
        self._links = Links(transport_settings["engine"], self._security, transport_settings["node_connections"])
        dispatcher = Dispatcher(settings, self.registry, self._links, self.metrics)
        self.service = SchedulerService(settings, self._security, self.registry, self._links, dispatcher, self.metrics)
        self._server, self._pages, self._tasks = None, [], []

    async def start(self):
        """See `Program.start`."""
        server = self._settings["server"]
        engine = self._settings["transport"]["engine"]
        self._server, port = transport.bind_server(
            engine, server["grpc_listen"], self._security, self.service.handlers()
        )
        pages = {"/metrics": self._metrics_page, "/healthz": lambda: ("text/plain", "ok\n")}
        for listen in {server["http_listen"], server["metrics_listen"]} - {""}:
            self._pages.append(await start_http(listen, pages))
        await self._server.start()
        self._tasks = [asyncio.ensure_future(self._watch()), asyncio.ensure_future(self._follow_clocks())]
        return f"port {port}, policy {self.registry.policy.name},"

    def _metrics_page(self):
        text = self.metrics.text(self.registry.statuses(), self.registry.policy.name, time.time_ns() // 1_000_000)
        return metrics_module.CONTENT_TYPE, text

    async def _watch(self):
        """Notices nodes that fall silent."""
        while True:
            self.registry.tick(time.monotonic())
            await asyncio.sleep(TICK_S)

    async def _follow_clocks(self):
        """Measures the offsets of the nodes' clocks; a new node's within a moment."""
        due = {}
        interval_s = self._settings["telemetry"]["clock_interval_ms"] / 1000
        while True:
            for node in self.registry.all():
                if node.heard and (node.clock_offset_us is None or time.monotonic() >= due.get(node.node_id, 0.0)):
                    due[node.node_id] = time.monotonic() + interval_s
                    measured = await self._links.get(node).measure_clock()
                    if measured is not None:
                        node.clock_offset_us, node.clock_error_us = measured
            await asyncio.sleep(0.2)

    async def drain(self):
        """See `Program.drain`."""
        self.service.end()
        # Every request that came before its clients hear of the end is answered.
        await self._server.stop(self._settings["scheduler"]["request_timeout_ms"] / 1000)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for page in self._pages:
            page.close()
            await page.wait_closed()
        await self._links.close()
        log.info("answered %d requests, %d of them with an error", self.metrics.total, self.metrics.errors)


async def look(settings, base):
    """Makes a scheduler that does not start, for what that says of its config."""
    Scheduler(settings, base)


async def serve(settings, base):
    """Runs the scheduler until a signal comes."""
    await program.serve(Scheduler(settings, base), log)


def parse(arguments):
    """The command line."""
    what = "Takes inference requests and gives each to a node of the cluster."
    parser = program.command_line(what, "the scheduler's")
    parser.add_argument("--check", action="store_true", help="look at the config, and end")
    return parser.parse_args(arguments)


def main(arguments):
    """Runs the program; returns its exit code."""
    options = parse(arguments)
    return program.run("npu-scheduler", options.config, load_settings, look if options.check else serve)
