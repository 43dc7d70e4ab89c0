"""Pure parsers: text of the kernel or of a tool -> value. No file is opened here; each has its cases in the tests."""

from __future__ import annotations

import re
from typing import Any

from .reading import Missing, Reading, parse_number

GPU_NODES = ("gv11b", "gp10b", "ga10b", "gb10b", "gpu", "mali")
NPU_NODES = ("npu", "rknpu")
_ABSOLUTE_ZERO_AND_MORE = -100.0
_HOTTEST_CELSIUS = 200.0


def device_tree_strings(content: bytes) -> list[str]:
    """A device tree property: strings, each ended by NUL."""
    return [part.decode("utf-8", "replace").strip() for part in content.split(b"\0") if part.strip()]


def os_release(content: str) -> str:
    """PRETTY_NAME of /etc/os-release, or NAME and VERSION_ID; Missing when it says neither."""
    fields = {}
    for line in content.splitlines():
        key, separator, value = line.strip().partition("=")
        if separator and not key.startswith("#"):
            fields[key] = value.strip().strip("\"'")
    name = fields.get("PRETTY_NAME") or " ".join(filter(None, (fields.get("NAME"), fields.get("VERSION_ID"))))
    if not name:
        raise Missing("no name in os-release")
    return name


def cpu_list(content: str) -> list[int]:
    """`0-3,6` or `0 1 2 3` as numbers."""
    cpus: list[int] = []
    for part in content.replace(",", " ").split():
        first, dash, last = part.partition("-")
        try:
            cpus.extend(range(int(first), int(last if dash else first) + 1))
        except ValueError:
            raise Missing(f"not a list of CPUs: {content[:40]!r}") from None
    return cpus


def frequencies(content: str) -> list[int]:
    """A ladder of frequencies on one line, ascending; words that are no numbers (`<unsupported>`) are left out."""
    return sorted(int(part) for part in content.split() if part.isdigit())


def meminfo(content: str) -> dict[str, int]:
    """/proc/meminfo in bytes."""
    found = {}
    for line in content.splitlines():
        name, _, rest = line.partition(":")
        fields = rest.split()
        if fields and fields[0].isdigit():
            found[name.strip()] = int(fields[0]) * (1024 if fields[1:] == ["kB"] else 1)
    return found


def celsius(content: str) -> float:
    """A thermal zone's milli-degrees. Missing for what no chip can have: the kernel's way to say `switched off`."""
    value = parse_number(content) / 1000
    if not _ABSOLUTE_ZERO_AND_MORE <= value <= _HOTTEST_CELSIUS:
        raise Missing(f"sensor off or not a temperature: {content.strip()[:20]}")
    return round(value, 3)


def numbered(names: list[str]) -> list[str]:
    """Unique names: the second `x` becomes `x_2`, the third `x_3`."""
    seen: dict[str, int] = {}
    unique = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        unique.append(name if seen[name] == 1 else f"{name}_{seen[name]}")
    return unique


def devfreq_kind(name: str, node_name: str | None) -> str | None:
    """`gpu`, `npu`, or None for another device: by the device tree node's name, else by the device's own."""
    for word in (node_name, name):
        bare = re.sub(r"@.*", "", (word or "").lower())
        tail = bare.rpartition(".")[2]
        for kind, known in (("npu", NPU_NODES), ("gpu", GPU_NODES)):
            if tail in known or any(tail.startswith(node + "-") for node in known):
                return kind
    return None


def nvpmodel_mode(output: str) -> str:
    """The mode's name in what `nvpmodel -q` prints; warnings may stand before it."""
    match = re.search(r"^NV Power Mode:\s*(\S.*?)\s*$", output, re.MULTILINE)
    if not match:
        raise Missing("no power mode in the answer of nvpmodel")
    return match.group(1)


def watts(volts: Reading, amperes: Reading) -> Reading:
    """The product, or why there is none."""
    if isinstance(volts, dict):
        return dict(volts)
    if isinstance(amperes, dict):
        return dict(amperes)
    return round(volts * amperes, 6)


def link_speed(content: str) -> int:
    """Mbit/s; -1 is how the kernel says that it does not know."""
    value = parse_number(content)
    if value <= 0:
        raise Missing("link down or speed unknown")
    return int(value)


def cpuinfo_serial(content: str) -> str | None:
    """The `Serial` line that some boards' kernels have in /proc/cpuinfo."""
    match = re.search(r"^Serial\s*:\s*([0-9a-fA-F]+)\s*$", content, re.MULTILINE)
    return match.group(1) if match and match.group(1).strip("0") else None


def fact_at(facts: dict[str, Any], dotted: str) -> Any:
    """The value of a fact by its dotted name; KeyError when there is none."""
    value: Any = facts
    for key in dotted.split("."):
        if not isinstance(value, dict):
            raise KeyError(dotted)
        value = value[key]
    return value
