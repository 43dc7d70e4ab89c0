"""Where the files of a fan are now: found by the hwmon's name and the zone's type, since numbers move between boots."""

from __future__ import annotations

import os
from typing import Any

from . import reading
from .failures import BAD_INPUT, RIG, Failure
from .places import Places

_TURNS = ("fan1_input", "rpm")  # the second one is how the tachometer driver of a Jetson calls it


def _named(places: Places, folder: str, prefix: str, key: str, wanted: str) -> str:
    """The one entry of a class folder whose file `key` says `wanted`, as the board names it."""
    base = os.path.join(places.sys, folder)
    names = [name for name in reading.entries(base) if name.startswith(prefix)]
    found = [name for name in names if reading.word(os.path.join(base, name, key)) == wanted]
    if len(found) != 1:
        seen = ", ".join(sorted({reading.word(os.path.join(base, name, key)) or "?" for name in names})) or "none"
        many = "several" if found else "no"
        raise Failure(RIG, f"there is {many} {prefix} called {wanted!r}", f"/sys/{folder}", f"this board has {seen}")
    return f"/sys/{folder}/{found[0]}"


def level_node(args: dict[str, Any], places: Places) -> str:
    """The PWM file: of the hwmon `hwmon`, or `path` itself."""
    from .resources import sysfs
    from .system import System

    if args.get("hwmon") is not None:
        return _named(places, "class/hwmon", "hwmon", "name", str(args["hwmon"])) + "/pwm1"
    path = args.get("path")
    if not isinstance(path, str):
        raise Failure(BAD_INPUT, "neither hwmon nor path is given", "args")
    return sysfs.resolve(path, System(places))


def policy_node(zone: str, places: Places) -> str:
    """The policy file of the thermal zone of this type: who may steer what cools it."""
    return _named(places, "class/thermal", "thermal_zone", "type", zone) + "/policy"


def turns_node(tachometer: str, places: Places) -> str:
    """The file that counts turns per minute."""
    folder = _named(places, "class/hwmon", "hwmon", "name", tachometer)
    for name in _TURNS:
        if os.path.exists(places.at(f"{folder}/{name}")):
            return f"{folder}/{name}"
    raise Failure(RIG, f"hwmon {tachometer!r} has no {' and no '.join(_TURNS)}", folder)
