"""`package`: packages of the distribution, by apt. What comes with them is noted too, so that it goes with them."""

from __future__ import annotations

from typing import Any

from ..failures import BAD_INPUT, Failure
from ..plans import Change, Plan
from ..system import System
from ..things import packages
from . import absent, check


def _names(args: dict[str, Any]) -> list[str]:
    names = args["names"]
    if not isinstance(names, list) or not names:
        raise Failure(BAD_INPUT, "names is not a list of packages", "args")
    return [packages.check_name(name) for name in names]


def plan(args: dict[str, Any], system: System) -> Plan:
    """Which packages are missing, or are there and should not be."""
    check(args, ["names"], [])
    changes = []
    for name in _names(args):
        version = packages.installed(name, system)
        if absent(args) and version is not None:
            changes.append(Change(f"package {name}", version, "absent"))
        elif not absent(args) and version is None:
            changes.append(Change(f"package {name}", "absent", "installed"))
    return Plan(tuple(changes))


def apply(args: dict[str, Any], system: System) -> None:
    """Installs or removes what differs, in one run of apt; a list that is out of date is updated once."""
    missing = [change.what.partition(" ")[2] for change in plan(args, system).changes]
    verb = ["remove"] if absent(args) else ["install", "--no-install-recommends"]
    try:
        planned = packages.apt(["-s", *verb, *missing], system)
    except Failure:
        if absent(args):
            raise
        packages.update_lists(system)
        planned = packages.apt(["-s", *verb, *missing], system)
    for _, name in packages.parse_simulation(planned.output):
        system.note("package", name)
    for name in missing:
        system.note("package", name)
    try:
        packages.apt([*verb, *missing], system)
    except Failure as failure:
        if absent(args) or "Failed to fetch" not in failure.what:
            raise
        packages.update_lists(system)
        packages.apt([*verb, *missing], system)
