"""Mode and owner of a path, as `directory` and `file` take them."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Any

from ..failures import BAD_INPUT, Failure
from ..plans import Change
from ..system import System
from ..things import paths

_MODE = re.compile(r"[0-7]{3,4}\Z")


@dataclass(frozen=True)
class Access:
    """What is wanted; None or -1: as it is, or the default for a new path."""

    mode: int | None
    uid: int
    gid: int


def wanted(args: dict[str, Any]) -> Access:
    """The access that the arguments ask for. Failure `bad-input` for a mode that is no octal text, or unknown names."""
    mode = args.get("mode")
    if mode is not None and not (isinstance(mode, str) and _MODE.match(mode)):
        raise Failure(BAD_INPUT, f"mode is {mode!r}", "args", 'an octal number in quotes, like "0644"')
    return Access(
        int(mode, 8) if mode is not None else None,
        _id(args.get("owner"), "owner"),
        _id(args.get("group"), "group"),
    )


def _id(name: Any, what: str) -> int:
    if name is None:
        return -1
    if isinstance(name, int) and not isinstance(name, bool):
        return name
    if name in ("root", "0"):
        return 0
    import grp
    import pwd

    try:
        return pwd.getpwnam(str(name)).pw_uid if what == "owner" else grp.getgrnam(str(name)).gr_gid
    except KeyError:
        raise Failure(BAD_INPUT, f"{what} {name!r} does not exist on this board", "args", "make it before") from None


def differences(path: str, state: dict[str, Any], access: Access) -> list[Change]:
    """What differs in mode and owner on a path that exists."""
    changes = []
    if access.mode is not None and state["mode"] != access.mode:
        changes.append(Change(f"{path} mode", f"{state['mode']:04o}", f"{access.mode:04o}"))
    for word, key, want in (("owner", "uid", access.uid), ("group", "gid", access.gid)):
        if want not in (-1, state[key]):
            changes.append(Change(f"{path} {word}", str(state[key]), str(want)))
    return changes


def make_parents(path: str, system: System) -> None:
    """Makes the folders above `path` that are not there, each noted, readable for all."""
    parent = os.path.dirname(path)
    if parent == path or os.path.isdir(system.places.at(parent)):
        return
    make_parents(parent, system)
    system.note("path", parent)
    os.mkdir(system.places.at(parent), 0o755)
    os.chmod(system.places.at(parent), 0o755)


def describe_new(kind: str, access: Access, default_mode: int) -> str:
    """A path that is to be made, in words."""
    mode = default_mode if access.mode is None else access.mode
    return f"{kind} {mode:04o}"


def set_on(path: str, access: Access, system: System) -> None:
    """Sets what is asked for on a path that exists."""
    paths.own(system.places.at(path), access.mode, access.uid, access.gid)
