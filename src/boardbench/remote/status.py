"""The `status` verb: who holds this board, what runs on it, how hot it is and how fast. It reads, and changes nothing.

It is for a second terminal, so it is kept cheap: no service manager is asked and no lock is taken.
"""

from __future__ import annotations

from typing import Any

from . import journal, processes, reading, sensors, stamps
from .failures import BAD_INPUT, BUG, Failure
from .lease import Store
from .places import Places
from .run_state import Run
from .wire import Call


def status(args: dict[str, Any], call: Call) -> dict[str, Any]:
    """The verb: `{"boot_id", "clock", "lease", "runs", "scopes", "thermal", "cpu_policies", "devfreq"}`."""
    if args:
        raise Failure(BAD_INPUT, f"unknown argument {', '.join(sorted(map(str, args)))}", "status")
    places = call.places
    return {
        "boot_id": stamps.boot_id(places),
        "clock": stamps.now(),
        "lease": _lease(places),
        "runs": _runs(places),
        "scopes": list(journal.scope_names(places)),
        "thermal": [{key: zone[key] for key in ("type", "name", "celsius")} for zone in sensors.thermal(places)],
        "cpu_policies": [
            {key: policy[key] for key in ("policy", "cur_khz", "max_khz", "hw_max_khz")}
            for policy in sensors.cpu_policies(places)
        ],
        "devfreq": [
            {key: device[key] for key in ("name", "kind", "cur_hz", "max_hz")} for device in sensors.devfreq(places)
        ],
    }


def _lease(places: Places) -> dict[str, Any]:
    """Who holds the board and for how long yet. The file is written by rename, so no lock is needed to read it."""
    found, note = Store(places).current()
    if found is None:
        return {"held": False, "note": note}
    return {
        "held": True,
        "note": note,
        "owner": str(found["owner"]),
        "host": str(found["host"]),
        "campaign": str(found["campaign"]),
        "left_s": max(0.0, float(found["expires_boottime_s"]) - stamps.boottime_s()),
    }


def _runs(places: Places) -> list[dict[str, Any]]:
    """Every run that is staged here; a state that cannot be read is said and costs only its own entry."""
    found = []
    for name in reading.entries(places.runs):
        try:
            entry = _run(places, name)
        except Failure as failure:
            if failure.fault != BUG:  # a folder whose name is none of ours
                continue
            entry = {"run": name, "missing": failure.what}
        if entry is not None:
            found.append(entry)
    return found


def _run(places: Places, name: str) -> dict[str, Any] | None:
    run = Run(places, name)
    state = run.load_if_there()
    if state is None:
        return None
    started = run.started()
    return {
        "run": run.name,
        "campaign": state.get("campaign"),
        "phase": state.get("phase"),
        "load_runs": _load_runs(run, state, started),
        "started": started.get("started") if started is not None else None,
    }


def _load_runs(run: Run, state: dict[str, Any], started: dict[str, Any] | None) -> bool:
    if started is None or run.exit() is not None or run.rebooted(state):
        return False
    ticks = started.get("supervisor_start_time_ticks")
    return ticks is not None and processes.alive(run.places, int(started["supervisor_pid"]), int(ticks))
