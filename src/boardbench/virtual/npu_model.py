"""The virtual NPU nodes' model in its own time: a closed loop on a few boards, event by event, without a clock.

The same stations in the same order as the node's `virtual` backend: half of a request's transport on its connection,
a worker, the driver on a CPU, one of the NPU's cores, the other half of the transport. So what a set of constants says
can be known without a host that carries the bytes.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

WORKERS, NPU_CORES = 8, 2
PROGRAMS_MS = 14.0
"""What client, scheduler and agent need for a request on the rig, beside the model: it comes on top of `delay_ms`."""
DISCARDED_SHARE = 0.2
"""Of a simulation's time: the queues fill up in it."""

Constants = Mapping[str, float]


@dataclass(frozen=True)
class Node:
    """A board: the clock of its big cores and of its NPU, as shares of their highest."""

    cpu_share: float = 1.0
    npu_share: float = 1.0


@dataclass(frozen=True)
class Outcome:
    """Rate over all nodes, and per node its rate and the 50th percentile of latency in ms."""

    rate_per_s: float
    node_rates_per_s: tuple[float, ...]
    node_p50_ms: tuple[float, ...]
    latencies_ms: tuple[float, ...]

    @property
    def spread(self) -> float:
        """Largest over smallest 50th percentile of the nodes."""
        return max(self.node_p50_ms) / min(self.node_p50_ms)


class _Station:
    """So many servers, first come, first served."""

    def __init__(self, servers: int) -> None:
        self._free_at = [0.0] * servers

    def serve(self, at_s: float, work_s: float) -> float:
        end = max(at_s, self._free_at[0]) + work_s
        heapq.heapreplace(self._free_at, end)
        return end


@dataclass
class _Board:
    node: Node
    connections: list[_Station]
    cpu: _Station
    npu: _Station
    free_workers: int = WORKERS
    waiting: deque[Callable[[], None]] = field(default_factory=deque)
    turn: int = 0
    latencies_ms: list[float] = field(default_factory=list)


class _World:
    """Events in the order of their times."""

    def __init__(self, constants: Constants, seed: int) -> None:
        self.constants = constants
        self.now_s = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = itertools.count()
        self._random = random.Random(seed)

    def at(self, when_s: float, what: Callable[[], None]) -> None:
        heapq.heappush(self._events, (when_s, next(self._count), what))

    def run(self, until_s: float) -> None:
        while self._events and self._events[0][0] < until_s:
            self.now_s, _, what = heapq.heappop(self._events)
            what()

    def draw_s(self, mean_ms: float, shape: float) -> float:
        return self._random.gammavariate(shape, mean_ms / shape) / 1000

    def transport_s(self, board: _Board) -> float:
        c = self.constants
        mean_ms = c["connection_fixed_ms"] + c["connection_cpu_ms"] / board.node.cpu_share
        return self.draw_s(mean_ms / 2, c["connection_shape"])

    def delay_s(self) -> float:
        """Half of what a request spends on the way, where it keeps nothing busy."""
        return self.draw_s((self.constants["delay_ms"] + PROGRAMS_MS) / 2, self.constants["delay_shape"])

    def driver_s(self, board: _Board) -> float:
        c = self.constants
        return self.draw_s(c["driver_fixed_ms"] + c["driver_cpu_ms"] / board.node.cpu_share, c["driver_shape"])

    def npu_s(self, board: _Board, *, network: bool) -> float:
        c = self.constants
        factor = c["npu_network_factor"] if network else 1.0
        mean_ms = c["npu_ms"] * factor / board.node.npu_share + c["npu_cpu_ms"] / board.node.cpu_share
        return self.draw_s(mean_ms, c["npu_shape"])


def closed_loop(
    constants: Constants,
    nodes: Sequence[Node],
    *,
    concurrency: int,
    connections: int,
    seconds: float = 60.0,
    seed: int = 1,
) -> Outcome:
    """`concurrency` requests under way, given to the nodes in turn (round-robin). `connections` 0: no network."""
    world = _World(constants, seed)
    cpus = int(constants["cpu_servers"])
    boards = [
        _Board(node, [_Station(1) for _ in range(connections)], _Station(cpus), _Station(NPU_CORES)) for node in nodes
    ]
    turn = itertools.cycle(boards)
    from_s = seconds * DISCARDED_SHARE

    def send() -> None:
        board, sent_s = next(turn), world.now_s

        def done() -> None:
            if world.now_s >= from_s:
                board.latencies_ms.append(1000 * (world.now_s - sent_s))
            send()

        _visit(world, board, done)

    for _ in range(concurrency):
        send()
    world.run(seconds)
    span_s = seconds - from_s
    rates = tuple(len(board.latencies_ms) / span_s for board in boards)
    everything = tuple(sorted(itertools.chain.from_iterable(board.latencies_ms for board in boards)))
    return Outcome(sum(rates), rates, tuple(median(board.latencies_ms) for board in boards), everything)


def _visit(world: _World, board: _Board, done: Callable[[], None]) -> None:
    """One request on a board."""
    line = board.connections[board.turn % len(board.connections)] if board.connections else None
    board.turn += 1

    def arrived() -> None:
        if board.free_workers:
            board.free_workers -= 1
            work()
        else:
            board.waiting.append(work)

    def work() -> None:
        world.at(board.cpu.serve(world.now_s, world.driver_s(board)), ready)

    def ready() -> None:
        world.at(board.npu.serve(world.now_s, world.npu_s(board, network=line is not None)), served)

    def served() -> None:
        if board.waiting:
            board.waiting.popleft()()
        else:
            board.free_workers += 1
        if line is None:
            done()
        else:
            world.at(line.serve(world.now_s, world.transport_s(board)), answered)

    def answered() -> None:
        world.at(world.now_s + world.delay_s(), done)

    def taken() -> None:
        assert line is not None
        world.at(line.serve(world.now_s, world.transport_s(board)), arrived)

    if line is None:
        arrived()
    else:
        world.at(world.now_s + world.delay_s(), taken)
