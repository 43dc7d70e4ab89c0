"""What loads a virtual board now: the load files of its payloads, held by `flock`.

A payload keeps an exclusive lock on its file for as long as it works. The kernel ends the lock with the process,
so the file of a killed payload is recognised by its free lock and removed: a dead load never heats a board.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import stat
import time
from dataclasses import dataclass
from pathlib import Path

# A payload makes its file first and locks it a moment later; testing the lock at once could make its own
# non-blocking lock fail, so a file that was just written counts as held.
_GRACE_S = 1.0
_MAX_BYTES = 4096
_MAX_THREADS = 4096
_ACTIVITIES = ("cpu_activity", "npu_activity", "gpu_activity", "network_activity")


@dataclass(frozen=True)
class LoadSum:
    """All loads of one board together. Activities are 0 to 1 of the whole board; `cpu_share` is per thread."""

    cpu_activity: float = 0.0
    npu_activity: float = 0.0
    gpu_activity: float = 0.0
    cpu_share: float = 1.0
    cpu_threads: float = 0.0
    network_activity: float = 0.0


@dataclass(frozen=True)
class _Entry:
    cpu_threads: int
    cpu_activity: float
    npu_activity: float
    gpu_activity: float
    network_activity: float


def read_loads(folder: Path, cores: int, wall_unix_s: float | None = None) -> LoadSum:
    """Sum the load files in `folder` for a board with that many online cores; files without a holder are removed.

    A file that cannot be understood counts as no load: it belongs to the board, which may write anything there.
    """
    now = time.time() if wall_unix_s is None else wall_unix_s
    try:
        names = [item.name for item in os.scandir(folder) if item.name.endswith(".json")]
    except OSError:
        return LoadSum()
    entries = [entry for name in names if (entry := _held_entry(folder / name, now)) is not None]
    threads = sum(entry.cpu_threads for entry in entries)
    busy = sum(entry.cpu_threads * entry.cpu_activity for entry in entries)
    return LoadSum(
        cpu_activity=min(1.0, busy / cores),
        npu_activity=min(1.0, sum(entry.npu_activity for entry in entries)),
        gpu_activity=min(1.0, sum(entry.gpu_activity for entry in entries)),
        cpu_share=min(1.0, cores / threads) if threads else 1.0,
        cpu_threads=threads,
        network_activity=min(1.0, sum(entry.network_activity for entry in entries)),
    )


def _held_entry(path: Path, now: float) -> _Entry | None:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        seen = os.fstat(handle)
        if not stat.S_ISREG(seen.st_mode):
            return None
        if not 0.0 <= now - seen.st_mtime < _GRACE_S and _lock_is_free(handle):
            path.unlink(missing_ok=True)
            return None
        return _parse(os.pread(handle, _MAX_BYTES, 0))
    except OSError:
        return None
    finally:
        os.close(handle)


def _lock_is_free(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    fcntl.flock(handle, fcntl.LOCK_UN)
    return True


def _parse(data: bytes) -> _Entry | None:
    try:
        value = json.loads(data)
    except ValueError:
        return None
    if not isinstance(value, dict):
        return None
    threads = value.get("cpu_threads", 0)
    if isinstance(threads, bool) or not isinstance(threads, int) or not 0 <= threads <= _MAX_THREADS:
        return None
    parts = [_fraction(value.get(key, 0.0)) for key in _ACTIVITIES]
    if any(part is None for part in parts):
        return None
    cpu, npu, gpu, network = (part for part in parts if part is not None)
    return _Entry(threads, cpu, npu, gpu, network)


def _fraction(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value) if 0.0 <= value <= 1.0 else None
