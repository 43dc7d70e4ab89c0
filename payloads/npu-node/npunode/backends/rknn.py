"""Rockchip's NPU by rknn-toolkit-lite2. Not proven on hardware: tests hold the order of calls against a stand-in.

One context per worker thread, made, used and released in that thread: a context shared between threads answers
without an error, and wrongly. A killed process keeps the NPU for some seconds, in which a context cannot be made:
the start waits, tries again, and then refuses. Whether the outputs are native or float is what the runtime hands out,
and the result blob says which it was.
"""

import asyncio
import time

from npuforge import tensors
from npuforge.codes import Code, Refusal
from npunode.backends import BackendError
from npunode.backends.base import Inference
from npunode.backends.blocking import Blocking, Threads
from npunode.backends.model_file import model_file

RETRY_S = 1.0
_DTYPES = {"int8": tensors.NATIVE, "float32": tensors.FLOAT32}


def _toolkit():
    try:
        import numpy
        from rknnlite.api import RKNNLite
    except ImportError as error:
        raise BackendError(
            f"this board does not have the backend 'rknn': {error}; install rknn-toolkit-lite2 and librknnrt"
        ) from None
    return RKNNLite, numpy


class Rknn(Blocking):
    """A model on the NPU, with as many contexts as workers."""

    name = "rknn"

    def __init__(self, settings):
        self._toolkit, self._numpy = _toolkit()
        self._path, self.model_sha256 = model_file(settings)
        self._patience_s = settings["backend"]["start_patience_ms"] / 1000
        self._want_float = settings["worker"]["want_float"]
        count = settings["worker"]["worker_count"]
        self._make_threads = lambda: Threads(count, self._context, self._run, lambda context: context.release())

    async def start(self):
        """Makes all contexts, or none. BackendError when the NPU is held for longer than `start_patience_ms`."""
        until = time.monotonic() + self._patience_s
        while True:
            self._threads = self._make_threads()
            try:
                await self._threads.start()
                return
            except BackendError as error:
                # Contexts that were made hold the NPU too: all go before the next try.
                await self._threads.close()
                if time.monotonic() + RETRY_S > until:
                    raise BackendError(
                        f"{error}; tried for {self._patience_s:g} s: does another process hold it?"
                    ) from None
            await asyncio.sleep(RETRY_S)

    def _context(self):
        context = self._toolkit(verbose=False)
        status = context.load_rknn(self._path)
        if status == 0:
            status = context.init_runtime(core_mask=self._toolkit.NPU_CORE_AUTO)
        if status != 0:
            context.release()
            raise BackendError(f"the NPU gives no context for {self._path} (status {status})")
        return context

    def _run(self, context, payload):
        numpy = self._numpy
        began = time.perf_counter_ns()
        image = numpy.frombuffer(payload, dtype=numpy.uint8).reshape(1, 640, 640, 3)
        prepared = time.perf_counter_ns()
        outputs = context.inference(inputs=[image])
        ran = time.perf_counter_ns()
        if not outputs:
            raise Refusal(Code.INFERENCE_FAILED, "the NPU gave no outputs")
        result = self._blob(outputs)
        ended = time.perf_counter_ns()
        return Inference(
            result,
            {
                "npu_input_us": (prepared - began) // 1000,
                "inference_us": (ran - prepared) // 1000,
                "postprocess_us": (ended - ran) // 1000,
            },
        )

    def _blob(self, outputs):
        kinds = {str(output.dtype) for output in outputs}
        dtype = _DTYPES.get(next(iter(kinds))) if len(kinds) == 1 else None
        if dtype is None:
            raise Refusal(Code.INFERENCE_FAILED, f"the outputs are of kind {', '.join(sorted(kinds))}")
        if (dtype == tensors.FLOAT32) != self._want_float:
            raise Refusal(
                Code.BACKEND_ERROR, f"[worker] want_float is {self._want_float}, the outputs are {kinds.pop()}"
            )
        arrays = [self._numpy.ascontiguousarray(output) for output in outputs]
        head = tensors.header([(array.nbytes, array.shape, 0, 0, 1.0) for array in arrays], dtype)
        return [head, *(memoryview(array).cast("B") for array in arrays)]
