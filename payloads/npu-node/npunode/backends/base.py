"""What every backend is."""

import abc
import collections

from npuforge import tensors
from npuforge.codes import Code, Refusal

Inference = collections.namedtuple("Inference", "result stages")
Inference.__doc__ = """The result blob as a list of buffers, and the stages' times {field of Timing: microseconds}."""

RGB8 = 3
_FORMATS = {0: "unspecified", 1: "JPEG", 2: "PNG", 3: "RGB8", 4: "BGR8"}


class Backend(abc.ABC):
    """One model on one device.

    `start` and `close` come once each, `infer` from any number of workers at a time, each worker with its own number
    and one inference at a time.
    """

    name = ""
    virtual = False
    runtime_version = ""
    model_sha256 = ""

    # (CPU percent, NPU percent), where the backend knows better than the host's files.
    utilisation = None

    @abc.abstractmethod
    async def start(self):
        """Makes it ready. BackendError when that cannot be."""

    @abc.abstractmethod
    async def received(self, peer):
        """Called when a request has come, before anything else; what it returns goes to `infer` and `answered`.

        A model of a board spends the time of its network here.
        """

    @abc.abstractmethod
    async def infer(self, worker, payload, visit):
        """An `Inference`. Refusal with a code when it fails."""

    @abc.abstractmethod
    async def answered(self, visit):
        """Called when the answer is made, before it goes out."""

    @abc.abstractmethod
    async def close(self):
        """Lets go of the device."""

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
