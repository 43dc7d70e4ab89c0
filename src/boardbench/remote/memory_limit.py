"""Puts a memory limit in force where the service manager does not: a control group of our own, version 1 only.

systemd keeps its hands off the version 1 memory controller when it runs in a container. Loaded by `supervise.py` as a
plain file, so it imports nothing of ours. The supervisor enters the group, and with it all that it starts.
"""

from __future__ import annotations

import os
import time

ROOT = "/sys/fs/cgroup/memory"
LEAVE_S = 5.0


class Limited:
    """This process in a group of its own below the one that it was in."""

    def __init__(self, parent: str, folder: str) -> None:
        self._parent, self._folder = parent, folder

    def leave(self) -> None:
        """Back to where it was; the group goes as soon as nothing is in it any more."""
        until = time.monotonic() + LEAVE_S
        while True:
            try:
                _write(os.path.join(self._parent, "cgroup.procs"), os.getpid())
                os.rmdir(self._folder)
            except OSError:
                if time.monotonic() < until:
                    time.sleep(0.05)
                    continue
            return


def enter(name: str, limit_bytes: int, swap: bool, proc: str = "/proc", root: str = ROOT) -> Limited | None:
    """Limits this process and all that it starts; None where that cannot be had, and then nothing is changed."""
    parent = _own_group(proc, root)
    if parent is None or not os.access(parent, os.W_OK):
        return None
    folder = os.path.join(parent, name)
    try:
        os.makedirs(folder, exist_ok=True)
        _write(os.path.join(folder, "memory.limit_in_bytes"), limit_bytes)
        if not swap:
            _write(os.path.join(folder, "memory.swappiness"), 0)
        _write(os.path.join(folder, "cgroup.procs"), os.getpid())
    except OSError:
        try:
            os.rmdir(folder)
        except OSError:
            pass
        return None
    return Limited(parent, folder)


def _own_group(proc: str, root: str) -> str | None:
    try:
        with open(os.path.join(proc, "self/cgroup"), encoding="utf-8") as file:
            groups = [line.rstrip("\n").split(":", 2) for line in file]
    except OSError:
        return None
    path = next((path for _, controllers, path in groups if controllers == "memory"), None)
    return None if path is None or ".." in path.split("/") else root + path.rstrip("/")


def _write(path: str, value: int) -> None:
    # Never made: where the kernel has no such file there is no such limit.
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, f"{value}\n".encode())
    finally:
        os.close(fd)
