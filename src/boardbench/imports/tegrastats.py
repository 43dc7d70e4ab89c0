"""One line of tegrastats, of any JetPack: readings by name with units; groups that are not there give nothing.

Temperatures (`X@nC`) and rails (`X a/b`) may have equal names, so each has its unit in its name. Of `a/b` only `a` is
taken: `b` is a mean since the program started. `off` and -256 degC (an engine without power) are missing readings.
"""

from __future__ import annotations

import calendar
import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from boardbench.imports.model import Missing, Reading

OFF = Missing("off")
_STAMP = re.compile(r"(\d{2})-(\d{2})-(\d{4}) (\d{2}):(\d{2}):(\d{2})(?=\s)")
_KIB = {"kB": 1.0 / 1024.0, "MB": 1.0, "GB": 1024.0}
_N = r"(-?\d{1,9}(?:\.\d{1,6})?)"
_NAME = r"([A-Za-z][A-Za-z0-9_]*)"
_GROUPS = re.compile(
    rf"(?P<memory>\b(?:RAM|SWAP|IRAM)\s+\d+/\d+\s*[kMG]B(?:\s*\((?:lfb|cached)[^)]*\))?)(?=\s|$)"
    r"|(?P<cpu>\b(?:CPU|cpu)\s+\[[^\]]*\](?:@\d+)?)"
    rf"|(?P<temperature>(?<!\S)[A-Za-z][A-Za-z0-9_.-]*@{_N}C(?=\s|$))"
    rf"|(?P<rail>(?<!\S){_NAME}\s+{_N}(?:mW)?/{_N}(?:mW)?(?=\s|$))"
    rf"|(?P<engine>(?<!\S){_NAME}\s+(?:off|(?:\d{{1,3}}%)?@\[[\d,\s]*\]|(?:\d{{1,3}}%)?@\d+|\d{{1,3}}%|\d{{1,6}})(?=\s|$))"
)
_MEMORY = re.compile(
    r"(RAM|SWAP|IRAM)\s+(\d{1,9})/(\d{1,9})\s*([kMG]B)(?:\s*\((lfb|cached) ?(\d{1,9})(?:x(\d{1,9}))?([kMG]B)\))?"
)
_ENGINE = re.compile(r"(?:(\d{1,3})%)?(?:@(?:\[([\d,\s]*)\]|(\d{1,6})))?|(\d{1,6})|off")
SENSOR_OFF_CELSIUS = -256.0


@dataclass(frozen=True)
class TegraLine:
    """What a line says. `stamp`: seconds of the board's local wall clock as if it were UTC, None without a prefix.

    `odd`: readings that are kept but need to be looked at (negative power). `unread`: what no rule fits.
    """

    stamp: float | None
    readings: Mapping[str, Reading]
    odd: tuple[str, ...] = ()
    unread: str = ""

    @property
    def unprivileged(self) -> bool:
        """Whether the sampler ran without root: it names the GPU's load, but no clock of it."""
        return "gpu_load_percent" in self.readings and not any(
            name.startswith("gpu") and name.endswith("_cur_hz") for name in self.readings
        )


Found = list[tuple[str, Reading]]


def looks_like(text: str) -> bool:
    """Whether a line is one of tegrastats."""
    return re.match(r"\s*(?:\d\d-\d\d-\d{4} \d\d:\d\d:\d\d\s+)?RAM\s+\d+/\d+[kMG]B", text) is not None


def parse_line(text: str) -> TegraLine | None:
    """The readings in a line; None when it is none of tegrastats."""
    if not looks_like(text):
        return None
    text = text.strip()
    prefix = _STAMP.match(text)
    stamp = _seconds(prefix) if prefix else None
    rest = text[prefix.end() :] if prefix else text
    readings: dict[str, Reading] = {}
    odd: list[str] = []
    unread, at = [], 0
    for match in _GROUPS.finditer(rest):
        unread.append(rest[at : match.start()])
        at = match.end()
        kind = str(match.lastgroup)
        for name, value in _group(kind, match[kind]):
            known, count = name, 1
            while known in readings:  # numbered, as in our own logs
                count += 1
                known = f"{name}_{count}"
            readings[known] = value
            if kind == "rail" and isinstance(value, float) and value < 0:
                odd.append(f"{known} reads {value:g}")
    unread.append(rest[at:])
    return TegraLine(stamp, readings, tuple(odd), " ".join(" ".join(unread).split()))


