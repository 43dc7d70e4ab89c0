"""Programs of earlier runs that still run: found by what they are, never by a pattern on a command line; then ended.

A stray that belongs to a service is stopped as a service: killed by pid, a restarting service comes back at once.
"""

from __future__ import annotations

import glob
import json
import os
import re
import time
from dataclasses import dataclass, field
from typing import Any, Callable

from . import journal, processes, services
from .failures import BAD_INPUT, Failure
from .places import Places
from .processes import Process
from .system import System
from .wire import Call

OURS = re.compile(r"boardbench-(run|logger)-(?P<run>.+)\.service\Z")
INTERPRETER = re.compile(
    r"(python|pypy|perl|ruby|lua|php|tclsh)[0-9.]*\Z|(ba|da|a|z|k)?sh\Z|busybox\Z|node(js)?\Z|env\Z"
)
# What such a service runs is somebody's login or job, not the service itself: stopping it would cut the board off.
SHARED_UNIT = re.compile(
    r"(sshd?|dropbear|cron|crond|atd|dbus|dbus-broker|docker|containerd|NetworkManager)\.service\Z"
    r"|(user|getty|serial-getty|sshd?|container-getty)@.*\.service\Z|(console-getty|systemd-[a-z-]+)\.service\Z"
)
SETTLE_S = 0.5


@dataclass(frozen=True)
class Harness:
    """What counts as a program of the harness: real paths of programs and scripts, and names of units."""

    executables: frozenset[str] = frozenset()
    scripts: frozenset[str] = frozenset()
    units: frozenset[str] = frozenset()

    def merged(self, other: Harness) -> Harness:
        """Both together."""
        return Harness(self.executables | other.executables, self.scripts | other.scripts, self.units | other.units)


@dataclass
class Stray:
    """One found process, or a service of the harness that has none just now (`pid` is None: it restarts)."""

    pid: int | None
    start_time_ticks: int | None
    exe: str | None
    argv0: str | None
    unit: str | None
    how: str
    state: str
    ended: bool = False
    why: str = ""
    stop_unit: bool = field(default=False, repr=False)

    def as_dict(self) -> dict[str, Any]:
        """STRAY as the wire has it."""
        names = ("pid", "start_time_ticks", "exe", "argv0", "unit", "how", "state", "ended", "why")
        return {name: getattr(self, name) for name in names}


def strays(args: dict[str, Any], call: Call) -> dict[str, Any]:
    """The verb: `{"found": [STRAY]}`; with `end` each was ended or says why not.

    `except_runs`: runs to leave alone. `scope`: where an enabled service that is stopped is noted, for `restore`.
    """
    harness = parse_harness(args.get("harness")).merged(installed_harness(call.places))
    grace_s = args.get("grace_s", 5.0)
    if isinstance(grace_s, bool) or not isinstance(grace_s, (int, float)) or grace_s < 0:
        raise Failure(BAD_INPUT, f"grace_s is {grace_s!r:.80}", "strays", "seconds, from 0 up")
    except_runs = frozenset(str(run) for run in args.get("except_runs") or [])
    manager = services.detect(call.places)
    found = find(call.places, manager, harness, except_runs)
    if args.get("end"):
        scope = args.get("scope")
        note_unit = noter(call.places, manager, journal.check_scope(scope)) if scope is not None else None
        end(call.places, manager, found, float(grace_s), note_unit)
        verify(call.places, manager, harness, except_runs, found)
    return {"found": [stray.as_dict() for stray in found]}


def noter(places: Places, manager: services.ServiceManager, scope: str) -> Callable[[str], None]:
    """A function that notes a unit's state in a scope's journal, so that `restore` starts it again."""

    def note(unit: str) -> None:
        with journal.Lock(places):
            System(places, journal=journal.Journal(places, scope), services=manager).note("unit", unit)

    return note


def parse_harness(value: Any, where: str = "harness") -> Harness:
    """HARNESS of the wire. Failure `bad-input` for a path that is not absolute."""
    if value is None:
        return Harness()
    if not isinstance(value, dict) or set(value) - {"executables", "scripts", "units"}:
        raise Failure(BAD_INPUT, f"a harness has executables, scripts and units, not {value!r:.200}", where)
    paths: dict[str, frozenset[str]] = {}
    for name in ("executables", "scripts"):
        entries = [str(entry) for entry in value.get(name) or []]
        for entry in entries:
            if not entry.startswith("/"):
                raise Failure(BAD_INPUT, f"{name}: {entry!r} is not an absolute path", where)
        paths[name] = frozenset(entries) | frozenset(os.path.realpath(entry) for entry in entries)
    units = frozenset(services.check_unit_name(str(unit)) for unit in value.get("units") or [])
    return Harness(paths["executables"], paths["scripts"], units)


def installed_harness(places: Places) -> Harness:
    """What the installed payloads say about themselves."""
    found = Harness()
    for path in sorted(glob.glob(os.path.join(glob.escape(places.payload_records), "*.json"))):
        try:
            with open(path, encoding="utf-8") as file:
                record = json.load(file)
        except ValueError:
            raise Failure(
                "rig", "the record of an installed payload cannot be read", path, "install it again"
            ) from None
        found = found.merged(parse_harness(record.get("harness"), path))
    return found


