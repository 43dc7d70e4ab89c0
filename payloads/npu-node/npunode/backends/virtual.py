"""A model of a board in place of its NPU: the answer is computed from the image, the time from the board's live clocks.

It runs only where it was asked for by name, and the node's descriptor says that it is virtual. The tensors are the
image's own bytes under the nine heads of a YOLOv8 detector: equal images give equal outputs on every node, and other
images others. The constants are in `virtual_constants.json`, with their origin.
"""

import asyncio
import binascii
import json
import os
import random
import time

from npuforge import tensors
from npunode.backends import BackendError
from npunode.backends.base import Backend, Inference
from npunode.board_clocks import BoardClocks
from npunode.board_load import BoardLoad
from npunode.stations import Station

CONSTANTS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "virtual_constants.json")
# Older clocks mean that the board's files are gone: then its speed is not known, and no answer may claim it.
CLOCKS_S = 10.0
# Of a new rate, twice a second: it follows within about two seconds.
SMOOTHING = 0.25
_TENSORS = [(length, dims, 1, 0, 1.0) for length, dims in zip(tensors.YOLO_LENGTHS, tensors.YOLO_DIMS)]


def load_constants(path=""):
    """The model's constants, all numbers above 0. BackendError for a file that is not of that kind."""
    path = path or CONSTANTS
    try:
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
        with open(CONSTANTS, encoding="utf-8") as file:
            names = [name for name in json.load(file) if name != "origin"]
        values = {name: float(data[name]) for name in names}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BackendError(f"the constants of the virtual backend cannot be read from {path}: {error!r}") from None
    bad = sorted(name for name, value in values.items() if not 0 < value < float("inf"))
    if bad:
        raise BackendError(f"{path}: {bad[0]} must be above 0")
    return values


class Visit:
    """One request's way through the model: whose connection it is on, and how far its time has come."""

    __slots__ = ("at_s", "connection")

    def __init__(self, connection, at_s):
        self.connection = connection
        self.at_s = at_s


