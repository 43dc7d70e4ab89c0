"""The raw file `llama.jsonl`: a line is there as a whole or not at all."""

from __future__ import annotations

import json
import os
import time
from typing import Any, Dict, Union

Reading = Union[int, float, Dict[str, str]]
"""A number, or `{"missing": why}`: never 0 for what could not be read."""


class Trouble(Exception):
    """The load cannot do its work; one sentence."""


def missing(why: str) -> dict[str, str]:
    """A reading that could not be had."""
    return {"missing": why}


def stamp() -> dict[str, float]:
    """Now, by three clocks."""
    return {
        "wall_unix_s": round(time.time(), 6),
        "monotonic_s": round(time.monotonic(), 6),
        "boottime_s": round(time.clock_gettime(time.CLOCK_BOOTTIME), 6),
    }


def now_s() -> float:
    """The monotonic clock, in seconds, as the raw file holds it."""
    return round(time.monotonic(), 6)


class Log:
    """Never written over: the folder belongs to one run."""

    def __init__(self, folder: str) -> None:
        self.path = os.path.join(folder, "llama.jsonl")
        try:
            os.makedirs(folder, exist_ok=True)
            self._fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise Trouble(f"cannot make {self.path}: {error.strerror}") from None
        self._size = 0

    def line(self, event: str, **values: Any) -> None:
        """Adds one event."""
        data = (json.dumps({"event": event, **values}, allow_nan=False, ensure_ascii=False) + "\n").encode()
        written = 0
        try:
            while written < len(data):
                written += os.write(self._fd, data[written:])
            os.fsync(self._fd)
        except OSError as error:
            os.ftruncate(self._fd, self._size)
            raise Trouble(f"cannot write {self.path}: {error.strerror}") from None
        self._size += written
