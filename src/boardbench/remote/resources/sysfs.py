"""`sysfs`: one value of a kernel node, written, and read back."""

from __future__ import annotations

import fnmatch
import os
from typing import Any

from .. import reading
from ..failures import BAD_INPUT, RIG, Failure
from ..plans import Change, Plan
from ..reading import Missing
from ..system import System
from ..things import kernel
from . import absolute, check

# The last one is the stand-in, on virtual boards only, for the hand that switches a fan.
_ROOTS = ("/sys/", "/proc/sys/", "/run/boardbench-virtual/")


def resolve(path: str, system: System) -> str:
    """The one node that `path` names (it may hold one `*`). Failure `rig` when it matches none or several."""
    if not path.startswith(_ROOTS):
        raise Failure(BAD_INPUT, f"{path!r} is not below /sys or /proc/sys", "args")
    stars = path.count("*")
    if stars > 1 or any(mark in path for mark in "?[]"):
        raise Failure(BAD_INPUT, f"{path!r} has more than one `*`, or another pattern", "args", "one `*` at most")
    if not stars:
        return path
    head, _, tail = path.partition("*")
    folder, _, prefix = head.rpartition("/")
    suffix, slash, rest = tail.partition("/")
    names = reading.entries(system.places.at(folder))
    found = [f"{folder}/{name}{slash}{rest}" for name in names if fnmatch.fnmatchcase(name, f"{prefix}*{suffix}")]
    found = [node for node in found if os.path.exists(system.places.at(node))]
    if len(found) != 1:
        saw = ", ".join(found[:5]) if found else "nothing"
        raise Failure(RIG, f"must match exactly one node, and matches {saw}", path, "name the node more closely")
    return found[0]


def text_of(value: Any) -> str:
    """The value as it is written; a YAML `on` or `yes` is refused, because nobody meant True."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise Failure(BAD_INPUT, f"value is {value!r}", "args", "a number, or a text in quotes")
    return str(value)


def plan(args: dict[str, Any], system: System) -> Plan:
    """Whether the node reads otherwise; one that cannot be read is a Failure, because it could not be put back."""
    check(args, ["path", "value"], [])
    return plan_value(resolve(absolute(args), system), text_of(args["value"]), system)


def plan_value(node: str, value: str, system: System) -> Plan:
    """The same for a node that is already resolved."""
    try:
        now = kernel.read(node, system)
    except Missing as missing:
        raise Failure(RIG, f"cannot be read: {missing.why}", node) from missing
    return Plan() if kernel.equal(now, kernel.value_in(value)) else Plan((Change(node, now, value),))


def apply(args: dict[str, Any], system: System) -> None:
    """Notes the value, writes it, reads it back."""
    node = resolve(absolute(args), system)
    system.note("kernel", node)
    kernel.write(node, text_of(args["value"]), system)
