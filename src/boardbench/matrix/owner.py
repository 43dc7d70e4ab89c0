"""Which process holds boards, and the proof that it is gone.

A hold says which process of which machine renews it. Whoever stands on that very machine can look whether the process
still runs; from anywhere else nothing can be known, and nothing is assumed.
"""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

_PROC = Path("/proc")
_ENDED = ("Z", "X")


def owner_name() -> str:
    """Who holds the boards: the login name, or the user id where the system knows no name."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return f"uid {os.getuid()}"


@dataclass(frozen=True)
class Process:
    """One process, told apart from a later one with its pid by its start (clock ticks since this boot).

    `boot_id` is the kernel's boot; `pid_namespace` and `time_namespace` say in whose numbers pid and start are given.
    """

    pid: int
    start_time_ticks: int
    boot_id: str
    pid_namespace: str
    time_namespace: str

    @staticmethod
    def here() -> Process | None:
        """This process; None where it cannot be told from others: such a hold ends by its expiry alone."""
        try:
            # Where /proc shows another namespace than ours, its numbers are not those of our pids.
            if os.readlink(_PROC / "self") != str(os.getpid()):
                return None
            _, start_time_ticks = _stat(os.getpid())
            return Process(os.getpid(), start_time_ticks, _boot_id(), *_namespaces())
        except (OSError, ValueError, IndexError):
            return None

    @staticmethod
    def of(value: object) -> Process | None:
        """From a lease; None when it tells none."""
        if not isinstance(value, Mapping):
            return None
        pid, ticks = value.get("pid"), value.get("start_time_ticks")
        texts = [value.get(name) for name in ("boot_id", "pid_namespace", "time_namespace")]
        numbers = all(isinstance(n, int) and not isinstance(n, bool) and 0 < n < 2**63 for n in (pid, ticks))
        if not numbers or not all(isinstance(text, str) and text for text in texts):
            return None
        return Process(int(str(pid)), int(str(ticks)), *map(str, texts))

    def as_dict(self) -> dict[str, object]:
        """The form that a lease keeps."""
        return asdict(self)


def proof_of_death(lease: Mapping[str, Any], host: str = "") -> str:
    """Why the controller behind this lease cannot be alive any more, in words; empty when that is not proved.

    A process of another host, boot or namespace is never called dead. `host`: the name of this machine.
    """
    owner, me = Process.of(lease.get("process")), Process.here()
    if owner is None or me is None or lease.get("host") != (host or socket.gethostname()):
        return ""
    mine = (me.boot_id, me.pid_namespace, me.time_namespace)
    if (owner.boot_id, owner.pid_namespace, owner.time_namespace) != mine:
        return ""
    if not _pid_is_given(owner.pid):
        return f"its controller, process {owner.pid} of this machine, is gone"
    try:
        state, start_time_ticks = _stat(owner.pid)
        if start_time_ticks != owner.start_time_ticks:
            return f"its controller is gone: pid {owner.pid} of this machine is another process now"
        if state in _ENDED and len(os.listdir(_PROC / str(owner.pid) / "task")) == 1:
            return f"its controller, process {owner.pid} of this machine, has ended"
    except (OSError, ValueError, IndexError):
        pass  # it went away while we looked, or we may not look: not proved now
    return ""


def _pid_is_given(pid: int) -> bool:
    """By the kernel and not by /proc, which may be mounted so that it hides other users' processes."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def _stat(pid: int) -> tuple[str, int]:
    text = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    # The name (second field) may hold spaces and brackets; the fields after the last bracket are plain.
    fields = text.rpartition(")")[2].split()
    return fields[0], int(fields[19])


def _boot_id() -> str:
    return (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def _namespaces() -> tuple[str, str]:
    """Those of pids and of clocks. A kernel without namespaces of clocks has one clock for all."""
    time = _PROC / "self/ns/time"
    return os.readlink(_PROC / "self/ns/pid"), os.readlink(time) if os.path.lexists(time) else "one"
