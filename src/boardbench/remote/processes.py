"""Who runs on the board: read from /proc, named by pid and start time, never by a pattern.

A pid alone is not a name, because the kernel gives it away again; pid and start time (clock ticks since boot) are.
A zombie is dead: it holds no memory and no device, and waiting for it would wait for its parent.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from dataclasses import dataclass
from typing import Iterator

from .places import Places

DELETED = " (deleted)"
POLL_S = 0.05
SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Process:
    """One process as /proc showed it at one moment."""

    pid: int
    start_time_ticks: int
    state: str
    ppid: int
    pgrp: int
    session: int

    @property
    def dead(self) -> bool:
        """True for a zombie and for a process that is just being removed."""
        return self.state in ("Z", "X", "x")


@dataclass(frozen=True)
class Ending:
    """How the end of a process went. `why` is empty when it just ended."""

    ended: bool
    why: str = ""


def parse_stat(text: str) -> Process:
    """The fields of /proc/PID/stat; the name in it may hold spaces and brackets, so the last `)` counts."""
    pid, rest = text.split(" ", 1)
    fields = rest[rest.rindex(")") + 1 :].split()
    # fields[0] is field 3 of proc(5).
    return Process(
        pid=int(pid),
        state=fields[0],
        ppid=int(fields[1]),
        pgrp=int(fields[2]),
        session=int(fields[3]),
        start_time_ticks=int(fields[19]),
    )


def _read_bytes(path: str) -> bytes | None:
    """The content, or None when the process is gone or does not let itself be read."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return None


def stat(places: Places, pid: int) -> Process | None:
    """The process with that pid now, or None when there is none."""
    raw = _read_bytes(f"{places.proc}/{pid}/stat")
    return parse_stat(raw.decode("utf-8", "replace")) if raw else None


def alive(places: Places, pid: int, start_time_ticks: int) -> bool:
    """True when exactly that process still runs."""
    found = stat(places, pid)
    return found is not None and found.start_time_ticks == start_time_ticks and not found.dead


def each(places: Places) -> Iterator[Process]:
    """Every process that is not dead, in order of pid."""
    for name in sorted((entry for entry in os.listdir(places.proc) if entry.isdigit()), key=int):
        found = stat(places, int(name))
        if found is not None and not found.dead:
            yield found


def exe(places: Places, pid: int) -> str | None:
    """The path of the running program, or None; a file that was replaced or removed since keeps its old path."""
    try:
        target = os.readlink(f"{places.proc}/{pid}/exe")
    except OSError:
        return None
    return target[: -len(DELETED)] if target.endswith(DELETED) else target


def program(places: Places, pid: int) -> str | None:
    """The path of the running program: `exe`, or where that may not be read the file that its first argument names.

    Inside a user namespace even root may not read `exe` of processes outside of it.
    """
    found = exe(places, pid)
    if found is not None:
        return found
    first = next(iter(argv(places, pid)), "")
    path = first if first.startswith("/") else shutil.which(first, path=SEARCH_PATH) if first else None
    return os.path.realpath(path) if path and os.path.exists(path) else None


def argv(places: Places, pid: int) -> list[str]:
    """The arguments, as a list; empty for a kernel thread and for a process that is gone."""
    raw = _read_bytes(f"{places.proc}/{pid}/cmdline")
    if not raw:
        return []
    return [part.decode("utf-8", "surrogateescape") for part in raw.rstrip(b"\0").split(b"\0")]


def cwd(places: Places, pid: int) -> str | None:
    """The working folder, or None."""
    try:
        return os.readlink(f"{places.proc}/{pid}/cwd")
    except OSError:
        return None


def parse_control_group(text: str) -> str | None:
    """The path of a process in the service manager's tree: cgroup v2 (`0::`) or v1 (`name=systemd`)."""
    unified = None
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers == "name=systemd":
            # With v1 and hybrid layouts this is the tree that systemd itself goes by.
            return path
        if number == "0" and not controllers:
            unified = path
    return unified


def control_group(places: Places, pid: int) -> str | None:
    """The control group of a process in the service manager's tree, or None."""
    raw = _read_bytes(f"{places.proc}/{pid}/cgroup")
    return parse_control_group(raw.decode("utf-8", "replace")) if raw else None


def unit_of_path(path: str | None) -> str | None:
    """The system service that a control group belongs to: the first `.service` in the path.

    What a user's own manager runs belongs to that manager (`user@0.service`): the system cannot stop it as a unit.
    """
    for part in (path or "").split("/"):
        if part.endswith(".service"):
            return part
    return None


def unit_of(places: Places, pid: int) -> str | None:
    """The system service that a process belongs to, or None."""
    return unit_of_path(control_group(places, pid))


