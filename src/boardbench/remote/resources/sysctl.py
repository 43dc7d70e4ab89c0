"""`sysctl`: one kernel parameter by its name, as a file below /proc/sys."""

from __future__ import annotations

import re
from typing import Any

from ..failures import BAD_INPUT, Failure
from ..plans import Plan
from ..system import System
from ..things import kernel
from . import check, sysfs

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./:@-]*\Z")


def node_of(name: object) -> str:
    """The file of a parameter. With `.` first, dots separate (and `/` is a dot); with `/` first, slashes do."""
    if not isinstance(name, str) or not _NAME.match(name) or ".." in name or "//" in name:
        raise Failure(BAD_INPUT, f"{str(name)[:80]!r} is not the name of a kernel parameter", "args")
    separator = re.search(r"[./]", name)
    if separator and separator.group() == ".":
        name = name.translate(str.maketrans("./", "/."))
    return "/proc/sys/" + name


def plan(args: dict[str, Any], system: System) -> Plan:
    """Whether the parameter reads otherwise."""
    check(args, ["name", "value"], [])
    return sysfs.plan_value(node_of(args["name"]), sysfs.text_of(args["value"]), system)


def apply(args: dict[str, Any], system: System) -> None:
    """Notes the value, writes it, reads it back."""
    node = node_of(args["name"])
    system.note("kernel", node)
    kernel.write(node, sysfs.text_of(args["value"]), system)
