"""journal.jsonl: what a campaign was about to do and what came of it, one durable line at a time.

A line is on disk before the call returns, so that after a crash the journal never knows less than the boards do.
"""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self


class Journal:
    """Append-only; may be written from several threads. Use as a context manager."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._lock = threading.Lock()
        self._sequence = 0

    def note(self, event: str, **fields: object) -> None:
        """Append one event with the controller's wall and monotonic time, and wait until it is on disk.

        Raises OSError: a campaign that cannot keep its journal must not go on.
        """
        with self._lock:
            self._sequence += 1
            line = {
                "sequence": self._sequence,
                "wall_unix_s": round(time.time(), 3),
                "monotonic_s": round(time.monotonic(), 3),
                "event": event,
                "fields": fields,
            }
            data = json.dumps(line, sort_keys=True, ensure_ascii=False, allow_nan=False).encode("utf-8") + b"\n"
            written = 0
            while written < len(data):
                written += os.write(self._file, data[written:])
            os.fsync(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._file)
