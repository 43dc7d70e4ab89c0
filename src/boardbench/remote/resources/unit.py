"""`unit`: a unit of the service manager: its file, whether it starts at boot, whether it runs now."""

from __future__ import annotations

import os
import time
from typing import Any

from ..failures import BAD_INPUT, RIG, Failure
from ..plans import Change, Plan
from ..services import UnitState, check_unit_name
from ..system import System
from ..things import paths, unit_states
from . import absent, access, check
from . import file as file_resource

_SETTLE_S = 0.5


def _file_args(args: dict[str, Any], system: System) -> dict[str, Any]:
    path = unit_states.file_of(args["name"], system)
    found = {"path": path, "mode": "0644", "owner": "root", "group": "root"}
    found.update({key: args[key] for key in ("content", "blob", "size") if args.get(key) is not None})
    return found


def _has_file(args: dict[str, Any]) -> bool:
    return args.get("content") is not None or args.get("blob") is not None


def plan(args: dict[str, Any], system: System) -> Plan:
    """What differs in the file and in the state; a unit that an earlier step may bring reads `absent`."""
    check(args, ["name"], ["content", "blob", "size", "enabled", "active"])
    name = check_unit_name(str(args["name"]))
    for key in ("enabled", "active"):
        if args.get(key) not in (None, True, False):
            raise Failure(BAD_INPUT, f"{key} is {args[key]!r}", "args", "true or false")
    state = system.services.state(name)
    if absent(args):
        return _plan_absent(name, state, system)
    file_plan = file_resource.plan(_file_args(args, system), system) if _has_file(args) else Plan()
    changes = list(file_plan.changes)
    for key, now in (("enabled", state.enabled), ("active", state.active)):
        want = args.get(key)
        if want is not None and want != now:
            before = _word(key, now) if state.exists else "absent"
            changes.append(Change(f"unit {name} {key}", before, _word(key, want)))
    return Plan(tuple(changes), file_plan.diff)


def _plan_absent(name: str, state: UnitState, system: System) -> Plan:
    file = paths.current(unit_states.file_of(name, system), system)
    if not state.active and not state.enabled and file["type"] == "absent":
        return Plan()
    before = unit_states.describe(state.exists, state.enabled, state.active)
    return Plan((Change(f"unit {name}", before, "absent"),))


def _word(key: str, value: bool) -> str:
    words = {"enabled": ("disabled", "enabled"), "active": ("inactive", "active")}
    return words[key][value]


def blobs(args: dict[str, Any], system: System) -> list[str]:
    """The unit file's blob, unless the file has that content already."""
    return file_resource.blobs(_file_args(args, system), system) if _has_file(args) and not absent(args) else []


def apply(args: dict[str, Any], system: System) -> None:
    """Notes the unit, writes its file, makes the manager read it, and brings the unit to the wanted state."""
    name = check_unit_name(str(args["name"]))
    services = system.services
    access.make_parents(unit_states.file_of(name, system), system)
    system.note("unit", name)
    before = services.state(name)
    if absent(args):
        return _remove(name, before, system)
    file_changed = _has_file(args) and bool(file_resource.plan(_file_args(args, system), system).changes)
    if file_changed:
        _write_file(args, system)
        services.reload()
    if not services.state(name).exists and (args.get("enabled") or args.get("active")):
        raise Failure(RIG, "there is no such unit on this board", name, "give its content, or install its package")
    if args.get("enabled") is not None and args["enabled"] != services.state(name).enabled:
        (services.enable if args["enabled"] else services.disable)(name)
    want = args.get("active")
    if want is False:
        services.stop(name)
    elif before.active and file_changed:
        services.restart(name)
        settle(name, system)
    elif want and not before.active:
        services.start(name)
        settle(name, system)
    return None


def _write_file(args: dict[str, Any], system: System) -> None:
    """The note of the unit holds its file too: noted by itself it would be put back before the unit is stopped."""
    file_args = _file_args(args, system)
    path, sha = str(file_args["path"]), file_resource.wanted_hash(file_args)
    text = file_args.get("content")
    content = str(text).encode() if text is not None else system.blobs([str(sha)])[0]
    file_resource.install(path, content, access.wanted(file_args), paths.current(path, system), system)


def settle(name: str, system: System) -> None:
    """A unit that starts and dies at once is no started unit. Failure `rig` with how it ended."""
    until = time.monotonic() + _SETTLE_S
    while time.monotonic() < until:
        state = system.services.state(name)
        if not state.active:
            if state.result == "success" and state.exit_code == 0:
                return  # a one-shot unit that has done its work; the plan will say whether that is what is wanted
            how = f"result {state.result or 'unknown'}, exit code {state.exit_code}"
            raise Failure(RIG, f"it was started and is not active ({how})", name, "see its log on the board")
        time.sleep(0.1)


def _remove(name: str, before: UnitState, system: System) -> None:
    if before.active:
        system.services.stop(name)
    if before.enabled:
        system.services.disable(name)
    here = os.path.join(system.places.units, name)
    if os.path.lexists(here):
        os.unlink(here)
    system.services.reload()
