"""Backends whose inferences block: a thread a worker, so that the event loop goes on."""

import asyncio
import queue
import threading

from npunode.backends.base import Backend


class Blocking(Backend):
    """A backend that works in `Threads`; it makes them at the latest in `start`."""

    _threads = None

    async def received(self, peer):
        """Nothing: a real board's network takes its time by itself."""

    async def infer(self, worker, payload, visit):
        """Runs in the worker's own thread."""
        return await self._threads.run(worker, payload)

    async def answered(self, visit):
        """Nothing, as `received`."""

    async def close(self):
        """Ends the threads, each of which closes what is its own."""
        if self._threads is not None:
            await self._threads.close()


class Threads:
    """One thread a worker, each with something of its own that is made, used and closed in that thread."""

    def __init__(self, count, make, run, close):
        self._make, self._run, self._close = make, run, close
        self._queues = [queue.SimpleQueue() for _ in range(count)]
        self._threads = []

    async def start(self):
        """Starts the threads one after another, so that contexts are made one at a time. Raises what making raises."""
        loop = asyncio.get_running_loop()
        for index, jobs in enumerate(self._queues):
            made = loop.create_future()
            thread = threading.Thread(target=self._work, args=(loop, jobs, made), name=f"worker-{index}", daemon=True)
            thread.start()
            self._threads.append(thread)
            await made

    def _work(self, loop, jobs, made):
        try:
            own = self._make()
        except Exception as error:
            _tell(loop, made, None, error)
            return
        _tell(loop, made, None, None)
        try:
            while True:
                job = jobs.get()
                if job is None:
                    return
                future, argument = job
                try:
                    _tell(loop, future, self._run(own, argument), None)
                except Exception as error:
                    _tell(loop, future, None, error)
        finally:
            self._close(own)

    async def run(self, worker, argument):
        """What `run(own, argument)` returns in that worker's thread."""
        future = asyncio.get_running_loop().create_future()
        self._queues[worker].put((future, argument))
        # A request that is given up still ends in its thread: the worker is free only after that.
        return await asyncio.shield(future)

    async def close(self):
        """Ends the threads, each after its work."""
        for jobs in self._queues:
            jobs.put(None)
        loop = asyncio.get_running_loop()
        for thread in self._threads:
            await loop.run_in_executor(None, thread.join)


def _tell(loop, future, value, error):
    def settle():
        if not future.done():
            if error is None:
                future.set_result(value)
            else:
                future.set_exception(error)

    try:
        loop.call_soon_threadsafe(settle)
    except RuntimeError:
        # The loop has ended: nobody waits any more.
        pass