def ancestry(places: Places, pid: int | None = None) -> set[int]:
    """The pid (ours, when not given) and all its parents: what must never be ended by us."""
    found: set[int] = set()
    current = os.getpid() if pid is None else pid
    while current > 0 and current not in found:
        found.add(current)
        process = stat(places, current)
        if process is None:
            break
        current = process.ppid
    return found


def descendants(places: Places, pid: int) -> list[Process]:
    """All living children, their children and so on; the process itself is not among them."""
    by_parent: dict[int, list[Process]] = {}
    for process in each(places):
        by_parent.setdefault(process.ppid, []).append(process)
    found: list[Process] = []
    waiting = [pid]
    while waiting:
        children = by_parent.pop(waiting.pop(), [])
        found.extend(children)
        waiting.extend(child.pid for child in children)
    return found


def mapping(places: Places, path: str) -> list[int]:
    """The processes that have the file mapped into memory: while they run, its pages stay in the page cache."""
    try:
        status = os.stat(path)
    except OSError:
        return []
    device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}"
    found = []
    for process in each(places):
        raw = _read_bytes(f"{places.proc}/{process.pid}/maps") or b""
        for line in raw.decode("utf-8", "surrogateescape").splitlines():
            fields = line.split(None, 5)
            if len(fields) < 6 or fields[4] != str(status.st_ino):
                continue
            # An overlay shows another device in maps than in stat: there the path must tell.
            if fields[3] == device or fields[5] == path:
                found.append(process.pid)
                break
    return found


def _wait_gone(places: Places, wanted: list[tuple[int, int]], seconds: float) -> bool:
    until = time.monotonic() + seconds
    while any(alive(places, pid, ticks) for pid, ticks in wanted):
        if time.monotonic() >= until:
            return False
        time.sleep(POLL_S)
    return True


def _signal(pid: int, number: int) -> str:
    """Sends a signal; the reason when that is not allowed. A process that is gone is no failure."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return ""
    except PermissionError:
        return "not allowed to signal it"
    return ""


def _why_still_there(places: Places, pid: int) -> str:
    found = stat(places, pid)
    if found is not None and found.state == "D":
        return "uninterruptible (state D), reboot needed"
    return "still there after SIGKILL, reboot needed"


def end_all(
    places: Places, wanted: list[tuple[int, int]], grace_s: float, kill_wait_s: float = 5.0
) -> dict[int, Ending]:
    """Ends exactly these processes (pid, start time): TERM to all, up to `grace_s` seconds to go, KILL, a bounded wait.

    Already gone is a success. Our own ancestry is refused.
    """
    own = ancestry(places)
    endings = {pid: Ending(False, "it is an ancestor of this call") for pid, _ in wanted if pid in own}
    left = [(pid, ticks) for pid, ticks in wanted if pid not in own]
    for number, seconds, why in ((signal.SIGTERM, grace_s, ""), (signal.SIGKILL, kill_wait_s, "had to be killed")):
        signalled = []
        for pid, ticks in left:
            # Looked at right before each signal: the pid may belong to somebody else by now.
            if not alive(places, pid, ticks):
                endings.setdefault(pid, Ending(True))
                continue
            refused = _signal(pid, number)
            if refused:
                endings[pid] = Ending(False, refused)
            else:
                signalled.append((pid, ticks))
        _wait_gone(places, signalled, seconds)
        left = [(pid, ticks) for pid, ticks in signalled if alive(places, pid, ticks)]
        endings.update({pid: Ending(True, why) for pid, ticks in signalled if (pid, ticks) not in left})
        if not left:
            break
    endings.update({pid: Ending(False, _why_still_there(places, pid)) for pid, _ in left})
    return endings


def end(places: Places, pid: int, start_time_ticks: int, grace_s: float, kill_wait_s: float = 5.0) -> Ending:
    """Ends exactly that process, see `end_all`."""
    return end_all(places, [(pid, start_time_ticks)], grace_s, kill_wait_s)[pid]


def end_family(places: Places, pid: int, grace_s: float = 1.0) -> list[int]:
    """Ends all descendants of `pid` and whoever shares its process group, not itself; the pids that are still there."""
    family = {process.pid: process.start_time_ticks for process in descendants(places, pid)}
    me = stat(places, pid)
    if me is not None and me.pgrp == pid:
        family.update({each_.pid: each_.start_time_ticks for each_ in each(places) if each_.pgrp == pid})
    family.pop(pid, None)
    endings = end_all(places, list(family.items()), grace_s, kill_wait_s=2.0)
    return sorted(gone for gone, ending in endings.items() if not ending.ended)
