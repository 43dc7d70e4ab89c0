"""Contents on their way to a board: what it asked for by hash, in pieces between which the deadline is looked at."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from boardbench.errors import InputError
from boardbench.frames import Frames

PIECE_BYTES = 256 * 1024


def pieces(data: bytes) -> Iterator[bytes]:
    """The bytes, cut."""
    for start in range(0, len(data), PIECE_BYTES):
        yield data[start : start + PIECE_BYTES]


def send_blob(frames: Frames, sha: str, blob: Path | bytes) -> None:
    """Sends one blob; a file is streamed. Raises InputError when the file is not there, or became shorter."""
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
    except FileNotFoundError as error:
        raise InputError("does not exist", where=str(blob)) from error
