"""The link to a board as the host's kernel tells it, and its faults: a sshd that stands still while the board runs on.

Nothing here sends a byte to a board: who looks at one that is being measured must not disturb it.
"""

from __future__ import annotations

import signal
import socket
import sys
from pathlib import Path

from boardbench.virtual import processes
from boardbench.virtual.processes import Mark

_ROUNDS = 3
_TCP = Path("/proc/net/tcp")
_LISTENS = "0A"


def sshd_processes(supervisor_pid: int) -> list[Mark]:
    """The sshd processes of a board (listener first, then sessions), by what they execute; their children are not."""
    found = processes.descendants(supervisor_pid)
    return [mark for mark in found if Path(processes.executable(mark.pid) or "").name.startswith("sshd")]


def cut(supervisor_pid: int) -> int:
    """Stops the board's sshd processes; returns how many. New connections get no banner, open ones no byte."""
    stopped: set[Mark] = set()
    # The listener is stopped first; a session that it forked just before is found in the next round.
    for _ in range(_ROUNDS):
        for mark in sshd_processes(supervisor_pid):
            if mark not in stopped and processes.send(mark, signal.SIGSTOP):
                stopped.add(mark)
    return len(stopped)


def mend(supervisor_pid: int) -> int:
    """Lets the board's sshd processes run on; returns how many."""
    return sum(processes.send(mark, signal.SIGCONT) for mark in reversed(sshd_processes(supervisor_pid)))


def is_cut(supervisor_pid: int) -> bool:
    """Whether the listener of the board is stopped."""
    found = sshd_processes(supervisor_pid)
    return bool(found) and processes.state(found[0].pid) == "T"


def listener(address: str, port: int) -> str:
    """The kernel's number of the socket that takes connections on this IPv4 address; empty when there is none.

    Boards share the host's network, so the host sees it; a server that starts anew gets another number.
    """
    # The kernel prints the four bytes as one number of this machine.
    here = f"{int.from_bytes(socket.inet_aton(address), sys.byteorder):08X}:{port:04X}"
    rows = (line.split() for line in _TCP.read_text(encoding="ascii").splitlines()[1:])
    return next((row[9] for row in rows if row[1] == here and row[3] == _LISTENS), "")
