"""What every backend is, and the workers of those that block."""

import asyncio
import collections
import hashlib
import os
import queue
import threading

from npuforge import tensors
from npuforge.codes import Code, Refusal
from npunode.backends import BackendError

Inference = collections.namedtuple("Inference", "result stages")
Inference.__doc__ = """The result blob as a list of buffers, and the stages' times {field of Timing: microseconds}."""

RGB8 = 3
_FORMATS = {0: "unspecified", 1: "JPEG", 2: "PNG", 3: "RGB8", 4: "BGR8"}


class Backend:
    """One model on one device.

    `start` and `close` come once each, `infer(worker, request, payload, peer)` from any number of workers at a time,
    each worker with its own number and one inference at a time.
    """

    name = ""
    virtual = False
    runtime_version = ""
    model_sha256 = ""

    async def start(self):
        """Makes it ready. BackendError when that cannot be."""

    async def received(self, peer):
        """Called when a request has come, before anything else; what it returns goes to `infer` and `answered`.

        A model of a board spends the time of its network here.
        """

    async def infer(self, worker, payload, visit):
        """An `Inference`. Refusal with a code when it fails."""
        raise NotImplementedError

    async def answered(self, visit):
        """Called when the answer is made, before it goes out."""

    async def close(self):
        """Lets go of the device."""

    # (CPU percent, NPU percent), where the backend knows better than the host's files.
    utilisation = None

    def check(self, input_format, payload_bytes):
        """Refusal unless this is an image that the model takes."""
        if input_format != RGB8:
            kind = _FORMATS.get(input_format, str(input_format))
            raise Refusal(Code.UNSUPPORTED_INPUT_FORMAT, f"the model takes RGB8, not {kind}")
        if payload_bytes != tensors.INPUT_BYTES:
            raise Refusal(
                Code.INVALID_REQUEST,
                f"the model takes 640x640x3 RGB8, {tensors.INPUT_BYTES} bytes, not {payload_bytes}",
            )


def model_file(settings):
    """The model's path and hash, checked against the settings. BackendError when it is not the one that is wanted."""
    models = settings["models"]
    path = os.path.join(models["directory"], models["file"])
    if not models["file"]:
        raise BackendError("[models] file is missing: this backend needs a model file")
    digest = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            for chunk in iter(lambda: file.read(1 << 20), b""):
                digest.update(chunk)
    except OSError as error:
        raise BackendError(f"the model {path} cannot be read: {error.strerror}") from None
    found = digest.hexdigest()
    wanted = models["sha256"].lower()
    if not wanted:
        raise BackendError(f"[models] sha256 is missing: {path} has {found}, and every node must have the same")
    if found != wanted:
        raise BackendError(f"the model {path} has SHA-256 {found}, not {wanted}")
    return path, found


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
