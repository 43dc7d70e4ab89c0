"""Memory pressure on a server under test, and proof of what is in the page cache."""

from __future__ import annotations

import ctypes
import mmap
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_V1 = Path("/sys/fs/cgroup/memory")
_V2 = Path("/sys/fs/cgroup")
# Enters the group given first, then becomes the command that follows; no value is put into the script's text.
_ENTER = ("sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"')


def can_limit_memory() -> bool:
    """Whether this process may make control groups with a memory limit (root, on a v1 or v2 hierarchy)."""
    v2 = (_V2 / "cgroup.controllers").exists() and "memory" in (_V2 / "cgroup.subtree_control").read_text().split()
    return os.geteuid() == 0 and ((os.access(_V1, os.W_OK) and (_V1 / "memory.limit_in_bytes").exists()) or v2)


@dataclass(frozen=True)
class Limit:
    """A control group with a memory limit."""

    folder: Path

    @property
    def enter(self) -> tuple[str, ...]:
        """What to put in front of a command, so that it runs in the group."""
        return (*_ENTER, str(self.folder))

    def peak_bytes(self) -> int:
        """The most that was charged to the group so far."""
        name = "memory.max_usage_in_bytes" if _V1 in self.folder.parents else "memory.peak"
        return int((self.folder / name).read_text())


@contextmanager
def memory_limit(limit_bytes: int) -> Iterator[Limit]:
    """A group of our own; its processes must have ended when this is left."""
    v1 = (_V1 / "memory.limit_in_bytes").exists()
    folder = (_V1 if v1 else _V2) / f"boardbench-test-{uuid.uuid4().hex[:12]}"
    folder.mkdir()
    try:
        (folder / ("memory.limit_in_bytes" if v1 else "memory.max")).write_text(str(limit_bytes))
        if not v1:
            (folder / "memory.swap.max").write_text("0")
        yield Limit(folder)
    finally:
        folder.rmdir()


def resident_bytes(path: Path) -> int:
    """How much of the file is in the page cache, by mincore."""
    size = path.stat().st_size
    libc = ctypes.CDLL(None, use_errno=True)
    pages = (size + mmap.PAGESIZE - 1) // mmap.PAGESIZE
    seen = (ctypes.c_ubyte * pages)()
    with (
        path.open("rb") as file,
        mmap.mmap(file.fileno(), size, prot=mmap.PROT_READ | mmap.PROT_WRITE, flags=mmap.MAP_PRIVATE) as mapped,
    ):
        start = ctypes.c_char.from_buffer(mapped)
        failed = libc.mincore(ctypes.byref(start), ctypes.c_size_t(size), seen)
        del start
        if failed:
            raise OSError(ctypes.get_errno(), "mincore")
    return sum(page & 1 for page in bytes(seen)) * mmap.PAGESIZE


def evict(path: Path) -> None:
    """This file, and no other, leaves the page cache; proved. No process may have it mapped."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    left = resident_bytes(path)
    assert left == 0, f"{left} bytes of {path} are still in the page cache"
