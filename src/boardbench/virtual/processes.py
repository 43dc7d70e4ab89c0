"""Processes of a fleet, always by recorded pid and start time, never by name: a reused pid is somebody else."""

from __future__ import annotations

import os
import signal
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_POLL_S = 0.02


@dataclass(frozen=True)
class Mark:
    """One process, told apart from later ones with the same pid by its start time (clock ticks since boot)."""

    pid: int
    start_time_ticks: int

    def as_dict(self) -> dict[str, int]:
        """The form that state files hold."""
        return {"pid": self.pid, "start_time_ticks": self.start_time_ticks}


def mark_of(pid: int) -> Mark | None:
    """The mark of a running process; None when there is none with this pid (a zombie is none)."""
    fields = _stat_fields(pid)
    if fields is None or fields[0] in ("Z", "X"):
        return None
    return Mark(pid, int(fields[19]))


def from_dict(value: object) -> Mark | None:
    """A mark read back from a state file; None when it is none."""
    if not isinstance(value, dict):
        return None
    pid, ticks = value.get("pid"), value.get("start_time_ticks")
    return Mark(pid, ticks) if isinstance(pid, int) and isinstance(ticks, int) else None


def alive(mark: Mark | None) -> bool:
    """Whether this very process still runs."""
    return mark is not None and mark_of(mark.pid) == mark


def send(mark: Mark, number: int) -> bool:
    """Sends the signal to this very process; False when it is gone."""
    if not alive(mark):
        return False
    try:
        os.kill(mark.pid, number)
    except ProcessLookupError:
        return False
    return True


def end(marks: list[Mark], *, grace_s: float) -> list[Mark]:
    """SIGTERM, `grace_s` seconds, SIGKILL. Returns those that are still there 5 s after (none, on a sane kernel)."""
    if grace_s > 0:
        for mark in marks:
            send(mark, signal.SIGTERM)
        left = wait_gone(marks, grace_s)
    else:
        left = list(marks)
    for mark in left:
        send(mark, signal.SIGKILL)
    return wait_gone(left, 5.0)


def wait_gone(marks: list[Mark], timeout_s: float) -> list[Mark]:
    """Waits until none of these runs; returns those that still do at the time-out."""
    deadline = time.monotonic() + timeout_s
    while True:
        for mark in marks:
            _reap(mark.pid)
        left = [mark for mark in marks if alive(mark)]
        if not left or time.monotonic() >= deadline:
            return left
        time.sleep(_POLL_S)


def descendants(root: int) -> list[Mark]:
    """All processes below `root`, parents before children, without `root` itself.

    Orphans of a board are adopted by its init, so the tree below a board's supervisor holds all of the board.
    """
    children: dict[int, list[Mark]] = defaultdict(list)
    for entry in _PROC.iterdir():
        if not entry.name.isdigit():
            continue
        fields = _stat_fields(int(entry.name))
        if fields is not None and fields[0] not in ("Z", "X"):
            children[int(fields[1])].append(Mark(int(entry.name), int(fields[19])))
    found: list[Mark] = []
    queue = [root]
    while queue:
        mine = children.get(queue.pop(0), [])
        found += mine
        queue += [mark.pid for mark in mine]
    return found


def executable(pid: int) -> str | None:
    """The path of what a process executes, as its own root sees it; None when it is gone."""
    try:
        return os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return None


def _stat_fields(pid: int) -> list[str] | None:
    try:
        text = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The name (second field) may hold spaces and brackets; the fields after the last bracket are plain.
    return text.rpartition(")")[2].split()


def _reap(pid: int) -> None:
    """Takes the exit status when the process was our own child, so that no zombie stays."""
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        pass


def state(pid: int) -> str | None:
    """The one-letter state of a process as /proc has it (R, S, D, T, Z ...); None when there is none."""
    fields = _stat_fields(pid)
    return fields[0] if fields else None


def init_of(supervisor_pid: int) -> int | None:
    """The host's pid of a board's PID 1: the process that is 1 in the innermost pid namespace; None while booting."""
    best, depth = None, 1
    for mark in descendants(supervisor_pid):
        chain = _namespace_pids(mark.pid)
        if len(chain) > depth and chain[-1] == "1":
            best, depth = mark.pid, len(chain)
    return best


def _namespace_pids(pid: int) -> list[str]:
    try:
        text = (_PROC / str(pid) / "status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return next((line.split()[1:] for line in text.splitlines() if line.startswith("NSpid:")), [])
