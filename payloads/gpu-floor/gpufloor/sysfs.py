"""Reads and writes of sysfs with a deadline, by a process of its own.

A driver can leave a reader of `min_freq` in uninterruptible sleep for ever. Such a thread would keep its whole process
from ending, so the reads are made by a child that can be left behind, and never more than one of them.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from typing import Any, Sequence

from .faults import BoardError

DEADLINE_S = 2.0
_ARGUMENT = "--sysfs-worker"


def serve() -> int:
    """The child: one JSON request a line on stdin, one JSON answer a line on stdout, until stdin ends."""
    for line in sys.stdin:
        sys.stdout.write(json.dumps(_done(json.loads(line))) + "\n")
        sys.stdout.flush()
    return 0


def _done(request: dict[str, Any]) -> dict[str, Any]:
    try:
        if "write" in request:
            handle = os.open(request["path"], os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
            try:
                os.write(handle, request["write"].encode() + b"\n")
            finally:
                os.close(handle)
            return {"texts": []}
        return {"texts": [_text(path) for path in request["paths"]]}
    except OSError as error:
        return {"error": error.strerror or str(error), "path": error.filename}


def _text(path: str) -> str:
    with open(path, "rb", buffering=0) as file:
        return (file.read(65536) or b"").decode("ascii", errors="replace").strip()


class Sysfs:
    """The parent's side. BoardError when an answer does not come in time, or is a refusal."""

    def __init__(self, program: str | None = None, deadline_s: float = DEADLINE_S) -> None:
        self._argv = [sys.executable, "-IS", program or os.path.realpath(sys.argv[0]), _ARGUMENT]
        self._deadline_s = deadline_s
        self._child: subprocess.Popen[bytes] | None = None
        self._stuck: subprocess.Popen[bytes] | None = None

    def read(self, paths: Sequence[str]) -> list[str]:
        """The texts of some files, without the white space around them: one trip for all, since each takes time."""
        return self._ask({"paths": list(paths)}, f"{paths[0]} cannot be read")

    def write(self, path: str, text: str) -> None:
        """One write of the whole text."""
        self._ask({"path": path, "write": text}, f"'{text}' cannot be written to {path}")

    def close(self) -> None:
        """Ends the child, and leaves one that no signal reaches behind."""
        for child in (self._child, self._stuck):
            if child is not None:
                _end(child)
        self._child = None

    def _ask(self, request: dict[str, Any], what: str) -> list[str]:
        child = self._ready(what)
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            child.stdin.write(json.dumps(request).encode() + b"\n")
            child.stdin.flush()
        except OSError:
            pass  # it is gone: no answer comes, which is told below
        line = self._line(child)
        if line is None:
            self._child, self._stuck = None, child
            _end(child)
            raise BoardError(f"{what}: the driver has not answered within {self._deadline_s:g} s")
        if not line:
            self._child = None
            _end(child)
            raise BoardError(f"{what}: the process that reads it has ended")
        answer = json.loads(line)
        if "error" in answer:
            where = f"{answer['path']} cannot be read" if answer.get("path") and "paths" in request else what
            raise BoardError(f"{where}: {answer['error']}")
        return [str(text) for text in answer["texts"]]

    def _ready(self, what: str) -> subprocess.Popen[bytes]:
        if self._stuck is not None:
            if self._stuck.poll() is None:
                raise BoardError(f"{what}: the driver still holds the last access (process {self._stuck.pid})")
            self._stuck = None
        if self._child is not None and self._child.poll() is not None:
            _end(self._child)
            self._child = None
        if self._child is None:
            # In a session of its own: a Ctrl-C in the terminal must not take it away before the floor is lowered.
            self._child = subprocess.Popen(
                self._argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
            )
        return self._child

    def _line(self, child: subprocess.Popen[bytes]) -> bytes | None:
        """One whole line; empty when the child ended; None when the deadline passed."""
        assert child.stdout is not None
        until, text = time.monotonic() + self._deadline_s, b""
        while not text.endswith(b"\n"):
            left = until - time.monotonic()
            if left <= 0 or not select.select([child.stdout], [], [], left)[0]:
                return None
            piece = os.read(child.stdout.fileno(), 65536)
            if not piece:
                return b""
            text += piece
        return text


def _end(child: subprocess.Popen[bytes]) -> None:
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            try:
                pipe.close()
            except OSError:
                pass  # unsent bytes for a child that is gone
    child.kill()
    try:
        child.wait(0.5)
    except subprocess.TimeoutExpired:
        pass  # in uninterruptible sleep; it is reaped when the driver lets it go
