"""Faults of the link to a board: its sshd stops answering, whatever it is doing, while the board runs on."""

from __future__ import annotations

import signal
from pathlib import Path

from boardbench.virtual import processes
from boardbench.virtual.processes import Mark

_ROUNDS = 3


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
