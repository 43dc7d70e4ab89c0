"""Unit files of ours, read back: what a service manager that is slow to start them would make of them."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass

_START, _LOG = "ExecStart=", "StandardOutput=append:"


@dataclass(frozen=True)
class Command:
    """What a unit runs, and the file that gets its output."""

    argv: tuple[str, ...]
    log: str


def command_of(path: str) -> Command | None:
    """The command of a unit file as `run_units.unit_text` writes it; None for any other, or none."""
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
    except FileNotFoundError:
        return None
    starts = [line[len(_START) :] for line in lines if line.startswith(_START)]
    logs = [line[len(_LOG) :] for line in lines if line.startswith(_LOG)]
    if len(starts) != 1 or len(logs) != 1 or "Type=simple" not in lines:
        return None
    argv = tuple(word.replace("%%", "%").replace("$$", "$") for word in shlex.split(starts[0]))
    return Command(argv, logs[0].replace("%%", "%")) if argv and os.path.isabs(argv[0]) else None


def note_pid(folder: str, unit: str, pid: int) -> None:
    """The status file by which the `systemctl` replacement knows a service that it has started."""
    path = os.path.join(folder, unit + ".status")
    with open(path + ".partial", "w", encoding="utf-8") as file:
        file.write(f"MainPID={pid}\n")
    os.rename(path + ".partial", path)