@functools.lru_cache(maxsize=1 << 16)
def _group(kind: str, text: str) -> tuple[tuple[str, Reading], ...]:
    """The readings of one group. Groups repeat from line to line, so they are kept."""
    readers: dict[str, Callable[[str], Found]] = {
        "memory": _memory, "cpu": _cpu, "temperature": _temperature, "rail": _rail, "engine": _engine,
    }  # fmt: skip
    return tuple(readers[kind](text))


def _seconds(match: re.Match[str]) -> float | None:
    month, day, year, hour, minute, second = (int(part) for part in match.groups())
    try:
        return float(calendar.timegm(datetime(year, month, day, hour, minute, second).timetuple()))
    except ValueError:
        return None


def _memory(text: str) -> Found:
    match = _MEMORY.match(text)
    if match is None:
        return []
    name, used, total, unit, what, count, size, part_unit = match.groups()
    low, factor = name.lower(), _KIB[unit]
    found: Found = [(f"{low}_used_mib", float(used) * factor), (f"{low}_total_mib", float(total) * factor)]
    if what == "cached":
        found.append((f"{low}_cached_mib", float(count) * _KIB[part_unit]))
    elif what == "lfb":
        blocks, block = (float(count), float(size)) if size is not None else (1.0, float(count))
        found.append((f"{low}_largest_free_blocks", blocks))
        found.append((f"{low}_largest_free_block_mib", block * _KIB[part_unit]))
    return found


def _cpu(text: str) -> Found:
    inner, _, tail = text.partition("[")[2].partition("]")
    shared = tail.removeprefix("@")
    found: Found = []
    for index, core in enumerate(inner.split(",")):
        load, _, clock = core.strip().partition("@")
        clock = clock or shared
        if load == "off":
            found += [(f"cpu{index}_load_percent", OFF), (f"cpu{index}_cur_khz", OFF)]
            continue
        if re.fullmatch(r"\d{1,3}%", load):
            found.append((f"cpu{index}_load_percent", float(load[:-1])))
        if re.fullmatch(r"\d{1,6}", clock):
            found.append((f"cpu{index}_cur_khz", float(clock) * 1e3))
    return found


def _temperature(text: str) -> Found:
    name, _, value = text.rpartition("@")
    celsius = float(value[:-1])
    off = celsius == SENSOR_OFF_CELSIUS
    return [(f"{name}_celsius", Missing("sensor off (-256)") if off else celsius)]


def _rail(text: str) -> Found:
    name, now = text.split()[0], text.split()[1].partition("/")[0].removesuffix("mW")
    return [(f"{name}_watts", float(now) / 1000.0)]


_ENGINE_NAMES = {"GR3D_FREQ": "gpu", "GR3D": "gpu", "EMC_FREQ": "emc", "EMC": "emc"}


def _engine(text: str) -> Found:
    """`GR3D_FREQ 99%@[612]`, `EMC_FREQ @2133`, `VIC_FREQ 729`, `APE 174`, `NVDEC off`."""
    label, value = text.split(maxsplit=1)
    name = _ENGINE_NAMES.get(label, label.removesuffix("_FREQ").lower())
    if value == "off":
        return [(f"{name}_cur_hz", OFF)]
    match = _ENGINE.fullmatch(value)
    if match is None:
        return []
    load, several, clock, alone = match.groups()
    found: Found = [] if load is None else [(f"{name}_load_percent", float(load))]
    if several is not None:
        clocks = [part.strip() for part in several.split(",") if part.strip()]
        for index, part in enumerate(clocks):
            found.append((f"{name}{index if len(clocks) > 1 else ''}_cur_hz", float(part) * 1e6))
    elif clock is not None or alone is not None:
        found.append((f"{name}_cur_hz", float(clock or alone) * 1e6))
    return found
