"""`fan`: a fan's level, held by hand. The zone's policy goes to `user_space` first, else the kernel steers on."""

from __future__ import annotations

from typing import Any

from .. import fan_nodes
from ..failures import BAD_INPUT, Failure
from ..plans import Plan
from ..system import System
from ..things import kernel
from . import check, sysfs

BY_HAND = "user_space"


def _wanted(args: dict[str, Any], system: System) -> list[tuple[str, str]]:
    """The nodes and their values, in the order in which they have to be written."""
    check(args, ["level"], ["hwmon", "path", "zone"])
    level = args["level"]
    if isinstance(level, bool) or not isinstance(level, int) or not 0 <= level <= 255:
        raise Failure(BAD_INPUT, f"level is {level!r:.40}", "args", "a whole number from 0 to 255")
    found = []
    if args.get("zone") is not None:
        found.append((fan_nodes.policy_node(str(args["zone"]), system.places), BY_HAND))
    found.append((fan_nodes.level_node(args, system.places), str(level)))
    return found


def plan(args: dict[str, Any], system: System) -> Plan:
    """What reads otherwise."""
    plans = [sysfs.plan_value(node, value, system) for node, value in _wanted(args, system)]
    return Plan(tuple(change for each in plans for change in each.changes))


def apply(args: dict[str, Any], system: System) -> None:
    """Notes both values before the first write, writes them, reads them back.

    Put back newest first: the level while we still hold the fan, then the policy, by which the kernel takes it again.
    """
    wanted = _wanted(args, system)
    for node, _ in wanted:
        system.note("kernel", node)
    for node, value in wanted:
        kernel.write(node, value, system)
