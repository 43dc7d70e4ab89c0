"""The board's end of the wire: JSON lines with exact byte counts on two raw file descriptors.

One thread owns the input for the whole call. It receives the blobs that were asked for, and it is the one that
notices that the link is lost, whatever the verb is doing at that moment.
"""

from __future__ import annotations

import json
import os
import queue
import re
import threading
import time
from typing import Any, Callable

from .failures import BUG, RIG, Failure
from .places import Places

MAX_LINE_BYTES = 16 * 1024 * 1024
_CHUNK_BYTES = 256 * 1024
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")


def _no_constant(word: str) -> float:
    raise ValueError(f"{word} is not JSON")


class Reader:
    """Messages and raw bytes from a file descriptor, each byte once and in order."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._buffer = bytearray()
        self._at_end = False

    def _fill(self) -> bool:
        if not self._at_end:
            chunk = os.read(self._fd, _CHUNK_BYTES)
            self._at_end = not chunk
            self._buffer += chunk
        return not self._at_end

    def message(self) -> dict[str, Any] | None:
        """The next message, or None at a clean end of the input. Failure `rig` when what comes is not the wire's."""
        searched = 0
        while True:
            end = self._buffer.find(b"\n", searched)
            if end > MAX_LINE_BYTES or (end < 0 and len(self._buffer) > MAX_LINE_BYTES):
                raise Failure(RIG, f"a message is longer than {MAX_LINE_BYTES} bytes", "wire")
            if end >= 0:
                break
            searched = len(self._buffer)
            if not self._fill():
                if not self._buffer:
                    return None
                raise Failure(RIG, "the input ended inside a message", "wire", transient=True)
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return parse_message(line)

    def exactly(self, count: int, sink: Callable[[bytes], object]) -> None:
        """Gives exactly `count` raw bytes to `sink`, in pieces. Failure `rig` when the input ends before."""
        left = count
        while left:
            if not self._buffer and not self._fill():
                raise Failure(RIG, f"the input ended {left} bytes before the end of a blob", "wire", transient=True)
            piece = bytes(self._buffer[:left])
            del self._buffer[: len(piece)]
            sink(piece)
            left -= len(piece)


def parse_message(line: bytes) -> dict[str, Any]:
    """A line of the wire as an object. Failure `rig` that shows the start of whatever else it is."""
    try:
        message = json.loads(line.decode("utf-8"), parse_constant=_no_constant)
    except ValueError:
        message = None
    if not isinstance(message, dict):
        shown = line[:80].decode("utf-8", "replace")
        raise Failure(RIG, f"not a message: {shown!r}", "wire", "one JSON object a line")
    count = message.get("bytes", 0)
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise Failure(RIG, f"a message says bytes: {count!r}", "wire", "a count of bytes is a number from 0 up")
    return message


