"""`fleet.json`: what the fleet's daemon serves."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from pathlib import Path

from boardbench.errors import InputError
from boardbench.virtual.boards import kinds

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


@dataclass(frozen=True)
class BoardEntry:
    """One board: its kind, sandbox, the host folders that are its own, and its memory control group (v1), if any."""

    name: str
    kind: str
    sandbox: str
    pagecache_roots: tuple[Path, ...]
    cgroup: Path | None


@dataclass(frozen=True)
class FleetFile:
    """The whole file."""

    name: str
    time_scale: float
    sysfs: str
    boards: tuple[BoardEntry, ...]


def read(path: Path) -> FleetFile:
    """Read and check the file. InputError names what is wrong, and where."""
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise InputError(
            "the file is missing", where=str(path), advice="start the fleet with its own command"
        ) from None
    except (OSError, ValueError) as error:
        raise InputError(f"it cannot be read: {error}", where=str(path)) from None
    try:
        return _fleet(value)
    except ValueError as error:
        raise InputError(str(error), where=str(path)) from None


def _fleet(value: object) -> FleetFile:
    if not isinstance(value, dict):
        raise ValueError("not an object")
    scale = value.get("time_scale", 1.0)
    if (
        isinstance(scale, bool)
        or not isinstance(scale, int | float)
        or not math.isfinite(scale)
        or not 0 < scale <= 3600
    ):
        raise ValueError(f"time_scale is {scale!r}; it must be above 0 and at most 3600")
    sysfs = value.get("sysfs", "auto")
    if sysfs not in ("auto", "fuse", "plain"):
        raise ValueError(f"sysfs is {sysfs!r}; use auto, fuse or plain")
    boards = value.get("boards")
    if not isinstance(boards, dict):
        raise ValueError("boards is not an object")
    entries = tuple(_board(name, entry) for name, entry in boards.items())
    return FleetFile(str(value.get("name", "fleet")), float(scale), sysfs, entries)


def _board(name: str, value: object) -> BoardEntry:
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} cannot be the name of a board")
    if not isinstance(value, dict):
        raise ValueError(f"board {name} is not an object")
    kind, sandbox = value.get("kind"), value.get("sandbox", "bwrap")
    if kind not in kinds():
        raise ValueError(f"board {name}: kind {kind!r} cannot be virtual; use one of {', '.join(kinds())}")
    if sandbox not in ("bwrap", "nspawn"):
        raise ValueError(f"board {name}: sandbox is {sandbox!r}; use bwrap or nspawn")
    roots = value.get("pagecache_roots", [])
    if not isinstance(roots, list) or not all(isinstance(root, str) and _is_own(root) for root in roots):
        raise ValueError(f"board {name}: pagecache_roots must be absolute folders below the root folder")
    cgroup = value.get("cgroup")
    if cgroup is not None and not (isinstance(cgroup, str) and _is_own(cgroup)):
        raise ValueError(f"board {name}: cgroup must be an absolute folder")
    return BoardEntry(
        name, str(kind), sandbox, tuple(Path(root) for root in roots), Path(cgroup) if cgroup is not None else None
    )


def _is_own(path: str) -> bool:
    return path.startswith("/") and Path(path) != Path("/") and ".." not in Path(path).parts