class Virtual(Backend):
    """The model of a board."""

    name = "virtual"
    virtual = True
    runtime_version = "virtual"
    model_sha256 = "0" * 64

    def __init__(self, settings):
        backend = settings["backend"]
        self._zero_time = backend["zero_time"]
        self._root = backend["virtual_root"]
        self._workers = settings["worker"]["worker_count"]
        self._constants = load_constants(backend["constants_file"])
        self._npu = Station(settings["node"]["npu_core_count"])
        self._cpu = Station(int(self._constants["cpu_servers"]))
        self._connections = {}
        self._worker_free_at = [0.0] * self._workers
        # A stream of chance for each station: with one seed the NPU's n-th time is the same whatever came between, so
        # that arms which share a seed differ by what they do and not by their luck.
        self._chance = {
            station: random.Random(f"{backend['seed']} {settings['node']['id']} {station}")
            for station in ("connection", "delay", "driver", "npu")
        }
        self._clocks = self._load = None
        self._served = 0
        self._told = (0.0, 0)
        self._shares = (0.0, 0.0)
        self._rate = None
        self._teller = None

    async def start(self):
        """BackendError unless the board's clocks can be read and its load be registered (or no time is to pass)."""
        if self._zero_time:
            return
        self._clocks = BoardClocks(self._root)
        self._load = BoardLoad(self._root)
        self._told = (time.monotonic(), 0)
        self._teller = asyncio.ensure_future(self._tell())

    async def close(self):
        """Takes the load off the board."""
        if self._teller is not None:
            self._teller.cancel()
            await asyncio.gather(self._teller, return_exceptions=True)
        if self._clocks is not None:
            self._clocks.close()
        if self._load is not None:
            self._load.close()

    async def _tell(self):
        """Registers twice a second how busy the model is."""
        while True:
            await asyncio.sleep(0.5)
            now = time.monotonic()
            (since, before), self._told = self._told, (now, self._served)
            seen = (self._served - before) / (now - since)
            # A dozen answers in half a second are no rate yet, and a chip's heat does not follow their chance.
            self._rate = seen if self._rate is None else self._rate + SMOOTHING * (seen - self._rate)
            rate = self._rate if seen else 0.0
            constants = self._constants
            busy_ms = constants["cpu_busy_fixed_ms"] + constants["cpu_busy_clock_ms"] / self._clocks.cpu_share
            cpu = min(1.0, rate * busy_ms / 1000 / constants["cpu_servers"])
            npu = min(1.0, rate / constants["direct_inferences_per_s"])
            self._shares = (cpu, npu)
            network = rate / constants["network_full_inferences_per_s"]
            self._load.tell(int(constants["cpu_servers"]) if rate else 0, cpu, npu, network)
            self._forget(now)

    def _forget(self, now):
        """Connections that have been idle for long have ended."""
        self._connections = {peer: line for peer, line in self._connections.items() if line.free_at > now - 60.0}

    @property
    def utilisation(self):
        """The model's CPU and NPU percent; None when no time passes in it."""
        return None if self._zero_time else tuple(100.0 * share for share in self._shares)

    def _draw(self, station, mean_ms):
        shape = self._constants[station + "_shape"]
        return self._chance[station].gammavariate(shape, mean_ms / shape) / 1000

    async def _until(self, at_s):
        left_s = at_s - time.monotonic()
        if left_s > 0:
            await asyncio.sleep(left_s)

    def _on_connection(self, visit):
        """When half of a request's time on its connection ends, which carries one at a time."""
        constants = self._constants
        mean_ms = constants["connection_fixed_ms"] + constants["connection_cpu_ms"] / self._clocks.cpu_share
        return visit.connection.serve(visit.at_s, self._draw("connection", mean_ms / 2))

    def _on_the_way(self):
        """Half of a request's time that needs no server: requests pass each other there."""
        return self._draw("delay", self._constants["delay_ms"] / 2)

    async def received(self, peer):
        """Spends the time that the board needs to take the request in; `peer` None: not over the network."""
        if self._zero_time:
            return None
        if peer is None:
            return Visit(None, time.monotonic())
        visit = Visit(self._connections.setdefault(peer, Station(1)), time.monotonic() + self._on_the_way())
        # On the connection in the order in which they arrive there.
        await self._until(visit.at_s)
        visit.at_s = self._on_connection(visit)
        await self._until(visit.at_s)
        return visit

    async def infer(self, worker, payload, visit):
        """Spends the worker's and the NPU's time, and computes the tensors."""
        result = outputs(payload)
        self._served += 1
        if self._zero_time:
            return Inference(result, {})
        if self._clocks.age_s > CLOCKS_S:
            raise BackendError(f"the board's clocks could not be read for {self._clocks.age_s:.0f} s")
        constants = self._constants
        began = max(visit.at_s, self._worker_free_at[worker])
        driver_ms = constants["driver_fixed_ms"] + constants["driver_cpu_ms"] / self._clocks.cpu_share
        ready = self._cpu.serve(began, self._draw("driver", driver_ms))
        # In order of the model's time, not of the call: the NPU takes whoever is ready first.
        await self._until(ready)
        factor = 1.0 if visit.connection is None else constants["npu_network_factor"]
        npu_ms = constants["npu_ms"] * factor / self._clocks.npu_share
        # An NPU's core waits between two requests for the CPU, which hands it the next.
        npu_ms += constants["npu_cpu_ms"] / self._clocks.cpu_share
        ended = self._npu.serve(ready, self._draw("npu", npu_ms))
        await self._until(ended)
        visit.at_s = self._worker_free_at[worker] = ended
        return Inference(
            result,
            {"npu_input_us": int((ready - began) * 1e6), "inference_us": int((ended - ready) * 1e6)},
        )

    async def answered(self, visit):
        """Spends the time that the board needs to send the answer."""
        if visit is not None and visit.connection is not None:
            visit.at_s = self._on_connection(visit) + self._on_the_way()
            await self._until(visit.at_s)


def outputs(image):
    """The result of an image of 1,228,800 bytes: a head that depends on its last bytes, and a view of the others."""
    view = memoryview(image)
    rest = binascii.crc32(view[tensors.YOLO_BYTES :])
    first = (*_TENSORS[0][:3], rest - (1 << 31), 1.0)
    return [tensors.header([first, *_TENSORS[1:]]), view[: tensors.YOLO_BYTES]]