def find(
    places: Places, manager: services.ServiceManager, harness: Harness, except_runs: frozenset[str]
) -> list[Stray]:
    """Every stray that runs now. Our own call and its ancestors are none."""
    own = processes.ancestry(places)
    own_units = {unit for unit in (manager.unit_of(pid) for pid in own) if unit}
    records = _records(places, except_runs)
    found = []
    for process in processes.each(places):
        if process.pid in own:
            continue
        unit = manager.unit_of(process.pid)
        ours = OURS.match(unit or "")
        if ours and ours.group("run") in except_runs:
            continue
        how = _how(places, process, unit, harness, records)
        if how:
            found.append(_stray(places, process, unit, how, bool(unit) and unit not in own_units))
    return found + _without_process(manager, harness, found)


def _stray(places: Places, process: Process, unit: str | None, how: str, may_stop: bool) -> Stray:
    argv = processes.argv(places, process.pid)
    return Stray(
        pid=process.pid,
        start_time_ticks=process.start_time_ticks,
        exe=processes.program(places, process.pid),
        argv0=argv[0] if argv else None,
        unit=unit,
        how=how,
        state=process.state,
        stop_unit=may_stop and not SHARED_UNIT.match(unit or ""),
    )


def _how(
    places: Places, process: Process, unit: str | None, harness: Harness, records: dict[tuple[int, int], str]
) -> str | None:
    if unit and (unit in harness.units or OURS.match(unit)):
        return "unit"
    exe = processes.program(places, process.pid)
    if exe and (exe in harness.executables):
        return "executable"
    if exe and harness.scripts and INTERPRETER.match(os.path.basename(exe)):
        folder = processes.cwd(places, process.pid) or "/"
        for argument in processes.argv(places, process.pid)[1:]:
            path = os.path.normpath(os.path.join(folder, argument))
            if path in harness.scripts or os.path.realpath(path) in harness.scripts:
                return "script"
    if (process.pid, process.start_time_ticks) in records:
        return "record"
    return None


def _records(places: Places, except_runs: frozenset[str]) -> dict[tuple[int, int], str]:
    """Pid and start time of what earlier runs have started, from their records."""
    found = {}
    for path in glob.glob(os.path.join(glob.escape(places.started), "*.json")):
        try:
            with open(path, encoding="utf-8") as file:
                record = json.load(file)
            if record["run"] not in except_runs:
                found[(int(record["pid"]), int(record["start_time_ticks"]))] = str(record["run"])
        except FileNotFoundError:
            continue
        except (ValueError, KeyError, TypeError):
            raise Failure("bug", "a record of a started process cannot be read", path) from None
    return found


def _without_process(manager: services.ServiceManager, harness: Harness, found: list[Stray]) -> list[Stray]:
    """Services of the harness that are active, but between two lives just now."""
    seen = {stray.unit for stray in found}
    more = []
    for unit in sorted(harness.units - {unit for unit in seen if unit}):
        state = manager.state(unit)
        if state.exists and state.active:
            more.append(Stray(None, None, None, None, unit, "unit", state.sub_state, stop_unit=True))
    return more


def end(
    places: Places,
    manager: services.ServiceManager,
    found: list[Stray],
    grace_s: float,
    note_unit: Callable[[str], None] | None,
) -> None:
    """Ends all of them; each then says `ended` and `why`.

    `note_unit(unit)` is called before an enabled service is stopped, so that it is started again at the end.
    """
    failed: dict[str, str] = {}
    stopped: dict[str, str] = {}
    for unit in sorted({stray.unit for stray in found if stray.unit and stray.stop_unit}):
        try:
            stopped[unit] = _stop_unit(manager, unit, note_unit)
        except Failure as failure:
            failed[unit] = str(failure)
    wanted = [
        (stray.pid, stray.start_time_ticks)
        for stray in found
        if stray.pid is not None and stray.start_time_ticks is not None
    ]
    endings = processes.end_all(places, wanted, grace_s)
    for stray in found:
        unit = stray.unit or ""
        if stray.pid is None:
            stray.ended, stray.why = unit not in failed, failed.get(unit) or stopped.get(unit, "")
            continue
        ending = endings[stray.pid]
        stray.ended = ending.ended and (unit not in failed or not stray.stop_unit)
        stray.why = "; ".join(part for part in (stopped.get(unit, ""), failed.get(unit, ""), ending.why) if part)


def _stop_unit(manager: services.ServiceManager, unit: str, note_unit: Callable[[str], None] | None) -> str:
    state = manager.state(unit)
    permanent = state.enabled and not OURS.match(unit)
    if permanent and note_unit is not None:
        note_unit(unit)
    manager.stop(unit)
    if OURS.match(unit):
        manager.remove_transient(unit)
        return "unit of an earlier run stopped"
    if not permanent:
        return "service stopped"
    return "enabled service stopped, to be started again" if note_unit else "enabled service stopped, not noted"


def verify(
    places: Places,
    manager: services.ServiceManager,
    harness: Harness,
    except_runs: frozenset[str],
    found: list[Stray],
) -> None:
    """Looks once more: whoever is there again was not ended, and is added to `found`."""
    if not found:
        return
    time.sleep(SETTLE_S)
    for stray in find(places, manager, harness, except_runs):
        known = [old for old in found if (old.pid, old.start_time_ticks) == (stray.pid, stray.start_time_ticks)]
        if known and not known[0].ended:
            continue
        stray.why = "it came back: something starts it again"
        found.append(stray)
