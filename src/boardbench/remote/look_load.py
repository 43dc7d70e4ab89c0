"""Who else works on the board: CPU use in all, busy processes by name, and on virtual boards the registered loads."""

from __future__ import annotations

import fcntl
import json
import os
import time
from dataclasses import dataclass
from typing import Any

from . import parsers, processes, reading, strays
from .places import Places
from .reading import Missing
from .services import ServiceManager

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# A process below this share of one core is background; naming all of them would hide the one that matters.
NAMED_SHARE = 0.1


@dataclass(frozen=True)
class Mark:
    """The counters at the beginning of a watch."""

    cpu: tuple[int, int] | None
    used: dict[tuple[int, int], int]
    monotonic_s: float


def begin(places: Places) -> Mark:
    """From here on the load is watched."""
    return Mark(_cpu(places), _used_ticks(places), time.monotonic())


def watch(places: Places, manager: ServiceManager, sample_s: float) -> dict[str, Any]:
    """`end` of a watch that begins now."""
    return end(places, manager, begin(places), sample_s)


def end(places: Places, manager: ServiceManager, mark: Mark, least_s: float) -> dict[str, Any]:
    """`{"cpu_busy_share", "cpu_count", "load_average", "processes", "registered", "sample_s"}` since the mark.

    Waits until that is `least_s` seconds ago. Our own call, its ancestors and the logger and workload units of runs
    are not "others".
    """
    time.sleep(max(0.0, mark.monotonic_s + least_s - time.monotonic()))
    took_s = time.monotonic() - mark.monotonic_s
    cpu_after, used_after = _cpu(places), _used_ticks(places)
    return {
        "cpu_busy_share": busy_share(mark.cpu, cpu_after),
        "cpu_count": reading.attempt(lambda: _online(places)),
        "load_average": reading.attempt(lambda: _load_average(places)),
        "processes": _others(places, manager, mark.used, used_after, took_s),
        "registered": registered(places),
        "sample_s": round(took_s, 3),
    }


def _online(places: Places) -> int:
    return len(parsers.cpu_list(reading.text(os.path.join(places.sys, "devices/system/cpu/online"))))


def _load_average(places: Places) -> reading.Number:
    return reading.parse_number(reading.text(os.path.join(places.proc, "loadavg")).split()[0])


def _cpu(places: Places) -> tuple[int, int] | None:
    """(busy, all) clock ticks of all CPUs since boot."""
    line = (reading.word(os.path.join(places.proc, "stat")) or "").split("\n", 1)[0].split()
    return cpu_ticks(line)


def cpu_ticks(fields: list[str]) -> tuple[int, int] | None:
    """(busy, all) of the `cpu` line of /proc/stat; None when it is none. Guest time is in user time already."""
    if len(fields) < 6 or fields[0] != "cpu" or not all(field.isdigit() for field in fields[1:]):
        return None
    values = [int(field) for field in fields[1:9]]
    return sum(values) - values[3] - values[4], sum(values)


def busy_share(before: tuple[int, int] | None, after: tuple[int, int] | None) -> Any:
    """The share of all CPU time that was used, 0 to 1, or why it is not known."""
    if before is None or after is None:
        return {"missing": "/proc/stat has no line for all CPUs"}
    if after[1] <= before[1]:
        return {"missing": "no clock tick went by"}
    return round(max(0, after[0] - before[0]) / (after[1] - before[1]), 4)


def _used_ticks(places: Places) -> dict[tuple[int, int], int]:
    """(pid, start time) -> clock ticks of CPU time that the process has used."""
    found = {}
    for name in os.listdir(places.proc):
        if not name.isdigit():
            continue
        try:
            text = reading.text(os.path.join(places.proc, name, "stat"))
            fields = text[text.rindex(")") + 1 :].split()
            found[(int(name), int(fields[19]))] = int(fields[11]) + int(fields[12])
        except (Missing, ValueError, IndexError):
            continue  # it ended while we looked
    return found


def _others(
    places: Places,
    manager: ServiceManager,
    before: dict[tuple[int, int], int],
    after: dict[tuple[int, int], int],
    took_s: float,
) -> list[dict[str, Any]]:
    own = processes.ancestry(places)
    busy: list[tuple[float, dict[str, Any]]] = []
    for (pid, ticks), used in after.items():
        # A process that is new since then has used all that it has used in this time.
        share = (used - before.get((pid, ticks), 0)) / TICKS_PER_S / took_s
        if share < NAMED_SHARE or pid in own:
            continue
        unit = manager.unit_of(pid)
        if strays.OURS.match(unit or ""):
            continue
        argv = processes.argv(places, pid)
        entry = {
            "pid": pid,
            "exe": processes.exe(places, pid),
            "argv0": argv[0] if argv else None,
            "script": next((word for word in argv[1:] if word.startswith("/")), None),
            "unit": unit,
            "cpu_share": round(share, 3),
        }
        busy.append((share, entry))
    return [entry for _, entry in sorted(busy, key=lambda pair: -pair[0])[:20]]


def registered(places: Places) -> list[dict[str, Any]] | None:
    """The loads that are registered on a virtual board and held by a living process; None on a real board."""
    if not os.path.isdir(places.virtual):
        return None
    folder = os.path.join(places.virtual, "load")
    found = []
    for name in reading.entries(folder):
        if name.endswith(".json") and _held(os.path.join(folder, name)):
            found.append({"name": name, "load": _load(os.path.join(folder, name))})
    return found


def _held(path: str) -> bool:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def _load(path: str) -> Any:
    try:
        return json.loads(reading.text(path))
    except (Missing, ValueError) as error:
        return {"missing": str(error)}
