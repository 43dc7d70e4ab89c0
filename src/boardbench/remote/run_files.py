"""A run's files: listed with size and hash, sent as an uncompressed tar, removed."""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
from typing import Any, Callable, Iterator

from .failures import RIG, Failure
from .run_state import OWN_FOLDER, STATE_FILE, Run

CHUNK_BYTES = 1024 * 1024


def listing(run: Run) -> list[dict[str, Any]]:
    """Every regular file of the run with its size in bytes and SHA-256, in order of name; our own state is not one."""
    return [_entry(run, name) for name in sorted(_names(run.folder))]


def _names(folder: str) -> Iterator[str]:
    for base, folders, files in os.walk(folder):
        if base == folder:
            folders[:] = [name for name in folders if name != OWN_FOLDER]
            files = [name for name in files if not name.startswith(STATE_FILE)]
        for name in files:
            path = os.path.join(base, name)
            # A link could lead out of the folder; sockets and pipes hold nothing.
            if os.path.isfile(path) and not os.path.islink(path):
                yield os.path.relpath(path, folder)


def _entry(run: Run, name: str) -> dict[str, Any]:
    digest = hashlib.sha256()
    size = 0
    with open(os.path.join(run.folder, name), "rb") as file:
        for piece in iter(lambda: file.read(CHUNK_BYTES), b""):
            digest.update(piece)
            size += len(piece)
    return {"name": name, "size": size, "sha256": digest.hexdigest()}


def send_tar(run: Run, files: list[dict[str, Any]], send: Callable[[bytes], None]) -> int:
    """Sends the listed files as a tar (no compression: links to boards are fast, their CPUs are not). Its bytes."""
    total = 0
    pending = bytearray()

    def put(data: bytes) -> None:
        nonlocal total
        total += len(data)
        pending.extend(data)
        while len(pending) >= CHUNK_BYTES:
            send(bytes(pending[:CHUNK_BYTES]))
            del pending[:CHUNK_BYTES]

    for entry in files:
        _put_file(run, entry, put)
    put(b"\0" * (2 * tarfile.BLOCKSIZE))
    if pending:
        send(bytes(pending))
    return total


def _put_file(run: Run, entry: dict[str, Any], put: Callable[[bytes], None]) -> None:
    name, left = str(entry["name"]), int(entry["size"])
    path = os.path.join(run.folder, name)
    with open(path, "rb") as file:
        info = tarfile.TarInfo(name)
        info.size = left
        info.mtime = int(os.fstat(file.fileno()).st_mtime)
        info.mode = 0o644
        put(info.tobuf(tarfile.PAX_FORMAT, errors="surrogateescape"))
        padding = -left % tarfile.BLOCKSIZE
        while left:
            piece = file.read(min(left, CHUNK_BYTES))
            if not piece:
                raise Failure(RIG, "the file has become shorter since it was listed", path, "finish the run again")
            put(piece)
            left -= len(piece)
        put(b"\0" * padding)


def remove(run: Run) -> None:
    """Removes the run's folder. Not there is a success."""
    if os.path.isdir(run.folder):
        shutil.rmtree(run.folder)
