"""The scheduler's connections to a node: new ones when it registers, none that leads nowhere, none left behind."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import grpc
import pytest
from npuforge import npuforge_pb2 as pb
from npuforge import rpc, security
from npuforge.lean.client import Channel
from npuforge.lean.server import Server
from npuscheduler.links import LinkClosed, Links
from npuscheduler.nodes import Node

PLAIN = security.load_security({"security": "plaintext", "ca_file": "", "certificate_file": "", "key_file": ""})
CONNECTIONS = 2


class Peer(grpc.GenericRpcHandler):
    """A node: `Infer` answers when `open` is set."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.calls = 0

    def service(self, details: Any) -> Any:
        async def infer(data: Any, _: Any) -> Any:
            self.calls += 1
            await self.open.wait()
            return [bytes(data)]

        return grpc.unary_unary_rpc_method_handler(infer) if details.method == rpc.NODE["Infer"].path else None


@dataclass(frozen=True)
class At:
    """A node's server, and the scheduler's way to it."""

    peer: Peer
    server: Server
    links: Links
    node: Node


def served(work: Callable[[At], Awaitable[None]], engine: str = "lean") -> None:
    """Runs `work` beside a node's server."""

    async def run() -> None:
        peer, server = Peer(), Server()
        server.add_generic_rpc_handlers((peer,))
        port = server.bind("127.0.0.1:0")
        await server.start()
        node = Node(pb.NodeDescriptor(node_id="king", address=f"127.0.0.1:{port}"), [], 0.0)
        links = Links(engine, PLAIN, CONNECTIONS)
        try:
            await work(At(peer, server, links, node))
        finally:
            await links.close()
            await server.stop(0.5)

    asyncio.run(run())


async def until(check: Callable[[], bool]) -> None:
    """Waits for it."""
    end = time.monotonic() + 20
    while not check():
        assert time.monotonic() < end
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("engine", ["lean", "grpc"])
def test_a_node_that_registers_again_gets_new_connections_and_the_old_calls_still_end(engine: str) -> None:
    async def work(at: At) -> None:
        old = [asyncio.ensure_future(at.links.get(at.node).infer([b"old"], 20)) for _ in range(4)]
        await until(lambda: at.peer.calls == 4)
        before = set(at.server.connections)
        at.links.renew(at.node)
        new = [asyncio.ensure_future(at.links.get(at.node).infer([b"new"], 20)) for _ in range(4)]
        await until(lambda: at.peer.calls == 8)
        assert len(at.server.connections - before) == CONNECTIONS
        at.peer.open.set()
        assert {bytes(answer) for answer in await asyncio.gather(*old)} == {b"old"}
        assert {bytes(answer) for answer in await asyncio.gather(*new)} == {b"new"}
        await until(lambda: not at.server.connections & before)
        assert len(at.server.connections) == CONNECTIONS

    served(work, engine)


@pytest.mark.parametrize("engine", ["lean", "grpc"])
def test_a_node_that_has_rebooted_owes_nothing_on_connections_of_before_its_registration_either(engine: str) -> None:
    async def work(at: At) -> None:
        call = asyncio.ensure_future(at.links.get(at.node).infer([b"old"], 20))
        await until(lambda: at.peer.calls == 1)
        at.links.renew(at.node)
        at.links.drop(at.node.node_id)
        with pytest.raises(LinkClosed):
            await asyncio.wait_for(call, 5)
        # gRPC keeps a connection as long as anybody remembers a call on it, as this test does.
        await until(lambda: not at.server.connections or engine == "grpc")

    served(work, engine)


def test_a_connection_that_is_given_up_is_closed_after_its_last_call_and_not_kept_for_ever() -> None:
    async def work(at: At) -> None:
        link = at.links.get(at.node)
        slow = [asyncio.ensure_future(link.infer([b"slow"], 20)) for _ in range(CONNECTIONS)]
        await until(lambda: at.peer.calls == CONNECTIONS)
        before = set(at.server.connections)
        # Not one byte in its time: the connection takes no new calls, but those that are on it may end.
        late = [asyncio.ensure_future(link.infer([b"late"], 0.2)) for _ in range(CONNECTIONS)]
        for call in late:
            with pytest.raises(grpc.RpcError):
                await call
        assert at.server.connections == before
        at.peer.open.set()
        assert {bytes(answer) for answer in await asyncio.gather(*slow)} == {b"slow"}
        await until(lambda: not at.server.connections)

    served(work)


def test_both_ends_have_the_kernel_find_a_peer_that_is_gone() -> None:
    async def work(at: At) -> None:
        at.peer.open.set()
        channel = Channel(at.node.descriptor.address)
        await channel.unary_unary(rpc.NODE["Infer"].path)(b"x", timeout=5)
        for connection in (channel._connection, *at.server.connections):
            plain = connection.transport.get_extra_info("socket")
            assert plain.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            assert plain.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 60
            assert plain.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 20_000
        await channel.close()

    served(work)
