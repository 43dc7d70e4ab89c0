"""Contents on their way to a board: what it asked for by hash, in pieces between which the deadline is looked at."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from boardbench.errors import InputError
from boardbench.frames import Frames

PIECE_BYTES = 256 * 1024
# A transfer of this size is told while it goes on, at most once a second.
TOLD_BYTES = 32 * 1024 * 1024


def pieces(data: bytes) -> Iterator[bytes]:
    """The bytes, cut."""
    for start in range(0, len(data), PIECE_BYTES):
        yield data[start : start + PIECE_BYTES]


class Outgoing:
    """The blobs that one call offers, and how much of what was asked for has been sent.

    A long transfer is told as `{"event": "sent", "bytes", "of"}`: an event of the controller's own.
    """

    def __init__(
        self, blobs: Mapping[str, Path | bytes], on_event: Callable[[dict[str, object]], None] | None = None
    ) -> None:
        self._blobs = blobs
        self._on_event = on_event
        self._asked = self._sent = 0
        self._told_s = time.monotonic()

    def __contains__(self, sha: object) -> bool:
        return sha in self._blobs

    def ask(self, hashes: Iterable[str]) -> None:
        """Takes note of what will be sent."""
        self._asked += sum(_size(self._blobs[sha]) for sha in hashes if sha in self._blobs)

    def send(self, frames: Frames, sha: str) -> None:
        """Sends one blob; a file is streamed. Raises InputError when the file is not there, or became shorter."""
        blob = self._blobs[sha]
        if isinstance(blob, bytes):
            frames.send({"blob": sha, "bytes": len(blob)})
            frames.send_raw(pieces(blob))
            return
        try:
            with blob.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                frames.send({"blob": sha, "bytes": size})
                left = size
                while left:
                    piece = file.read(min(left, PIECE_BYTES))
                    if not piece:
                        raise InputError("became shorter while it was sent", where=str(blob))
                    left -= len(piece)
                    frames.send_raw([piece])
                    self._tell(len(piece))
        except FileNotFoundError as error:
            raise InputError("does not exist", where=str(blob)) from error

    def _tell(self, count: int) -> None:
        self._sent += count
        now = time.monotonic()
        if self._on_event is not None and self._asked >= TOLD_BYTES and now - self._told_s >= 1.0:
            self._told_s = now
            self._on_event({"event": "sent", "bytes": self._sent, "of": self._asked})


def _size(blob: Path | bytes) -> int:
    if isinstance(blob, bytes):
        return len(blob)
    return blob.stat().st_size if blob.exists() else 0
