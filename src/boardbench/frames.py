"""The controller's end of the wire: JSON lines with exact byte counts, both ways, under one deadline.

While it sends it keeps reading, so a board that talks while it is talked to can never block both; what comes on
standard error is never part of the protocol, and its tail is kept for error messages.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator

from boardbench.crew import check_stop
from boardbench.transport import Exec

MAX_LINE_BYTES = 16 * 1024 * 1024
STDERR_TAIL_BYTES = 4096
# The reader must notice Ctrl-C of the crew and the deadline; data itself wakes it at once.
_TICK_S = 0.25
_SEND_TICK_S = 0.05


class NotTheProtocol(Exception):
    """Something that is not a message came where a message must be; `saw` is its printable start."""

    def __init__(self, why: str, saw: bytes) -> None:
        super().__init__(why)
        self.why = why
        self.saw = saw[:120].decode("utf-8", "backslashreplace").strip()


class OutOfTime(Exception):
    """The deadline passed while waiting for the board."""


class Frames:
    """Messages and raw bytes over one running program."""

    def __init__(self, running: Exec, deadline_monotonic: float) -> None:
        self._exec = running
        self._deadline = deadline_monotonic
        self._buffer = bytearray()
        self._at_end = False
        self.stderr_tail = b""
        self.messages = 0

    def message(self) -> dict[str, object]:
        """The next message. Raises NotTheProtocol, OutOfTime, LinkLost, or EOFError when the program has ended."""
        searched = 0
        while (end := self._buffer.find(b"\n", searched)) < 0:
            if len(self._buffer) > MAX_LINE_BYTES:
                raise NotTheProtocol(f"a line of more than {MAX_LINE_BYTES} bytes", bytes(self._buffer[:200]))
            searched = len(self._buffer)
            try:
                self._fill()
            except EOFError:
                if self._buffer.strip():
                    raise NotTheProtocol("the answer ends inside a line", bytes(self._buffer)) from None
                raise
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        value = _parse(line)
        self.messages += 1
        return value

    def raw(self, count: int) -> Iterator[bytes]:
        """Exactly `count` raw bytes in pieces, as they come."""
        left = count
        while left:
            if not self._buffer:
                self._fill()
            piece = bytes(self._buffer[:left])
            del self._buffer[: len(piece)]
            left -= len(piece)
            yield piece

    def send(self, message: dict[str, object]) -> None:
        """Sends one message line."""
        line = json.dumps(message, allow_nan=False, ensure_ascii=False).encode("utf-8") + b"\n"
        if len(line) > MAX_LINE_BYTES:
            raise ValueError(f"a message has {len(line)} bytes, the wire carries {MAX_LINE_BYTES}")
        self.send_raw([line])

    def send_raw(self, pieces: Iterable[bytes]) -> None:
        """Sends raw bytes, reading what the board says meanwhile."""
        for piece in pieces:
            left = memoryview(piece)
            while left:
                wait_s = min(_SEND_TICK_S, self._remaining_s())
                sent = self._exec.send(left, wait_s)
                left = left[sent:]
                if not sent:
                    self._drain()

    def renew(self, deadline_monotonic: float) -> bool:
        """Ready for another call of the same program under a new deadline; False when it has ended or said something.

        Nobody has asked it anything, so whatever it said belongs to nothing.
        """
        self._deadline = deadline_monotonic
        self.stderr_tail = b""
        try:
            out, _ = self._exec.receive(0.0)
        except EOFError:
            return False
        return not (out or self._buffer or self._at_end)

    def drain_to_end(self, timeout_s: float) -> None:
        """Reads on until the program ends or the time is over: its last words explain its end."""
        end = time.monotonic() + timeout_s
        try:
            while (left_s := end - time.monotonic()) > 0:
                self._take(*self._exec.receive(left_s))
        except EOFError:
            self._at_end = True

    def stderr_text(self) -> str:
        """The tail of what the board said on standard error."""
        return self.stderr_tail.decode("utf-8", "backslashreplace").strip()

    def _remaining_s(self) -> float:
        check_stop()
        left_s = self._deadline - time.monotonic()
        if left_s <= 0:
            raise OutOfTime
        return left_s

    def _take(self, out: bytes, err: bytes) -> None:
        self._buffer += out
        if err:
            self.stderr_tail = (self.stderr_tail + err)[-STDERR_TAIL_BYTES:]

    def _fill(self) -> None:
        before = len(self._buffer)
        while len(self._buffer) == before:
            if self._at_end:
                raise EOFError
            self._take(*self._exec.receive(min(_TICK_S, self._remaining_s())))

    def _drain(self) -> None:
        if len(self._buffer) > 4 * MAX_LINE_BYTES:
            raise NotTheProtocol("the board sends without end while it should receive", bytes(self._buffer[:200]))
        try:
            self._take(*self._exec.receive(0.0))
        except EOFError:
            # Keep what it said before: that is the reason.
            self._at_end = True
            raise


def _parse(line: bytes) -> dict[str, object]:
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError:
        raise NotTheProtocol("bytes that are not UTF-8", line) from None
    try:
        value = json.loads(text, parse_constant=_no_constant)
    except ValueError:
        raise NotTheProtocol("a line that is not JSON", line) from None
    if not isinstance(value, dict) or not isinstance(value.get("event"), str):
        raise NotTheProtocol("a line that is no event", line)
    return value


def _no_constant(word: str) -> float:
    raise ValueError(f"{word} is not JSON")
