"""Tells the scheduler that the node is there: registers, beats, and registers again whenever that was lost."""

import asyncio
import logging
import random

import grpc

from npuforge import npuforge_pb2 as pb
from npuforge import rpc, security, transport

log = logging.getLogger("npu-node")

FIRST_WAIT_S = 0.2
# With a call that hangs before it, within two seconds of a way that is open again.
LONGEST_WAIT_S = 1.0
CALL_S = 2.0


class Registration:
    """The node's side of registration and heartbeat."""

    def __init__(self, settings, sec, health, address):
        self._node_id = settings["node"]["id"]
        self._interval_s = settings["telemetry"]["heartbeat_interval_ms"] / 1000
        self._token = sec.token
        self._health, self._address = health, address
        self._way = (
            settings["transport"]["engine"], settings["node"]["scheduler_address"], sec, security.SCHEDULER_NAME
        )  # fmt: skip
        self._open()
        self.registered = False
        self._said = None

    def _open(self):
        self._channel = transport.open_channel(*self._way)
        names = ("RegisterNode", "Heartbeat", "DeregisterNode")
        calls = {name: rpc.call(self._channel, rpc.SCHEDULER[name]) for name in names}
        self._register, self._beat, self._deregister = (
            calls["RegisterNode"],
            calls["Heartbeat"],
            calls["DeregisterNode"],
        )

    async def _open_again(self):
        # The old connection may lead nowhere for as long as its kernel waits between two tries: up to twice the time
        # that the way was cut.
        old = self._channel
        self._open()
        await old.close()

    async def run(self):
        """For ever; cancel it to end."""
        wait_s = FIRST_WAIT_S
        while True:
            if await self._try_register():
                wait_s = FIRST_WAIT_S
                await self._beat_while_known()
            self.registered = False
            # Not all at once after a restart of the scheduler.
            await asyncio.sleep(wait_s * random.uniform(0.5, 1.0))
            wait_s = min(LONGEST_WAIT_S, 2 * wait_s)

    async def _try_register(self):
        request = pb.RegisterNodeRequest(descriptor=self._health.descriptor(self._address), token=self._token)
        try:
            answer = await self._register(request, timeout=CALL_S)
        except grpc.RpcError as error:
            self._say("the scheduler does not answer: %s %s", error.code().name, error.details())
            await self._open_again()
            return False
        if not answer.accepted:
            self._say("the scheduler refuses this node: %s %s", answer.error_code, answer.error_message)
            return False
        self._say("registered as %s at %s", self._node_id, self._address)
        return True

    async def _beat_while_known(self):
        while True:
            request = pb.HeartbeatRequest(node_id=self._node_id, health=self._health.read())
            try:
                answer = await self._beat(request, timeout=CALL_S)
            except grpc.RpcError as error:
                self._say("a heartbeat failed: %s %s", error.code().name, error.details())
                await self._open_again()
                return
            if answer.must_reregister or not answer.accepted:
                self._say("the scheduler does not know this node any more")
                return
            self.registered = True
            await asyncio.sleep(self._interval_s)

    def _say(self, text, *values):
        # Once a state, not once a try.
        said = text % values
        if said != self._said:
            self._said = said
            log.info("%s", said)

    async def leave(self, reason):
        """Takes the node out of the scheduler's list, if it can be reached."""
        try:
            await self._deregister(pb.DeregisterNodeRequest(node_id=self._node_id, reason=reason), timeout=CALL_S)
        except grpc.RpcError as error:
            log.info("could not deregister: %s", error.code().name)

    async def close(self):
        """Closes the connection."""
        await self._channel.close()
