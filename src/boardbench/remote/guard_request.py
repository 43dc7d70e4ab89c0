"""What `start` is asked to guard against, checked, and with the fan's files as this board has them now."""

from __future__ import annotations

import math
import os
from typing import Any

from . import fan_nodes, reading
from .failures import BAD_INPUT, RIG, Failure
from .places import Places


def parse(value: Any, places: Places) -> dict[str, Any] | None:
    """The request of the supervisor's guard; None without one.

    `value`: `{"zone_types", "above_celsius", "period_s", "fan": [STEP]}`; the steps are those by which the cooling
    driver switches the fan on (`sysfs`, `fan`, `command`). Failure `rig` when the board has none of the zones: a run
    that is to be guarded does not start unguarded.
    """
    if value is None:
        return None
    if not isinstance(value, dict) or set(value) != {"zone_types", "above_celsius", "period_s", "fan"}:
        raise Failure(BAD_INPUT, f"guard is {value!r:.80}", "start", "zone_types, above_celsius, period_s, fan")
    for name in ("above_celsius", "period_s"):
        number = value[name]
        if isinstance(number, bool) or not isinstance(number, (int, float)) or not math.isfinite(number) or number <= 0:
            raise Failure(BAD_INPUT, f"{name} is {number!r:.80}", "guard", "a number above 0")
    wanted = [str(zone) for zone in value["zone_types"]]
    base = os.path.join(places.sys, "class/thermal")
    there = {reading.word(os.path.join(base, zone, "type")) for zone in reading.entries(base)}
    if not set(wanted) & there:
        shown = ", ".join(sorted(name for name in there if name)) or "none"
        raise Failure(RIG, f"the board has no zone {' or '.join(wanted)} to guard", "guard", f"it has {shown}")
    return {
        "zone_types": wanted,
        "above_celsius": float(value["above_celsius"]),
        "period_s": float(value["period_s"]),
        "fan": [_action(step, places) for step in value["fan"]],
    }


def _action(step: Any, places: Places) -> dict[str, Any]:
    args = step.get("args") if isinstance(step, dict) else None
    resource = step.get("resource") if isinstance(step, dict) else None
    if isinstance(args, dict) and resource == "command":
        return {"argv": [str(word) for word in args["argv"]]}
    if isinstance(args, dict) and resource == "sysfs":
        return {"path": places.at(str(args["path"])), "value": str(args["value"])}
    if isinstance(args, dict) and resource == "fan":
        return {"path": places.at(fan_nodes.level_node(args, places)), "value": str(args["level"])}
    raise Failure(BAD_INPUT, f"no guard can do {step!r:.80}", "guard", "steps sysfs, fan and command")
