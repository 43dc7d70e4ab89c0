"""`unit_mask`: a unit that nobody can start until the next boot. For one that the board does not have, nothing."""

from __future__ import annotations

from typing import Any

from ..plans import Change, Plan
from ..services import check_unit_name
from ..system import System
from ..things import unit_masks
from . import check


def plan(args: dict[str, Any], system: System) -> Plan:
    """Whether it is masked."""
    check(args, ["name"], [])
    name = check_unit_name(str(args["name"]))
    if unit_masks.masked(name, system) or not system.services.state(name).exists:
        return Plan()
    return Plan((Change(f"unit {name}", "may start", "masked"),))


def apply(args: dict[str, Any], system: System) -> None:
    """Notes it, and masks it."""
    name = check_unit_name(str(args["name"]))
    system.note("unit_mask", name)
    unit_masks.mask(name, system)
