"""The `facts` verb: what a board is and how it is now, each thing read where it acts."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from . import parsers, reading, sensors, stamps
from .failures import BAD_INPUT, Failure
from .places import Places
from .reading import Missing, Reading
from .wire import Call

_NVPMODEL_DEADLINE_S = 5.0


def facts(args: dict[str, Any], call: Call) -> dict[str, Any]:
    """All facts of this board. `args.paths`: where free space is wanted, besides `/`."""
    paths = args.get("paths", [])
    if not isinstance(paths, list) or not all(isinstance(path, str) and path.startswith("/") for path in paths):
        raise Failure(BAD_INPUT, "paths is not a list of absolute paths", "facts")
    return {"facts": read_facts(call.places, paths)}


def read_facts(places: Places, paths: list[str]) -> dict[str, Any]:
    """FACTS as docs/architecture.md has them. What cannot be read is `{"missing": why}`, or null for a name."""
    memory = parsers.meminfo(reading.word(os.path.join(places.proc, "meminfo")) or "")
    rails = sensors.power_rails(places)
    return {
        **read_identity(places),
        "model": next(iter(_device_tree(places, "model")), None),
        "compatible": _device_tree(places, "compatible"),
        "os": _os(places),
        "kernel": reading.word(os.path.join(places.proc, "sys/kernel/osrelease")),
        "arch": os.uname().machine,
        "python": ".".join(str(part) for part in sys.version_info[:3]),
        "cpu_count": _cpu_count(places),
        "memory_total_bytes": memory.get("MemTotal", {"missing": "not in meminfo"}),
        "memory_available_bytes": memory.get("MemAvailable", {"missing": "not in meminfo"}),
        "uptime_s": _uptime(places),
        "clock": stamps.now(),
        "disks": [disk(places, path) for path in dict.fromkeys(["/", *paths])],
        "service_manager": _service_manager(places),
        "thermal": sensors.thermal(places),
        "cpu_policies": sensors.cpu_policies(places),
        "devfreq": sensors.devfreq(places),
        "input_volts": sensors.input_volts(places, rails),
        "fans": sensors.fans(places),
        "power_rails": rails,
        "nvpmodel": _nvpmodel(places),
        "links": sensors.links(places),
        "virtual": virtual(places),
    }


def read_identity(places: Places) -> dict[str, str | None]:
    """By what a board is known: hostname, machine id, serial number; and which boot of it this is."""
    return {
        "hostname": reading.word(os.path.join(places.proc, "sys/kernel/hostname")),
        "machine_id": reading.word(os.path.join(places.etc, "machine-id")),
        "serial": _serial(places),
        "boot_id": boot_id(places),
    }


def boot_id(places: Places) -> str | None:
    """Differs after each boot; None when it cannot be read (which is no reboot)."""
    return reading.word(os.path.join(places.proc, "sys/kernel/random/boot_id"))


def virtual(places: Places) -> dict[str, Any] | None:
    """What a virtual board says of itself, or None on a real one."""
    content = reading.word(os.path.join(places.virtual, "status.json"))
    if content is None:
        return None
    try:
        status = json.loads(content)
        return {"kind": status["kind"], "time_scale": status["time_scale"], "sysfs": status["sysfs"]}
    except (ValueError, KeyError, TypeError) as error:
        return {"missing": f"status.json of the virtual board cannot be read: {error}"}


def _device_tree(places: Places, name: str) -> list[str]:
    for base in (os.path.join(places.proc, "device-tree"), os.path.join(places.sys, "firmware/devicetree/base")):
        try:
            return parsers.device_tree_strings(reading.raw(os.path.join(base, name)))
        except Missing:
            continue
    return []


def _serial(places: Places) -> str | None:
    from_tree = _device_tree(places, "serial-number")
    if from_tree:
        return from_tree[0]
    return parsers.cpuinfo_serial(reading.word(os.path.join(places.proc, "cpuinfo")) or "")


def _os(places: Places) -> str | None:
    content = reading.word(os.path.join(places.etc, "os-release"))
    if content is None:
        content = reading.word(places.at("/usr/lib/os-release"))
    try:
        return parsers.os_release(content or "")
    except Missing:
        return None


def _cpu_count(places: Places) -> Reading:
    try:
        return len(parsers.cpu_list(reading.text(os.path.join(places.sys, "devices/system/cpu/online"))))
    except Missing:
        count = os.cpu_count()
        return count if count else {"missing": "the kernel does not say which CPUs are online"}


def _uptime(places: Places) -> Reading:
    return reading.attempt(
        lambda: reading.parse_number((reading.text(os.path.join(places.proc, "uptime")).split() or [""])[0])
    )


def disk(places: Places, path: str) -> dict[str, Any]:
    """Free space where `path` lies, or will lie: the nearest folder above it that exists."""
    existing = places.at(path)
    while existing != places.root and not os.path.exists(existing):
        existing = os.path.dirname(existing)
    try:
        found = os.statvfs(existing)
    except OSError as error:
        why = {"missing": error.strerror or "statvfs failed"}
        return {"path": path, "free_bytes": why, "total_bytes": why, "read_only": None}
    return {
        "path": path,
        "free_bytes": found.f_bavail * found.f_frsize,
        "total_bytes": found.f_blocks * found.f_frsize,
        "read_only": bool(found.f_flag & os.ST_RDONLY),
    }


def _nvpmodel(places: Places) -> str | None:
    """The power mode of a Jetson; None elsewhere, and when the tool does not answer in time."""
    tool = places.at("/usr/sbin/nvpmodel")
    if not os.access(tool, os.X_OK):
        return None
    from . import programs

    try:
        return parsers.nvpmodel_mode(programs.run([tool, "-q"], deadline_s=_NVPMODEL_DEADLINE_S).output)
    except (Missing, Failure):
        return None


def _service_manager(places: Places) -> str:
    from . import services

    return services.kind(places)