class Writer:
    """Messages to a file descriptor; any thread may send, a message is never torn by another."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lock = threading.Lock()
        self._closed = False

    def send(self, message: dict[str, Any], raw: bytes = b"", *, last: bool = False, wait_s: float = -1) -> bool:
        """Sends one message (with `bytes` when `raw` follows). False when an answer was already given: `last` shuts.

        `wait_s` bounds the wait for another thread's message that does not get through; then also False.
        """
        if raw:
            message = dict(message, bytes=len(raw))
        try:
            line = json.dumps(message, allow_nan=False, ensure_ascii=False).encode("utf-8", "surrogateescape") + b"\n"
        except (TypeError, ValueError) as error:
            raise Failure(BUG, f"a message cannot be written as JSON: {error}", "wire") from error
        if len(line) > MAX_LINE_BYTES:
            raise Failure(BUG, f"a message has {len(line)} bytes, the wire carries {MAX_LINE_BYTES}", "wire")
        if not self._lock.acquire(timeout=wait_s):
            return False
        try:
            if self._closed:
                return False
            self._closed = last
            self._all(line)
            if raw:
                self._all(raw)
        finally:
            self._lock.release()
        return True

    def _all(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self._fd, view) :]
            except OSError as error:
                raise Failure(RIG, f"the link is lost: {error.strerror}", "wire", transient=True) from error


class Call:
    """One call: its id, its deadline, and what a verb may say and ask while it works."""

    def __init__(self, request: dict[str, Any], reader: Reader, writer: Writer, places: Places) -> None:
        self.id = str(request["call"])
        self.verb = str(request["verb"])
        self.places = places
        self.deadline_s = float(request["deadline_s"])
        self.deadline_monotonic = time.monotonic() + self.deadline_s
        # Set by a guard (deadline, lost link): from then on the verb has no say any more.
        self.ending = threading.Event()
        # The controller has more to ask: after the answer this program waits for the next request.
        self.stays = request.get("stay") is True
        self.answered = threading.Event()
        self._end = threading.Lock()
        self._next: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._reader = reader
        self._writer = writer
        self._wanted: list[str] = []
        self._arrived: queue.Queue[str | Failure] = queue.Queue()
        self._asking = threading.Lock()
        self._pinged = False
        self._pongs: queue.Queue[float | Failure] = queue.Queue()

    def remaining_s(self) -> float:
        """Seconds until the call's deadline, never below 0."""
        return max(0.0, self.deadline_monotonic - time.monotonic())

    def event(self, event: str, /, **fields: Any) -> None:
        """Tells the controller something. Any thread may call it. Failure `rig` when the call is being ended."""
        if self.ending.is_set():
            raise Failure(RIG, "the call is being ended", self.verb, transient=True)
        self._writer.send(dict(fields, event=event))

    def phase(self, name: str, message: str) -> None:
        """Tells a person who watches what is going on."""
        self.event("phase", name=name, message=message)

    def data(self, name: str, data: bytes) -> None:
        """Sends raw bytes of the stream `name`."""
        self._writer.send({"event": "data", "name": name, "bytes": len(data)}, data)

    def answer(self, name: str, fields: dict[str, Any], *, wait_s: float = -1) -> bool:
        """The one `result` or `error` that ends the call. False when it had been given already."""
        return self._writer.send(dict(fields, event=name), last=True, wait_s=wait_s)

    def claim_end(self) -> bool:
        """Whether the caller is the first that ends the call: the verb's own end, or one of the guards."""
        return self._end.acquire(blocking=False)

    def claimed(self) -> bool:
        """Whether somebody ends the call already."""
        return self._end.locked()

    def next_request(self, wait_s: float) -> dict[str, Any] | None:
        """After the answer: what the controller asks next, or None when it has gone or is silent for so long."""
        until = time.monotonic() + wait_s
        while time.monotonic() < until:
            try:
                # In slices: a signal that another thread got is heard by this one only when it wakes.
                return self._next.get(timeout=0.5)
            except queue.Empty:
                continue
        return None

    def blob_path(self, sha256: str) -> str:
        """Where the blob lies, or would lie."""
        if not _SHA256.match(sha256):
            raise Failure("bad-input", f"{sha256!r} is not a SHA-256 in hexadecimal", "blob")
        return os.path.join(self.places.blobs, sha256)

    def blob(self, sha256: str) -> str:
        """The path of a blob, asked from the controller when it is not here."""
        self.need([sha256])
        return self.blob_path(sha256)

    def need(self, hashes: list[str]) -> None:
        """Makes sure that all these blobs are here; asks, once, for those that are missing."""
        missing = [sha for sha in dict.fromkeys(hashes) if not os.path.exists(self.blob_path(sha))]
        if not missing:
            return
        os.makedirs(self.places.blobs, mode=0o700, exist_ok=True)
        with self._asking:
            self._wanted = list(missing)
            self.event("need", blobs=missing)
            for _ in missing:
                try:
                    arrived = self._arrived.get(timeout=max(0.1, self.remaining_s()))
                except queue.Empty:
                    raise Failure(RIG, "the blobs did not come within the deadline", "wire", transient=True) from None
                if isinstance(arrived, Failure):
                    raise arrived

    def ping(self) -> float:
        """A round trip to the controller; its wall clock, in Unix seconds, when it answered."""
        with self._asking:
            self._pinged = True
            self.event("ping")
            try:
                answer = self._pongs.get(timeout=max(0.1, self.remaining_s()))
            except queue.Empty:
                raise Failure(RIG, "no answer to a ping within the deadline", "wire", transient=True) from None
        if isinstance(answer, Failure):
            raise answer
        return answer

    def serve_input(self, on_lost: Callable[[str], None]) -> None:
        """The input thread: takes the blobs that were asked for, until the input ends; then `on_lost(why)`.

        The next request ends it too: whoever serves that one reads on.
        """
        try:
            while True:
                message = self._reader.message()
                if message is None:
                    self._next.put(None)
                    return on_lost("the input ended")
                if self.stays and "call" in message and self.claimed():
                    return self._next.put(message)
                self._take(message)
        except Failure as failure:
            # After this no byte can be trusted: whoever waits for a blob learns why, and the call ends.
            self._arrived.put(failure)
            self._pongs.put(failure)
            self._next.put(None)
            on_lost(failure.what)
        except OSError as error:
            lost = Failure(RIG, f"the link is lost: {error.strerror}", "wire", transient=True)
            self._arrived.put(lost)
            self._pongs.put(lost)
            self._next.put(None)
            on_lost(f"the link is lost: {error.strerror}")

    def _take(self, message: dict[str, Any]) -> None:
        pong = message.get("pong")
        if self._pinged and isinstance(pong, (int, float)) and not isinstance(pong, bool):
            self._pinged = False
            self._pongs.put(float(pong))
            return
        sha = message.get("blob")
        if not self._wanted or sha != self._wanted[0] or "bytes" not in message:
            raise Failure(RIG, f"a message that nobody asked for: {str(message)[:80]}", "wire")
        self._wanted.pop(0)
        self._arrived.put(self._receive(str(sha), message["bytes"]))

    def _receive(self, sha: str, count: int) -> str | Failure:
        """Stores one blob. A full disk or a wrong hash is an answer; the bytes are read to their end all the same."""
        import hashlib

        path = self.blob_path(sha)
        partial = path + ".partial"
        digest = hashlib.sha256()
        trouble: list[OSError] = []
        fd = -1
        try:
            fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        except OSError as error:
            trouble.append(error)

        def sink(piece: bytes) -> None:
            digest.update(piece)
            if trouble:
                return
            try:
                view = memoryview(piece)
                while view:
                    view = view[os.write(fd, view) :]
            except OSError as error:
                trouble.append(error)

        whole = False
        try:
            self._reader.exactly(count, sink)
            whole = not trouble and digest.hexdigest() == sha
            if whole:
                os.fsync(fd)
                os.rename(partial, path)
        except OSError as error:
            whole = False
            trouble.append(error)
        finally:
            if fd >= 0:
                os.close(fd)
            if not whole and os.path.exists(partial):
                os.unlink(partial)
        if trouble:
            return Failure(RIG, f"cannot store a blob: {trouble[0].strerror}", self.places.blobs, "make room")
        if not whole:
            return Failure(RIG, f"a blob arrived with another hash than {sha[:12]}", "wire", transient=True)
        return sha
