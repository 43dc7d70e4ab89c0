"""Drop the page cache of one virtual board's own files, and of nothing else.

The host's `drop_caches` is never touched: every clean page of every regular file under the board's roots is given up
by `posix_fadvise`. Dirty and mapped pages stay, as they do with the kernel's own switch; syncing is the caller's job.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Drop:
    """What one drop did. `problems` names the files and folders that could not be handled (at most 20)."""

    wall_unix_s: float
    monotonic_s: float
    value: int
    files: int
    bytes: int
    seconds: float
    ignored: bool
    problems: tuple[str, ...] = ()


def drop(roots: Sequence[Path], cgroup: Path | None, value: int) -> Drop:
    """Give up the cached pages of every regular file under `roots`; a cgroup v1 memory group is emptied, too."""
    started, wall = time.monotonic(), time.time()
    files = size = 0
    problems: list[str] = []
    for root in roots:
        more_files, more_bytes = _drop_tree(root, problems)
        files, size = files + more_files, size + more_bytes
    if cgroup is not None:
        _force_empty(cgroup, problems)
    return Drop(wall, started, value, files, size, time.monotonic() - started, False, tuple(problems[:20]))


def ignored(value: int) -> Drop:
    """The note of a drop that the fault switch swallowed."""
    return Drop(time.time(), time.monotonic(), value, 0, 0, 0.0, True)


def note(log: Path, entry: Drop) -> None:
    """Append one drop to the board's log."""
    with log.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(entry), sort_keys=True, allow_nan=False) + "\n")


def _drop_tree(root: Path, problems: list[str]) -> tuple[int, int]:
    files = size = 0
    try:
        device = os.lstat(root).st_dev
    except OSError as error:
        problems.append(f"{root}: {error.strerror}")
        return 0, 0

    def unreadable(error: OSError) -> None:
        if error.errno != errno.ENOENT:  # a folder that was removed meanwhile has nothing to drop
            problems.append(f"{error.filename}: {error.strerror}")

    for folder, subfolders, names, folder_fd in os.fwalk(root, onerror=unreadable, follow_symlinks=False):
        # Another file system mounted below belongs to somebody else.
        if os.fstat(folder_fd).st_dev != device:
            subfolders.clear()
            continue
        for name in names:
            try:
                dropped = _drop_file(name, folder_fd)
            except FileNotFoundError:
                continue
            except OSError as error:
                problems.append(f"{folder}/{name}: {error.strerror}")
                continue
            if dropped is not None:
                files, size = files + 1, size + dropped
    return files, size


def _drop_file(name: str, folder_fd: int) -> int | None:
    """The size of the file, or None for what is no regular file (opening a device or a pipe could do harm)."""
    if not stat.S_ISREG(os.stat(name, dir_fd=folder_fd, follow_symlinks=False).st_mode):
        return None
    handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder_fd)
    try:
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        return os.fstat(handle).st_size
    finally:
        os.close(handle)


def _force_empty(cgroup: Path, problems: list[str]) -> None:
    switch = cgroup / "memory.force_empty"
    # The root group is the host itself; its mount point has no parent group.
    if not switch.exists() or not (cgroup.parent / "memory.usage_in_bytes").exists() or os.path.ismount(cgroup):
        return
    try:
        switch.write_text("0\n", encoding="ascii")
    except OSError as error:
        problems.append(f"{switch}: {error.strerror}")
