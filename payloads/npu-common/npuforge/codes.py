"""The error codes of the protocol: part of the wire, so neither a number nor a meaning ever changes."""

import enum


class Code(str, enum.Enum):
    """An error code as it stands in `error_code`. An empty string on the wire also means OK."""

    OK = "NPF-0000"
    INVALID_REQUEST = "NPF-1001"
    PAYLOAD_TOO_LARGE = "NPF-1002"
    UNSUPPORTED_INPUT_FORMAT = "NPF-1003"
    UNAUTHORIZED = "NPF-1004"
    MODEL_NOT_FOUND = "NPF-1101"
    MODEL_VERSION_MISMATCH = "NPF-1102"
    NO_AVAILABLE_NODE = "NPF-1201"
    DEADLINE_UNSATISFIABLE = "NPF-1202"
    REQUEST_TIMEOUT = "NPF-1203"
    NODE_TIMEOUT = "NPF-1301"
    NODE_UNAVAILABLE = "NPF-1302"
    NODE_OVERLOADED = "NPF-1303"
    BACKEND_ERROR = "NPF-1401"
    INFERENCE_FAILED = "NPF-1402"
    INTERNAL_ERROR = "NPF-1501"


RETRYABLE = frozenset(
    {
        Code.NODE_TIMEOUT,
        Code.NODE_UNAVAILABLE,
        Code.NODE_OVERLOADED,
        Code.BACKEND_ERROR,
        Code.INFERENCE_FAILED,
    }
)

_KNOWN = {code.value: code for code in Code}


def from_node(text):
    """The code that a node's answer carries; one that is not known counts as a failed inference (and is retried)."""
    if not text:
        return Code.OK
    return _KNOWN.get(text, Code.INFERENCE_FAILED)


class Refusal(Exception):
    """A request cannot be served: its code, one sentence, and how many nodes have tried."""

    def __init__(self, code, message, attempts=0):
        super().__init__(message)
        self.code = code
        self.message = message
        self.attempts = attempts
