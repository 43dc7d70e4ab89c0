"""A folder that is wholly ours when it was absent before: whatever came into it goes with it."""

from __future__ import annotations

import os
import shutil
from typing import Any

from ..failures import BUG, Failure
from ..system import System
from . import Restored


def snapshot(name: str, system: System) -> dict[str, Any]:
    """Only an absent folder can be noted as a tree; one that exists is noted path by path."""
    if os.path.lexists(system.places.at(name)):
        raise Failure(BUG, "it exists, so it cannot be noted as ours", name)
    return {"type": "absent"}


def restore(name: str, _state: dict[str, Any], system: System, _files: str) -> Restored:
    """Removes the folder and all in it; never through a mount point or a link."""
    path = system.places.at(name)
    if not os.path.lexists(path):
        return Restored("absent", "absent", True)
    before = "directory" if os.path.isdir(path) and not os.path.islink(path) else "file"
    mounted = _mount_point(path)
    if mounted:
        return Restored(before, before, False, f"something is mounted at {system.places.on_board(mounted)}")
    try:
        if before == "directory":
            shutil.rmtree(path)
        else:
            os.unlink(path)
    except OSError as error:
        return Restored(before, before, False, f"{error.strerror} ({error.filename})")
    return Restored(before, "absent", not os.path.lexists(path))


def _mount_point(path: str) -> str | None:
    for folder, folders, _ in os.walk(path):
        for name in folders:
            inner = os.path.join(folder, name)
            if not os.path.islink(inner) and os.path.ismount(inner):
                return inner
    return path if os.path.ismount(path) else None
