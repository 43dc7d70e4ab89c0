"""gRPC's statuses as they lie in headers, and as errors that look like those of grpc.aio."""

import urllib.parse

import grpc

_BY_NUMBER = {code.value[0]: code for code in grpc.StatusCode}
_UNITS_S = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
# From HTTP's status when there is no gRPC status.
_BY_HTTP = {"401": 16, "403": 7, "404": 12, "429": 14, "502": 14, "503": 14, "504": 14}


class CallError(grpc.RpcError):
    """A call failed."""

    def __init__(self, code, details):
        super().__init__(f"{code.name}: {details}")
        self._code, self._details = code, details

    def code(self):
        """The `grpc.StatusCode`."""
        return self._code

    def details(self):
        """One sentence."""
        return self._details


def error_in(headers):
    """The `CallError` in trailers, None when they say that all is well."""
    found = dict(headers)
    text = found.get("grpc-status")
    if text is None:
        number = _BY_HTTP.get(found.get(":status", ""), 2)
        return CallError(_BY_NUMBER[number], f"HTTP status {found.get(':status')} without a gRPC status")
    number = int(text) if text.isdigit() else 2
    if number == 0:
        return None
    return CallError(
        _BY_NUMBER.get(number, grpc.StatusCode.UNKNOWN), urllib.parse.unquote(found.get("grpc-message", ""))
    )


def trailers(number, message=""):
    """The trailers of an answer."""
    quoted = urllib.parse.quote(message[:1000], safe=" !#$&'()*+,/:;=?@[]^_`{|}~\"<>")
    return [("grpc-status", str(number)), *([("grpc-message", quoted)] if message else [])]


def timeout_s(text):
    """Seconds of a `grpc-timeout`, None when it is none."""
    if len(text) < 2 or len(text) > 9 or not text[:-1].isdigit() or text[-1] not in _UNITS_S:
        return None
    return int(text[:-1]) * _UNITS_S[text[-1]]


def timeout_text(seconds):
    """A `grpc-timeout` of so many seconds, rounded up to milliseconds."""
    return f"{min(99_999_999, max(1, int(seconds * 1000) + 1))}m"
