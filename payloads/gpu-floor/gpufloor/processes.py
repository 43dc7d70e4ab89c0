"""What /proc says about processes. A process that ends while it is looked at is no error: it is gone."""

from __future__ import annotations

import os
import re

PROC = "/proc"
_LIBRARY = re.compile(r"libllama\.so(\.[0-9]+)*\Z")
_DELETED = " (deleted)"


def pids() -> list[int]:
    """All processes now."""
    return sorted(int(name) for name in os.listdir(PROC) if name.isdigit())


def _read(pid: int, name: str) -> bytes | None:
    try:
        with open(f"{PROC}/{pid}/{name}", "rb") as file:
            return file.read()
    except OSError:
        return None


def start_ticks(pid: int) -> int | None:
    """When the process started, in clock ticks since boot; None when it is gone or a zombie."""
    text = _read(pid, "stat")
    if text is None:
        return None
    fields = text.rpartition(b")")[2].split()
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def has_thread(pid: int, tid: int) -> bool:
    """Whether the thread is there and is no zombie."""
    text = _read(pid, f"task/{tid}/stat")
    return text is not None and text.rpartition(b")")[2].split()[0] not in (b"Z", b"X")


def command_line(pid: int) -> list[str]:
    """The arguments; empty for a kernel thread, and for a process that is gone."""
    text = (_read(pid, "cmdline") or b"").decode(errors="replace")
    # A program that writes over its arguments (a title) ends them without a NUL.
    return text.split("\0")[:-1] if text.endswith("\0") else text.split()


def environment(pid: int) -> dict[str, str]:
    """The environment that the process was started with; empty when it may not be read."""
    text = _read(pid, "environ") or b""
    pairs = (item.decode(errors="replace").partition("=") for item in text.split(b"\0") if item)
    return {name: value for name, sign, value in pairs if sign}


def mapped_libraries(pid: int) -> list[tuple[str, bool, int]] | None:
    """Every libllama that the process runs code of, as (path, deleted, inode); None when it may not be looked at."""
    text = _read(pid, "maps")
    if text is None:
        return None
    found: list[tuple[str, bool, int]] = []
    for line in text.decode(errors="surrogateescape").splitlines():
        fields = line.split(None, 5)
        if len(fields) < 6 or "x" not in fields[1]:
            continue
        path, deleted = fields[5], fields[5].endswith(_DELETED)
        path = path[: -len(_DELETED)] if deleted else path
        entry = (path, deleted, int(fields[4]))
        if _LIBRARY.match(os.path.basename(path)) and entry not in found:
            found.append(entry)
    return found


def executable(pid: int) -> str | None:
    """The path of the program; None when it is gone, replaced or may not be looked at."""
    try:
        path = os.readlink(f"{PROC}/{pid}/exe")
    except OSError:
        return None
    return None if path.endswith(_DELETED) else path


def same_file_as_here(pid: int, path: str) -> bool:
    """Whether the process and we mean the same file by this path: a container has files of its own."""
    try:
        there, here = os.stat(f"{PROC}/{pid}/root{path}"), os.stat(path)
    except OSError:
        return False
    return (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)
