"""A value of the running kernel: a file below /sys or /proc. A reboot puts it back by itself."""

from __future__ import annotations

import errno
import os
import re
from typing import Any

from .. import reading
from ..failures import RIG, Failure
from ..reading import Missing
from ..stamps import boot_id
from ..system import System
from . import Restored

_CHOICE = re.compile(r"(?:^|\s)\[([^\]\s]+)\](?=\s|$)")
_WRITE_ERRORS = {
    errno.EINVAL: "EINVAL: the kernel does not take this value",
    errno.EACCES: "EACCES: writing is not permitted",
    errno.EPERM: "EPERM: writing is not permitted",
    errno.ENOENT: "ENOENT: there is no such node",
    errno.EBUSY: "EBUSY: the kernel does not change it now",
    errno.EROFS: "EROFS: it is mounted read-only",
}


def value_in(text: str) -> str:
    """What is in force: white space evened out, and of a list of choices (`a [b] c`) the chosen one."""
    choice = _CHOICE.search(text)
    return choice.group(1) if choice and len(text.split()) > 1 else " ".join(text.split())


def equal(one: str, other: str) -> bool:
    """Whether two values mean the same; numbers are compared as numbers."""
    if one == other:
        return True
    try:
        return reading.parse_number(one) == reading.parse_number(other)
    except Missing:
        return False


def read(name: str, system: System) -> str:
    """The value in force now; Missing when it cannot be read."""
    return value_in(reading.text(system.places.at(name)))


def write(name: str, value: str, system: System) -> None:
    """Writes a value in one write, and reads it back. Failure `rig` names the kernel's refusal or the other value."""
    try:
        fd = os.open(system.places.at(name), os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
        try:
            os.write(fd, value.encode() + b"\n")
        finally:
            os.close(fd)
    except OSError as error:
        code = error.errno or 0
        why = _WRITE_ERRORS.get(code, f"{errno.errorcode.get(code, code)}: {error.strerror}")
        raise Failure(RIG, f"cannot write {value!r}: {why}", name) from error
    try:
        now = read(name, system)
    except Missing as missing:
        raise Failure(RIG, f"wrote {value!r}, but it cannot be read back: {missing.why}", name) from missing
    if not equal(now, value):
        raise Failure(RIG, f"wrote {value!r}, but it reads {now!r}", name, "the driver limits or rounds it")


def snapshot(name: str, system: System) -> dict[str, Any]:
    """The value with the boot it belongs to."""
    try:
        return {"value": read(name, system), "boot_id": _boot(system)}
    except Missing as missing:
        raise Failure(RIG, f"cannot be read ({missing.why}), so a change could not be put back", name) from missing


def _boot(system: System) -> str | None:
    try:
        return boot_id(system.places)
    except OSError:
        return None


def restore(name: str, state: dict[str, Any], system: System, _files: str) -> Restored:
    """Writes the noted value back unless it reads so already."""
    try:
        now = read(name, system)
    except Missing as missing:
        return Restored("missing", "missing", False, f"cannot be read: {missing.why}")
    wanted = str(state["value"])
    boot = _boot(system)
    rebooted = bool(boot and state.get("boot_id") and boot != state["boot_id"])
    if equal(now, wanted):
        return Restored(now, now, True, "the board has rebooted since" if rebooted else "")
    try:
        write(name, wanted, system)
    except Failure as failure:
        return Restored(now, _now(name, system), False, failure.what)
    return Restored(now, _now(name, system), True)


def _now(name: str, system: System) -> str:
    try:
        return read(name, system)
    except Missing as missing:
        return f"missing ({missing.why})"
