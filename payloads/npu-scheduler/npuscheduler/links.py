"""The scheduler's connections to one node, and the offset of the node's clock."""

import asyncio
import time

import grpc

from npuforge import npuforge_pb2 as pb
from npuforge import rpc, transport
from npuforge.lean.status import CallError

PINGS = 5
PING_S = 1.0
LATE_S = 0.1
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
        self._idle = None

    async def infer(self, parts, timeout_s):
        """The node's answer to a `NodeInferRequest` in buffers, as bytes. grpc.RpcError or LinkClosed."""
        count = len(self._busy)
        # Among equal ones in turn.
        self._turn = (self._turn + 1) % count
        index = min(range(count), key=lambda at: (self._busy[at], (at - self._turn) % count))
        self._busy[index] += 1
        try:
            if not self._joined:
                return await self._infer[index](parts, timeout=timeout_s)
            # gRPC waits for a write that hangs in a connection that was cut, past every deadline.
            call = self._infer[index](b"".join(parts), timeout=timeout_s)
            return await asyncio.wait_for(call, timeout_s + LATE_S)
        except asyncio.TimeoutError:
            raise CallError(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded") from None
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
            if self._idle is not None and not any(self._busy):
                self._idle.set()

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
            except asyncio.CancelledError:
                if self._closed:
                    return None
                raise
            got = time.time_ns() // 1000
            inside = answer.answered_unix_us - answer.received_unix_us
            offset = (answer.received_unix_us - sent + answer.answered_unix_us - got) // 2
            self._pings.append((max(0, got - sent - inside), offset))
        del self._pings[:-REMEMBERED]
        round_trip, offset = min(self._pings)
        return offset, round_trip // 2 + 1

    async def retire(self):
        """Closes the connections once nothing is in flight."""
        if any(self._busy):
            self._idle = asyncio.Event()
            await self._idle.wait()
        await self.close()

    async def close(self):
        """Closes the connections; what is in flight fails."""
        self._closed = True
        await asyncio.gather(*(channel.close() for channel in self._channels))


class Links:
    """A link per registered node."""

    def __init__(self, engine, sec, connections):
        self._engine, self._security, self._connections = engine, sec, connections
        self._links = {}
        # Those that are closed once nothing is on them, by node.
        self._retired = {}
        self._closing = set()

    def get(self, node):
        """The node's link, opened when there is none to its address."""
        link = self._links.get(node.node_id)
        if link is not None and link.address != node.descriptor.address:
            self.drop(node.node_id)
            link = None
        if link is None:
            address = node.descriptor.address
            link = Link(self._engine, address, node.node_id, self._security, self._connections)
            self._links[node.node_id] = link
        return link

    def renew(self, node):
        """New connections to a node that has registered: it was away, and the old ones may lead nowhere for long.

        What is in flight on them may still end there.
        """
        link = self._links.pop(node.node_id, None)
        if link is not None:
            self._retired.setdefault(node.node_id, []).append(link)
            self._see_to(self._retire(node.node_id, link))
        return self.get(node)

    async def _retire(self, node_id, link):
        await link.retire()
        left = self._retired[node_id]
        left.remove(link)
        if not left:
            del self._retired[node_id]

    def drop(self, node_id):
        """Closes a node's connections: what is in flight there fails now, and is tried elsewhere."""
        links = list(self._retired.get(node_id, ()))
        if node_id in self._links:
            links.append(self._links.pop(node_id))
        for link in links:
            self._see_to(link.close())

    def _see_to(self, closing):
        task = asyncio.ensure_future(closing)
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def close(self):
        """Closes all."""
        for node_id in {*self._links, *self._retired}:
            self.drop(node_id)
        await asyncio.gather(*self._closing)
