"""`directory`: a folder with mode and owner. `absent` removes an empty one; what is in a folder is never removed."""

from __future__ import annotations

import os
from typing import Any

from ..failures import RIG, Failure
from ..plans import Change, Plan
from ..system import System
from ..things import paths
from . import absent, absolute, access, check


def plan(args: dict[str, Any], system: System) -> Plan:
    """What differs; a file where the folder should be is a Failure."""
    check(args, ["path"], ["mode", "owner", "group"])
    path, wanted = absolute(args), access.wanted(args)
    state = paths.current(path, system)
    if absent(args):
        return Plan() if state["type"] == "absent" else Plan((Change(path, paths.describe(state), "absent"),))
    if state["type"] == "absent":
        return Plan((Change(path, "absent", access.describe_new("directory", wanted, 0o755)),))
    if state["type"] == "symlink" and os.path.isdir(system.places.at(path)):
        found = os.stat(system.places.at(path))
        state = {"type": "directory", "mode": found.st_mode & 0o7777, "uid": found.st_uid, "gid": found.st_gid}
    if state["type"] != "directory":
        raise Failure(RIG, f"there is a {state['type']} where the folder should be", path, "move it away")
    return Plan(tuple(access.differences(path, state, wanted)))


def apply(args: dict[str, Any], system: System) -> None:
    """Makes the folder and those above it, or sets its access, or removes it when it is empty."""
    path, wanted = absolute(args), access.wanted(args)
    here = system.places.at(path)
    if absent(args):
        if os.path.isdir(here) and not os.path.islink(here) and os.listdir(here):
            inside = ", ".join(sorted(os.listdir(here))[:5])
            raise Failure(RIG, f"it is not empty ({inside})", path, "remove what is in it first, by steps that name it")
        system.note("path", path)
        os.unlink(here) if os.path.islink(here) else os.rmdir(here)
        return
    access.make_parents(path, system)
    system.note("path", path)
    if not os.path.isdir(here):
        os.mkdir(here, 0o700)
        if wanted.mode is None:
            os.chmod(here, 0o755)
    access.set_on(path, wanted, system)
