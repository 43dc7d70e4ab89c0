"""The kinds of steps. A kind is a module with

- `plan(args, system) -> Plan`: reads, changes nothing, and says what differs. Failure `bad-input` for wrong args.
- `apply(args, system) -> None`: notes each thing in the journal, then changes it.
- `blobs(args, system) -> list[str]` (optional): the blobs that `apply` would need from the controller now.
- `finish(args, system) -> None` (optional): what must hold besides an empty plan, changed or not.

After `apply` the step asks `plan` again: what still differs is the step's failure.
"""

from __future__ import annotations

import importlib
from typing import Any, Iterable

from ..failures import BAD_INPUT, Failure

KINDS = (
    "directory",
    "file",
    "package",
    "unit",
    "sysfs",
    "sysctl",
    "governor",
    "user",
    "command",
    "payload",
    "fan",
    "unit_mask",
)


def load(kind: object) -> Any:
    """The module of a resource; Failure `bad-input` names those that exist."""
    if kind not in KINDS:
        raise Failure(BAD_INPUT, f"unknown resource {str(kind)[:80]!r}", "step", f"one of {', '.join(KINDS)}")
    return importlib.import_module(f".{kind}", __name__)


def check(args: dict[str, Any], required: Iterable[str], optional: Iterable[str]) -> None:
    """Refuses arguments that a resource does not know, and the absence of one that it needs."""
    required = set(required)
    allowed = required | set(optional) | {"state"}
    unknown = sorted(set(args) - allowed)
    if unknown:
        raise Failure(
            BAD_INPUT, f"unknown argument {', '.join(unknown)}", "args", f"known: {', '.join(sorted(allowed))}"
        )
    missing = sorted(name for name in required if args.get(name) is None)
    if missing:
        raise Failure(BAD_INPUT, f"argument {', '.join(missing)} is missing", "args")
    if args.get("state", "present") not in ("present", "absent"):
        raise Failure(BAD_INPUT, f"state is {str(args['state'])[:80]!r}", "args", "present or absent")


def absent(args: dict[str, Any]) -> bool:
    """Whether the thing is to be gone."""
    return args.get("state") == "absent"


def absolute(args: dict[str, Any], name: str = "path") -> str:
    """A path argument, normal and absolute; Failure `bad-input` for any other."""
    import os

    path = args[name]
    if not isinstance(path, str) or not path.startswith("/") or "\0" in path or ".." in path.split("/"):
        raise Failure(BAD_INPUT, f"{name} {str(path)[:120]!r} is not an absolute path", "args", "without `..`")
    return os.path.normpath(path)
