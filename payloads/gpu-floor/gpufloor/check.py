"""`--check`: what the service would find here and now, and what to do about all that is missing. Needs no root."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Any

from . import node as nodes
from . import processes, virtual
from .faults import BoardError, UserError
from .floor import below_ceiling, choose, look, mhz
from .libraries import Finder
from .probes import tracefs_mounted
from .settings import Settings
from .status import read
from .sysfs import Sysfs
from .watch import why_blind


def check(settings: Settings, sys_root: str, run_dir: str) -> dict[str, Any]:
    """The findings; `advice` is empty when the service can do its work."""
    advice: list[str] = []
    found: dict[str, Any] = {"version": 1, "node": _node(settings, sys_root, advice)}
    blind = why_blind(settings.bpftrace)
    found["can_see_calls"] = not blind
    if blind:
        advice.append(blind)
    found["tracefs"] = tracefs_mounted()
    survey = Finder(settings).survey()
    found["libraries"] = [
        {"path": one.path, "symbols": list(one.symbols), "missing": list(one.missing)}
        for one in survey.libraries.values()
    ]
    found["processes"] = [asdict(one) for one in survey.counted.values()]
    found["others"] = _others(set(survey.counted))
    advice += survey.problems
    found["notes"] = _notes(found)
    found["service"] = read(run_dir)
    found["advice"] = advice
    return found


def _node(settings: Settings, sys_root: str, advice: list[str]) -> Any:
    files = Sysfs()
    try:
        node = nodes.find(sys_root, settings.node)
        seen = look(node, files)
    except BoardError as error:
        advice.append(str(error))
        return None
    finally:
        files.close()
    found: dict[str, Any] = {"path": node.path, "available_hz": list(seen.table)}
    found.update(min_hz=seen.min_hz, max_hz=seen.max_hz, floor_hz=None)
    try:
        floor = found["floor_hz"] = choose(seen.table, settings.floor_hz)
    except UserError as error:
        advice.append(str(error))
        return found
    in_reach = below_ceiling(seen.table, floor, seen.max_hz)
    if in_reach < floor:
        advice.append(
            f"the ceiling max_freq is {mhz(seen.max_hz)}: the floor reaches only {mhz(in_reach)}; choose a power mode "
            "with a higher GPU clock"
        )
    return found


def _others(counted: set[int]) -> list[dict[str, Any]]:
    """Processes that run the library and do not count."""
    found = []
    for pid in processes.pids():
        mapped = [] if pid in counted else processes.mapped_libraries(pid)
        if mapped:
            found.append({"pid": pid, "program": (processes.command_line(pid) or ["?"])[0], "library": mapped[0][0]})
    return found


def _notes(found: dict[str, Any]) -> list[str]:
    notes = [virtual.NO_GPU] if virtual.here() else []
    if not found["tracefs"]:
        notes.append(
            "tracefs is not mounted: a process that dies in a call is noticed up to 0.25 s later "
            "(mount -t tracefs tracefs /sys/kernel/tracing)"
        )
    if not found["libraries"]:
        notes.append("no library to watch now: start a model with experts on the CPU, or set GPU_FLOOR_LIBRARIES")
    if os.geteuid() != 0:
        notes.append("not root: processes of other users could not be looked at")
    return notes


def as_text(found: dict[str, Any]) -> str:
    """The findings for people."""
    node = found["node"]
    lines = ["GPU clock: not found" if node is None else f"GPU clock: {node['path']}"]
    if node is not None:
        lines.append("  frequencies: " + " ".join(f"{hz / 1e6:g}" for hz in node["available_hz"]) + " MHz")
        wanted = "none" if node["floor_hz"] is None else mhz(node["floor_hz"])
        lines.append(f"  min_freq {mhz(node['min_hz'])}, max_freq {mhz(node['max_hz'])}, floor {wanted}")
    lines.append(f"calls: {'can' if found['can_see_calls'] else 'cannot'} be seen here")
    lines.append(f"libraries: {len(found['libraries'])}")
    for one in found["libraries"]:
        lacking = f"; without {', '.join(one['missing'])}" if one["missing"] else ""
        lines.append(f"  {one['path']}: {', '.join(one['symbols'])}{lacking}")
    lines.append(f"processes that count: {len(found['processes'])}")
    lines += [f"  {one['pid']}: {one['why']}" for one in found["processes"]]
    if found["others"]:
        lines.append(f"processes with the library that do not count: {len(found['others'])}")
        lines += [f"  {one['pid']}: {one['program']}" for one in found["others"]]
    lines.append("service: " + ("not running" if found["service"] is None else str(found["service"]["state"])))
    lines += [f"note: {note}" for note in found["notes"]]
    lines += [f"to do: {advice}" for advice in found["advice"]]
    return "\n".join(lines)
