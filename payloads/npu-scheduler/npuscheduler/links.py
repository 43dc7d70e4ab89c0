"""The scheduler's connections to one node, and the offset of the node's clock."""

import asyncio
import time

import grpc

from npuforge import npuforge_pb2 as pb
from npuforge import rpc, transport

PINGS = 5
PING_S = 1.0
# Clocks drift apart: an offset is taken from the shortest round trip of this many last pings.
REMEMBERED = 15


class LinkClosed(Exception):
    """The link was closed while a call was on it."""


class Link:
    """`connections` channels to a node; each request goes over the one with the fewest."""

    def __init__(self, engine, address, node_id, sec, connections):
        self.address = address
        self._joined = engine == "grpc"
        self._channels = [transport.open_channel(engine, address, sec, node_id) for _ in range(connections)]
        self._infer = [rpc.raw_call(channel, rpc.NODE["Infer"]) for channel in self._channels]
        self._clock = rpc.call(self._channels[0], rpc.NODE["Clock"])
        self._busy = [0] * connections
        self._turn = 0
        self._pings = []
        self._has_clock = True
        self._closed = False

    async def infer(self, parts, timeout_s):
        """The node's answer to a `NodeInferRequest` in buffers, as bytes. grpc.RpcError or LinkClosed."""
        count = len(self._busy)
        # Among equal ones in turn.
        self._turn = (self._turn + 1) % count
        index = min(range(count), key=lambda at: (self._busy[at], (at - self._turn) % count))
        self._busy[index] += 1
        try:
            return await self._infer[index](b"".join(parts) if self._joined else parts, timeout=timeout_s)
        except grpc.RpcError:
            if self._closed:
                raise LinkClosed from None
            raise
        except asyncio.CancelledError:
            # gRPC says the same for a closed channel and for a caller that has gone.
            if self._closed:
                raise LinkClosed from None
            raise
        finally:
            self._busy[index] -= 1

    async def measure_clock(self):
        """(offset, possible error) of the node's clock in microseconds; None when the node does not tell it."""
        if not self._has_clock:
            return None
        for _ in range(PINGS):
            sent = time.time_ns() // 1000
            try:
                answer = await self._clock(pb.ClockRequest(), timeout=PING_S)
            except grpc.RpcError as error:
                # A node of another make does not know this RPC; asking again would not change that.
                self._has_clock = error.code() != grpc.StatusCode.UNIMPLEMENTED
                return None
            got = time.time_ns() // 1000
            inside = answer.answered_unix_us - answer.received_unix_us
            offset = (answer.received_unix_us - sent + answer.answered_unix_us - got) // 2
            self._pings.append((max(0, got - sent - inside), offset))
        del self._pings[:-REMEMBERED]
        round_trip, offset = min(self._pings)
        return offset, round_trip // 2 + 1

    async def close(self):
        """Closes the connections; what is in flight fails."""
        self._closed = True
        await asyncio.gather(*(channel.close() for channel in self._channels))


class Links:
    """A link per registered node."""

    def __init__(self, engine, sec, connections):
        self._engine, self._security, self._connections = engine, sec, connections
        self._links = {}
        self._closing = set()

    def get(self, node):
        """The node's link, opened when there is none to its address."""
        link = self._links.get(node.node_id)
        if link is None or link.address != node.descriptor.address:
            self.drop(node.node_id)
            address = node.descriptor.address
            link = Link(self._engine, address, node.node_id, self._security, self._connections)
            self._links[node.node_id] = link
        return link

    def drop(self, node_id):
        """Closes a node's link: what is in flight there fails now, and is tried elsewhere."""
        link = self._links.pop(node_id, None)
        if link is not None:
            task = asyncio.ensure_future(link.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def close(self):
        """Closes all."""
        for node_id in list(self._links):
            self.drop(node_id)
        await asyncio.gather(*self._closing)
