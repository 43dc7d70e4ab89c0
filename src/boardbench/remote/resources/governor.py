"""`governor`: the CPU frequency governor of all policies, or of those that are named."""

from __future__ import annotations

from typing import Any

from .. import reading
from ..failures import BAD_INPUT, RIG, Failure
from ..plans import Plan
from ..system import System
from ..things import kernel
from . import check, sysfs

_BASE = "/sys/devices/system/cpu/cpufreq"


def _policies(args: dict[str, Any], system: System) -> list[str]:
    present = [name for name in reading.entries(system.places.at(_BASE)) if name.startswith("policy")]
    if not present:
        raise Failure(RIG, "this board has no CPU frequency policies", _BASE, "leave the step out with `when`")
    wanted = args.get("policies", "all")
    if wanted == "all":
        return present
    if not isinstance(wanted, list) or not wanted:
        raise Failure(BAD_INPUT, f"policies is {wanted!r}", "args", "`all`, or a list like [policy0]")
    unknown = [str(name) for name in wanted if name not in present]
    if unknown:
        raise Failure(RIG, f"no {', '.join(unknown)} on this board", _BASE, f"it has {', '.join(present)}")
    return [str(name) for name in wanted]


def _nodes(args: dict[str, Any], system: System) -> list[str]:
    """The governor files; Failure when a policy does not know the governor, with those that it knows."""
    check(args, ["governor"], ["policies"])
    nodes = []
    for policy in _policies(args, system):
        known = reading.word(system.places.at(f"{_BASE}/{policy}/scaling_available_governors"))
        if known is not None and args["governor"] not in known.split():
            advice = f"it knows {', '.join(known.split())}"
            raise Failure(RIG, f"{policy} does not know the governor {args['governor']!r}", _BASE, advice)
        nodes.append(f"{_BASE}/{policy}/scaling_governor")
    return nodes


def plan(args: dict[str, Any], system: System) -> Plan:
    """The policies with another governor."""
    plans = [sysfs.plan_value(node, str(args["governor"]), system) for node in _nodes(args, system)]
    return Plan(tuple(change for each in plans for change in each.changes))


def apply(args: dict[str, Any], system: System) -> None:
    """Writes the governor of each policy that has another one, and reads it back."""
    for node in _nodes(args, system):
        if sysfs.plan_value(node, str(args["governor"]), system).changes:
            system.note("kernel", node)
            kernel.write(node, str(args["governor"]), system)
