"""What the cluster's services answer alike: the clock, and telemetry until the program ends."""

import abc
import asyncio
import time

from npuforge import npuforge_pb2 as pb

SHORTEST_PERIOD_MS = 100
LONGEST_PERIOD_S = 3600.0


def unix_us():
    """The wall clock in microseconds."""
    return time.time_ns() // 1000


class Service(abc.ABC):
    """The RPCs `Clock` and `StreamTelemetry`, whose messages `telemetry` of each service makes."""

    def __init__(self):
        self._end = asyncio.Event()

    def end(self):
        """Ends what has no end of its own."""
        self._end.set()

    @abc.abstractmethod
    def telemetry(self):
        """The message that says how things stand now."""

    async def clock(self, request, context):
        """The clock of this program, for the offset to it."""
        now = unix_us()
        return pb.ClockResponse(received_unix_us=now, answered_unix_us=unix_us())

    async def stream_telemetry(self, request, context):
        """How things stand, again and again, until the caller has enough."""
        period_s = max(SHORTEST_PERIOD_MS, request.period_ms or 1000) / 1000
        ended = False
        while not ended:
            yield self.telemetry()
            ended = await self._ended(min(period_s, LONGEST_PERIOD_S))

    async def _ended(self, seconds):
        """Whether the program ends within that time."""
        try:
            await asyncio.wait_for(self._end.wait(), seconds)
        except asyncio.TimeoutError:
            return False
        return True
