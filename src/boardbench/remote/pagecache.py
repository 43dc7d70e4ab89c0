"""Drops the page cache and proves it: "cold" is said only when the kernel took the order and the files left memory."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import time
from typing import Any

from . import parsers, processes
from .failures import BAD_INPUT, Failure
from .places import Places
from .wire import Call

MAX_RESIDENT_SHARE = 0.01
WAIT_S = 1.0
MEMINFO_KEYS = ("MemTotal", "MemFree", "MemAvailable", "Buffers", "Cached", "Mapped", "Dirty", "SwapFree")
_WINDOW_BYTES = 1 << 30


def drop_cache(args: dict[str, Any], call: Call) -> dict[str, Any]:
    """The verb: `{"state": "cold"|"warm", "why", "meminfo_before", "meminfo_after", "files"}`, sizes in bytes."""
    files = args.get("files") or []
    for path in files:
        if not isinstance(path, str) or not path.startswith("/"):
            raise Failure(BAD_INPUT, f"{path!r:.80} is not an absolute path", "drop-cache")
        if not os.path.isfile(path):
            raise Failure(
                BAD_INPUT, "there is no such file on the board", path, "install the payload or the model first"
            )
    return drop(call.places, files)


def drop(places: Places, files: list[str]) -> dict[str, Any]:
    """Syncs, drops the clean page cache, dentries and inodes, and looks at what is still resident."""
    meminfo_before = meminfo(places)
    before = {path: resident_bytes(path) for path in files}
    os.sync()
    refused = _order(places)
    for path in files:
        _advise(path)
    after = _after(files)
    evidence = [
        {
            "path": path,
            "size_bytes": os.path.getsize(path),
            "resident_bytes_before": before[path],
            "resident_bytes_after": after[path],
            "mapped_by": processes.mapping(places, path),
        }
        for path in files
    ]
    why = refused or _why_warm(places, evidence)
    return {
        "state": "warm" if why else "cold",
        "why": why or ("" if files else "no files were named: judged by the kernel's yes alone"),
        "meminfo_before": meminfo_before,
        "meminfo_after": meminfo(places),
        "files": evidence,
    }


def meminfo(places: Places) -> dict[str, Any]:
    """The lines of /proc/meminfo that tell about caches, in bytes."""
    with open(os.path.join(places.proc, "meminfo"), encoding="ascii") as file:
        found = parsers.meminfo(file.read())
    return {key: found[key] for key in MEMINFO_KEYS if key in found}


def _order(places: Places) -> str:
    """Tells the kernel; the reason when it does not take it (a read-only /proc is usual in containers)."""
    path = os.path.join(places.proc, "sys/vm/drop_caches")
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, b"3\n")
        finally:
            os.close(fd)
    except OSError as error:
        name = errno.errorcode.get(error.errno or 0, "?")
        return f"{path} cannot be written: {error.strerror} ({name})"
    return ""


def _advise(path: str) -> None:
    """Asks for these pages in particular: pages that were just written or read ahead may have been missed."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)


def _after(files: list[str]) -> dict[str, int]:
    until = time.monotonic() + WAIT_S
    while True:
        found = {path: resident_bytes(path) for path in files}
        gone = all(size <= MAX_RESIDENT_SHARE * os.path.getsize(path) for path, size in found.items())
        if gone or time.monotonic() >= until:
            return found
        time.sleep(0.1)


def _why_warm(places: Places, evidence: list[dict[str, Any]]) -> str:
    for entry in evidence:
        size, resident = entry["size_bytes"], entry["resident_bytes_after"]
        if resident <= MAX_RESIDENT_SHARE * size:
            continue
        text = f"{entry['path']}: {100.0 * resident / size:.1f} % is still in memory"
        if entry["mapped_by"]:
            pid = entry["mapped_by"][0]
            text += f", mapped by process {pid} ({processes.exe(places, pid) or '?'})"
        return text
    return ""


def resident_bytes(path: str) -> int:
    """How much of a file is in the page cache now, by mincore(2), in bytes. Looking does not bring it in."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(fd).st_size
        pages = sum(
            _resident_pages(libc, fd, start, min(_WINDOW_BYTES, size - start))
            for start in range(0, size, _WINDOW_BYTES)
        )
    finally:
        os.close(fd)
    return min(size, pages * mmap.PAGESIZE)


def _resident_pages(libc: Any, fd: int, start: int, length: int) -> int:
    address = libc.mmap(None, length, mmap.PROT_READ, mmap.MAP_SHARED, fd, start)
    if address is None or address == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), f"mmap: {os.strerror(ctypes.get_errno())}")
    try:
        states = (ctypes.c_ubyte * ((length + mmap.PAGESIZE - 1) // mmap.PAGESIZE))()
        if libc.mincore(address, length, ctypes.byref(states)) != 0:
            raise OSError(ctypes.get_errno(), f"mincore: {os.strerror(ctypes.get_errno())}")
        # Only the lowest bit says "resident"; the others are reserved.
        return sum(bytes(states).translate(_LOWEST_BIT))
    finally:
        libc.munmap(address, length)


_LOWEST_BIT = bytes(value & 1 for value in range(256))
