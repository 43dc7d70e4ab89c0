"""How much was read from storage: by the block device that holds the model, and by the server process."""

from __future__ import annotations

import os

from .raw import Reading, missing

SECTOR_BYTES = 512
_SECTORS_READ = 2


class Device:
    """The block device below a file; a partition counts as its whole disk. `name`: as under /sys/block, or why not."""

    def __init__(self, path: str, sys_root: str = "/sys") -> None:
        number = os.stat(path).st_dev
        node = f"{os.major(number)}:{os.minor(number)}"
        folder = os.path.realpath(os.path.join(sys_root, "dev/block", node))
        if os.path.exists(os.path.join(folder, "partition")):
            folder = os.path.dirname(folder)
        self._stat = os.path.join(folder, "stat")
        self.name: object = os.path.basename(folder)
        if not os.path.isfile(self._stat):
            self.name = missing(f"no block device {node} below {sys_root}: the model's file system hides it")

    def read_bytes(self) -> Reading:
        """Bytes read from the device since the board started."""
        if isinstance(self.name, dict):
            return self.name
        try:
            with open(self._stat, encoding="ascii") as file:
                return int(file.read().split()[_SECTORS_READ]) * SECTOR_BYTES
        except (OSError, ValueError, IndexError) as error:
            return missing(f"{self._stat}: {error}")


def process_read_bytes(pid: int, proc: str = "/proc") -> Reading:
    """Bytes that a process, page faults on mapped files among them, made storage read."""
    path = f"{proc}/{pid}/io"
    try:
        with open(path, encoding="ascii") as file:
            found = dict(line.split(":", 1) for line in file.read().splitlines())
        return int(found["read_bytes"])
    except (OSError, ValueError, KeyError) as error:
        return missing(f"{path}: {error}")


def between(before: Reading, after: Reading) -> Reading:
    """What was read between two looks."""
    if isinstance(before, dict):
        return before
    if isinstance(after, dict):
        return after
    return after - before if after >= before else missing(f"the counter went back from {before} to {after}")
