"""The live sysfs of a fleet: starts, finds and ends the one daemon that serves the kernel files of all its boards."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from boardbench.errors import RigError
from boardbench.virtual import boards, processes
from boardbench.virtual.processes import Mark
from boardbench.virtual.sandbox import Bind, mounts_below, write_whole

_START_TIMEOUT_S = 15.0
_END_GRACE_S = 5.0
_POLL_S = 0.02


@dataclass(frozen=True)
class Entry:
    """What the daemon must know about one board."""

    kind: str
    sandbox: str
    pagecache_roots: tuple[str, ...]
    cgroup: str | None


def start(folder: Path, name: str, time_scale: float, entries: Mapping[str, Entry], wanted: str = "auto") -> None:
    """Starts the daemon of the fleet in `folder` and waits until it serves. Raises RigError when it does not."""
    fleet = {
        "name": name,
        "time_scale": time_scale,
        "sysfs": wanted,
        "boards": {board: asdict(entry) for board, entry in entries.items()},
    }
    write_whole(folder / "fleet.json", json.dumps(fleet, indent=1, sort_keys=True) + "\n")
    (folder / "daemon.json").unlink(missing_ok=True)
    log = folder / "daemon.log"
    argv = [sys.executable, "-m", "boardbench.virtual.daemon", str(folder)]
    with log.open("ab") as out:
        child = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True, cwd="/"
        )
    mark = processes.mark_of(child.pid)
    if mark is not None:
        # `daemon.json` appears only when all works; until then the process is found by this.
        write_whole(folder / "daemon-started.json", json.dumps(mark.as_dict()) + "\n")
    deadline = time.monotonic() + _START_TIMEOUT_S
    while not (folder / "daemon.json").exists():
        code = child.poll()
        if code is not None or time.monotonic() > deadline:
            stop(folder)
            words = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
            why = f"exit code {code}" if code is not None else f"not ready after {_START_TIMEOUT_S:g} s"
            raise RigError(f"the sysfs of the virtual boards does not start ({why}): {' | '.join(words[-2:])}")
        time.sleep(_POLL_S)


def stop(folder: Path) -> list[str]:
    """Ends the daemon and takes its mounts away, also those of a killed one. Returns what would not go, as text."""
    mark = _mark(folder)
    left = processes.end([mark], grace_s=_END_GRACE_S) if mark is not None else []
    found = [f"process {one.pid} (sysfs daemon)" for one in left]
    for point in mounts_below(folder):
        # Lazily: a process of somebody else may stand in it. fusermount3 is for users who may not umount.
        for argv in (["umount", "-l", point], ["fusermount3", "-u", "-z", point]):
            if subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True).returncode == 0:
                break
    return found + [f"mount {point}" for point in mounts_below(folder)]


def runs(folder: Path) -> bool:
    """Whether the daemon runs and serves."""
    return (folder / "daemon.json").exists() and processes.alive(_mark(folder))


def mode(folder: Path) -> str:
    """How the kernel files are served: "fuse", "plain", or "none" when the daemon does not run."""
    if not runs(folder):
        return "none"
    return str(json.loads((folder / "daemon.json").read_text(encoding="utf-8"))["mode"])


def faults_file(folder: Path, board: str) -> Path:
    """Where the daemon looks for the faults of a board."""
    return folder / "ctl" / board / "faults.json"


def reset_mark(folder: Path, board: str) -> Path:
    """The file that tells the daemon that the board boots anew; the daemon removes it when it has seen it."""
    return folder / "ctl" / board / "reboot"


def binds(folder: Path, board: str, board_kind: str, sandbox: str) -> list[Bind]:
    """What must be bound into the board's sandbox so that it sees its kernel files."""
    return boards.binds(board_kind, folder / "tree" / board, folder / "ctl" / board, sandbox)


def _mark(folder: Path) -> Mark | None:
    try:
        return processes.from_dict(json.loads((folder / "daemon-started.json").read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
