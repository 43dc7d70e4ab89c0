"""Who waits for a worker: first come, first served, at most so many, for at most so long."""

import asyncio
import collections

from npuforge.codes import Code, Refusal


class WorkerQueue:
    """Hands out the numbers of free workers. For one event loop."""

    def __init__(self, worker_count, max_queue_depth):
        self._free = collections.deque(range(worker_count))
        self._waiting = collections.OrderedDict()
        self._max_queue_depth = max_queue_depth
        self.in_flight = 0

    @property
    def depth(self):
        """How many requests wait."""
        return len(self._waiting)

    async def take(self, timeout_s):
        """A free worker's number. Refusal when the queue is full or no worker is free in time."""
        if self._free:
            self.in_flight += 1
            return self._free.popleft()
        if len(self._waiting) >= self._max_queue_depth:
            raise Refusal(Code.NODE_OVERLOADED, f"{len(self._waiting)} requests wait here already")
        future = asyncio.get_running_loop().create_future()
        self._waiting[future] = None
        timer = asyncio.get_running_loop().call_later(timeout_s, self._too_late, future, timeout_s)
        try:
            worker = await future
        except asyncio.CancelledError:
            # The worker may have been handed over in the same moment.
            if future.done() and not future.cancelled() and future.exception() is None:
                self._hand_on(future.result())
            raise
        finally:
            self._waiting.pop(future, None)
            timer.cancel()
        self.in_flight += 1
        return worker

    def _too_late(self, future, timeout_s):
        self._waiting.pop(future, None)
        if not future.done():
            future.set_exception(Refusal(Code.NODE_OVERLOADED, f"no worker was free within {timeout_s:g} s"))

    def give_back(self, worker):
        """The worker is free again."""
        self.in_flight -= 1
        self._hand_on(worker)

    def _hand_on(self, worker):
        while self._waiting:
            future, _ = self._waiting.popitem(last=False)
            if not future.done():
                future.set_result(worker)
                return
        self._free.append(worker)
