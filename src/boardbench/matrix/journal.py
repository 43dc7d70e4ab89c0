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

from boardbench.errors import InputError
from boardbench.results import store
from boardbench.secretwords import REGISTRY


class Journal:
    """Append-only; may be written from several threads. Use as a context manager.

    Opening it takes the campaign's lock: one living process a campaign. Half a line that a killed one left at the end
    is cut off; what it was to say has not happened, since lines come first. Raises InputError and OSError.
    """

    def __init__(self, path: Path) -> None:
        new = not path.exists()
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        self._lock = threading.Lock()
        try:
            store.lock_journal(self._file, path.parent)
            self._sequence = self._go_on(path)
        except BaseException:
            os.close(self._file)
            raise
        if new:
            store.sync_folder(path.parent)

    def _go_on(self, path: Path) -> int:
        """Number of the last whole line; what comes after it is cut off."""
        content = path.read_bytes()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            os.ftruncate(self._file, whole)
            os.fsync(self._file)
        lines = content[:whole].splitlines()
        if not lines:
            return 0
        try:
            return int(json.loads(lines[-1])["sequence"])
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(
                "cannot be read as a line of a journal",
                where=f"{path}:{len(lines)}",
                advice="what it noted is not known any more: start a new campaign",
            ) from error

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
                "fields": REGISTRY.hide_in(fields),
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
