"""ONNX models on the CPU by onnxruntime: a real inference where there is no NPU.

The runtime's own threads are one a worker: the workers are what runs side by side. Outputs that are int8 leave as they
are, quantised; others are not taken.
"""

import time

from npuforge import tensors
from npuforge.codes import Code, Refusal
from npunode.backends import BackendError
from npunode.backends.base import Inference
from npunode.backends.blocking import Blocking, Threads
from npunode.backends.model_file import model_file

# The kind of quantisation, as the result blob counts it: a scale and a zero point.
AFFINE = 2


def _runtime():
    try:
        import numpy
        import onnxruntime
    except ImportError as error:
        raise BackendError(f"this board does not have the backend 'onnx': {error}; install onnxruntime") from None
    return onnxruntime, numpy


def _quantisation(session, path):
    """(zero point, scale) of the outputs, as the model's metadata tells them."""
    told = session.get_modelmeta().custom_metadata_map
    try:
        return int(told["output_zero_point"]), float(told["output_scale"])
    except (KeyError, ValueError):
        raise BackendError(f"{path} does not tell output_zero_point and output_scale in its metadata") from None


class Onnx(Blocking):
    """An INT8 model with one 1x640x640x3 uint8 input, a session per worker."""

    name = "onnx"

    def __init__(self, settings):
        self._onnxruntime, self._numpy = _runtime()
        self.runtime_version = f"onnxruntime {self._onnxruntime.__version__}"
        self._path, self.model_sha256 = model_file(settings)
        count = settings["worker"]["worker_count"]
        self._quantisation = None
        self._threads = Threads(count, self._session, self._run, lambda _: None)

    async def start(self):
        """Loads the model once a worker. BackendError when it cannot be loaded or is of another shape."""
        await self._threads.start()

    def _session(self):
        options = self._onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        try:
            session = self._onnxruntime.InferenceSession(self._path, options, providers=["CPUExecutionProvider"])
        except Exception as error:
            # The runtime's errors have no class of their own.
            raise BackendError(f"onnxruntime cannot load {self._path}: {error}") from None
        inputs = session.get_inputs()
        if len(inputs) != 1 or list(inputs[0].shape) != [1, 640, 640, 3] or inputs[0].type != "tensor(uint8)":
            raise BackendError(f"{self._path} does not take one 1x640x640x3 uint8 image")
        kinds = {output.type for output in session.get_outputs()}
        if kinds != {"tensor(int8)"}:
            raise BackendError(f"the outputs of {self._path} are {', '.join(sorted(kinds))}, not int8")
        self._quantisation = _quantisation(session, self._path)
        return session

    def _run(self, session, payload):
        numpy = self._numpy
        began = time.perf_counter_ns()
        image = numpy.frombuffer(payload, dtype=numpy.uint8).reshape(1, 640, 640, 3)
        try:
            outputs = session.run(None, {session.get_inputs()[0].name: image})
        except Exception as error:
            raise Refusal(Code.INFERENCE_FAILED, f"onnxruntime: {error}") from None
        ran = time.perf_counter_ns()
        arrays = [numpy.ascontiguousarray(output) for output in outputs]
        zero_point, scale = self._quantisation
        head = tensors.header([(array.nbytes, array.shape, AFFINE, zero_point, scale) for array in arrays])
        result = [head, *(memoryview(array).cast("B") for array in arrays)]
        ended = time.perf_counter_ns()
        return Inference(result, {"inference_us": (ran - began) // 1000, "postprocess_us": (ended - ran) // 1000})
