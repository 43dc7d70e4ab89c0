"""A unit of the service manager: its file below /etc/systemd/system, whether it starts at boot, whether it runs."""

from __future__ import annotations

import os
from typing import Any

from ..failures import Failure
from ..system import System
from . import Restored, paths


def file_of(name: str, system: System) -> str:
    """Where our unit files lie, as the board names it."""
    return system.places.on_board(os.path.join(system.places.units, name))


def snapshot(name: str, system: System) -> dict[str, Any]:
    """State and file together: a unit is stopped by its old rules before its file changes."""
    state = system.services.state(name)
    return {
        "exists": state.exists,
        "enabled": state.enabled,
        "active": state.active,
        "file": paths.snapshot(file_of(name, system), system),
        "wants": _wants_folders(system),
    }


def _wants_folders(system: System) -> list[str]:
    """The folders that enabling a unit makes when they are not there."""
    try:
        names = os.listdir(system.places.units)
    except FileNotFoundError:
        return []
    return sorted(name for name in names if name.endswith((".wants", ".requires")))


def describe(exists: bool, enabled: bool, active: bool) -> str:
    """A unit's state in words."""
    if not exists:
        return "active without a file" if active else "absent"
    return f"{'enabled' if enabled else 'disabled'}, {'active' if active else 'inactive'}"


def _now(name: str, system: System) -> tuple[str, Any]:
    state = system.services.state(name)
    return describe(state.exists, state.enabled, state.active), state


def restore(name: str, state: dict[str, Any], system: System, files: str) -> Restored:
    """Stops what should not run, puts the file back, then enables and starts as it was."""
    before, now = _now(name, system)
    file = file_of(name, system)
    file_differs = not paths.same(paths.current(file, system), state["file"])
    try:
        _undo(name, state, now, file_differs, system, files)
    except Failure as failure:
        return Restored(before, _now(name, system)[0], False, str(failure))
    after, now = _now(name, system)
    wanted = describe(state["exists"], state["enabled"], state["active"])
    good = after == wanted and paths.same(paths.current(file, system), state["file"])
    return Restored(before, after, good, "" if good else f"it should be {wanted}, with its file as it was")


def _undo(name: str, state: dict[str, Any], now: Any, file_differs: bool, system: System, files: str) -> None:
    services = system.services
    if now.active and (file_differs or not state["active"]):
        services.stop(name)
    if now.enabled and not state["enabled"]:
        services.disable(name)
    _remove_wants(state["wants"], system)
    if file_differs:
        outcome = paths.restore(file_of(name, system), state["file"], system, files)
        if not outcome.ok:
            raise Failure("rig", f"its file could not be put back: {outcome.why}", file_of(name, system))
        services.reload()
    now = services.state(name)
    if state["enabled"] and not now.enabled:
        services.enable(name)
    if state["active"] and not now.active:
        services.start(name)


def _remove_wants(before: list[str], system: System) -> None:
    for name in set(_wants_folders(system)) - set(before):
        try:
            os.rmdir(os.path.join(system.places.units, name))
        except OSError:
            continue  # another unit is in it by now
