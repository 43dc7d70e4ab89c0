"""The units of a run: a unit file that every service manager understands, and the request that its program reads."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import Any, Mapping

from . import supervise
from .failures import BAD_INPUT, BUG, Failure
from .run_state import Run

# A run must not depend on who called; what a workload needs beside this is in the matrix.
BASE_ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LC_ALL": "C.UTF-8",
}
STOP_GRACE_S = 10.0


@dataclass(frozen=True)
class Limits:
    """Memory limits of the workload's control group, in bytes; None is no limit."""

    memory_max_bytes: int | None = None
    swap_max_bytes: int | None = None


@dataclass(frozen=True)
class Program:
    """What a unit runs."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    deadline_s: float | None = None
    limits: Limits = Limits()
    # True: the program takes the place of ours (no exit record); False: it is supervised.
    replace: bool = False
    # What the supervisor's guard watches; None is no guard.
    guard: Mapping[str, Any] | None = None


def quote(word: str) -> str:
    """One word of a unit's command line: specifiers, variables, spaces, quotes and backslashes lose their meaning."""
    if "\n" in word or "\r" in word or "\0" in word:
        raise Failure(BAD_INPUT, f"{word!r:.80} has a line end in it", "unit", "no line ends in arguments")
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"' if escaped != word or not word or set(word) & set(" \t';#") else word


def write(run: Run, role: str, program: Program) -> str:
    """Writes the request of a program and returns the text of its unit. `role`: `workload` or `logger`."""
    request_path = os.path.join(run.own, f"{role}-request.json")
    supervise.write_json(
        request_path,
        {
            "argv": list(program.argv),
            "env": {**BASE_ENVIRONMENT, **program.env},
            "cwd": program.cwd,
            "deadline_s": program.deadline_s,
            "grace_s": STOP_GRACE_S,
            "replace": program.replace,
            "memory_max_bytes": program.limits.memory_max_bytes,
            "swap_max_bytes": program.limits.swap_max_bytes,
            "guard": None if program.guard is None else dict(program.guard),
            "started_path": run.started_path,
            "exit_path": run.exit_path,
        },
    )
    return unit_text(run, role, request_path, program)


def unit_text(run: Run, role: str, request_path: str, program: Program) -> str:
    """The unit file. Its command line holds only paths of ours; the arguments are in the request."""
    source = os.path.abspath(supervise.__file__)
    if not os.path.isfile(source):
        raise Failure(BUG, f"the board's program is not unpacked: there is no {source}", "run")
    command = " ".join(quote(word) for word in (sys.executable, "-IS", source, request_path))
    log = os.path.join(run.logs, f"{role}.log").replace("%", "%%")
    lines = [
        "[Unit]",
        f"Description=boardbench {role} of run {run.name}",
        "",
        "[Service]",
        "Type=simple",
        "ExecStart=" + command,
        "Restart=no",
        # TERM goes to the main process alone, which hands it on once; what is left then is killed as a whole group.
        "KillMode=mixed",
        f"TimeoutStopSec={int(STOP_GRACE_S + 10)}",
        "StandardInput=null",
        "StandardOutput=append:" + log,
        "StandardError=append:" + log,
        # The kernel's kill is evidence; the supervisor must live on to write it down.
        "OOMPolicy=continue",
    ]
    if program.deadline_s is not None:
        # The supervisor ends its program first; this is for the case that it cannot.
        lines.append(f"RuntimeMaxSec={int(program.deadline_s + STOP_GRACE_S + 10)}")
    if program.limits.memory_max_bytes is not None:
        lines.append(f"MemoryMax={program.limits.memory_max_bytes}")
    if program.limits.swap_max_bytes is not None:
        lines.append(f"MemorySwapMax={program.limits.swap_max_bytes}")
    return "\n".join(lines) + "\n"
