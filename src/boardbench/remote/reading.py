"""Readings: a number, or `{"missing": "why"}`. A read that failed is never 0, and never costs the other reads."""

from __future__ import annotations

import errno
import json
import os
import select
import signal
import time
from typing import Any, Callable, Dict, Union

Number = Union[int, float]
Reading = Union[int, float, Dict[str, str]]

# What the kernel answers when a sensor is there but has nothing to say now.
_SENSOR_SILENT = {
    errno.EAGAIN: "sensor off (EAGAIN)",
    errno.EINVAL: "not available now (EINVAL)",
    errno.ENODATA: "no data (ENODATA)",
    errno.EIO: "read error (EIO)",
    errno.ENOENT: "not there",
    errno.EACCES: "not permitted (EACCES)",
}
_LIMIT_BYTES = 1024 * 1024


class Missing(Exception):
    """There is no value, and why."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why

    def reading(self) -> dict[str, str]:
        """As the wire says it."""
        return {"missing": self.why}


def is_missing(reading: Any) -> bool:
    """Whether a reading is the absence of one."""
    return isinstance(reading, dict) and "missing" in reading


def raw(path: str) -> bytes:
    """A file's bytes by plain reads that never wait (Python's text mode turns EAGAIN into a TypeError), or Missing."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            pieces: list[bytes] = []
            size = 0
            while size <= _LIMIT_BYTES:
                piece = os.read(fd, 65536)
                if not piece:
                    break
                pieces.append(piece)
                size += len(piece)
        finally:
            os.close(fd)
    except OSError as error:
        why = _SENSOR_SILENT.get(error.errno or 0) or f"{error.strerror} ({errno.errorcode.get(error.errno or 0)})"
        raise Missing(why) from error
    return b"".join(pieces)


def text(path: str) -> str:
    """A file's text without a byte order mark and white space around it; Missing when it is empty."""
    content = raw(path).decode("utf-8", "replace").lstrip("\ufeff").strip()
    if not content:
        raise Missing("empty")
    return content


def parse_number(content: str) -> Number:
    """A decimal number as the kernel writes it; Missing for anything else (`12,34`, `inf`, `<unknown>`)."""
    word = content.strip()
    try:
        return int(word, 10)
    except ValueError:
        pass
    try:
        number = float(word)
    except ValueError:
        raise Missing(f"not a number: {word[:40]!r}") from None
    if number != number or number in (float("inf"), float("-inf")):
        raise Missing(f"not a number: {word[:40]!r}")
    return number


def attempt(read: Callable[[], Number]) -> Reading:
    """What `read` gives, or why it gives nothing."""
    try:
        return read()
    except Missing as missing:
        return missing.reading()


def number(path: str, scale: float = 1) -> Reading:
    """The number in a file, times `scale`."""

    def read() -> Number:
        value = parse_number(text(path))
        return value if scale == 1 else round(value * scale, 9)

    return attempt(read)


def word(path: str) -> str | None:
    """The text in a file, or None: for names, where there is nothing to explain."""
    try:
        return text(path)
    except Missing:
        return None


def entries(folder: str) -> list[str]:
    """The names in a folder, in their natural order (zone2 before zone10); none when there is no such folder."""
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    return sorted(names, key=natural)


def natural(name: str) -> tuple[str, int, str]:
    """A sort key: the first number in a name counts as a number."""
    head = name.rstrip("0123456789")
    tail = name[len(head) :]
    return (head, int(tail) if tail else -1, name)


def texts_apart(paths: list[str], deadline_s: float) -> dict[str, str | dict[str, str]]:
    """Texts of files whose read may hang in the kernel: read by a child, which is left behind when it does.

    A read that hangs in D state cannot be ended, and it would keep this whole process from ending.
    """
    source, sink = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(source)
            # The wire's end must not be held open by a reader that never comes back.
            os.closerange(0, sink)
            os.closerange(sink + 1, max(256, sink + 64))
            for path in paths:
                os.write(sink, json.dumps([path, _text_or_missing(path)]).encode() + b"\n")
        finally:
            os._exit(0)
    os.close(sink)
    received = _drain(source, deadline_s)
    os.close(source)
    os.kill(child, signal.SIGKILL)
    _reap(child)
    found: dict[str, str | dict[str, str]] = {}
    for line in received.split(b"\n")[:-1]:
        path, value = json.loads(line)
        found[path] = value
    return {path: found.get(path, {"missing": f"no answer within {deadline_s:g} s"}) for path in paths}


def _text_or_missing(path: str) -> str | dict[str, str]:
    try:
        return text(path)
    except Missing as missing:
        return missing.reading()


def _drain(fd: int, deadline_s: float) -> bytes:
    until = time.monotonic() + deadline_s
    received = bytearray()
    while True:
        left = until - time.monotonic()
        if left <= 0 or not select.select([fd], [], [], left)[0]:
            return bytes(received)
        piece = os.read(fd, 65536)
        if not piece:
            return bytes(received)
        received += piece


def _reap(child: int) -> None:
    """Waits for the child as long as an ending process needs; one that hangs in the kernel goes to init later."""
    for _ in range(20):
        if os.waitpid(child, os.WNOHANG)[0]:
            return
        time.sleep(0.005)


def number_of(found: str | dict[str, str]) -> Reading:
    """The number in a text that was read apart."""
    if isinstance(found, dict):
        return found
    return attempt(lambda: parse_number(found))
