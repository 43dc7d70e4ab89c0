"""The verbs that put things back: `restore` a scope, list the `scopes` that are left, `purge` what is ours."""

from __future__ import annotations

import glob
import os
import shutil
from typing import Any

from . import things
from .failures import RIG, Failure
from .journal import Journal, Lock, check_scope, scope_names
from .places import Places
from .staged import staged
from .system import System
from .wire import Call

_VALUE_KINDS = {
    "kernel": "",
    "path": "",
    "tree": "folder ",
    "unit": "unit ",
    "package": "package ",
    "user": "user ",
    "unit_mask": "mask of ",
}


def restore(args: dict[str, Any], call: Call) -> dict[str, Any]:
    """Puts back all that the scope has changed, newest first. Nothing to put back is a success."""
    scope = check_scope(args.get("scope"))
    with Lock(call.places):
        system = System(call.places, journal=Journal(call.places, scope), remaining_s=call.remaining_s)
        return {"restored": restore_scope(system, call.phase)}


def restore_scope(system: System, tell: Any = None) -> list[dict[str, Any]]:
    """The work of `restore`: one entry a thing. The journal goes only when every thing reads as noted."""
    journal = system.journal
    assert journal is not None
    restored = []
    for note in reversed(journal.notes):
        kind, name = str(note["kind"]), str(note["name"])
        if tell is not None:
            tell("restore", f"{_VALUE_KINDS.get(kind, '')}{name}")
        try:
            outcome = things.load(kind).restore(name, note["state"], system, journal.files)
        except (Failure, OSError) as error:
            # One thing that cannot be put back must not keep the others from it.
            outcome = things.Restored("unknown", "unknown", False, str(error))
        restored.append(
            {
                "what": f"{_VALUE_KINDS.get(kind, '')}{name}",
                "before": outcome.before,
                "after": outcome.after,
                "ok": outcome.ok,
                "why": outcome.why,
            }
        )
    if journal.torn:
        why = "its last line was cut off; notes come before changes, so nothing had happened for it"
        restored.append(
            {"what": f"journal {journal.scope}", "before": "torn", "after": "whole", "ok": True, "why": why}
        )
    if all(entry["ok"] for entry in restored):
        journal.remove()
    return restored


def scopes(_args: dict[str, Any], call: Call) -> dict[str, Any]:
    """What is still to be put back on this board."""
    found = [(scope, len(Journal(call.places, scope).notes)) for scope in scope_names(call.places)]
    return {"scopes": [{"scope": scope, "changes": count} for scope, count in found]}


def purge(_args: dict[str, Any], call: Call) -> dict[str, Any]:
    """Removes all that boardbench itself keeps on the board.

    Refused while something is to be put back, something runs, or a run was not fetched yet.
    """
    places = call.places
    with Lock(places):
        left = list(scope_names(places))
        if left:
            raise Failure(RIG, f"not put back yet: {', '.join(left)}", "purge", "restore these scopes first")
        running = _running(places)
        if running:
            advice = "end the campaign first; a run that its controller did not live to fetch: ./inv collect"
            raise Failure(RIG, f"still in use: {', '.join(running)}", "purge", advice)
        unfetched = [str(run["run"]) for run in staged({}, call)["runs"] if run["phase"] in ("started", "finished")]
        if unfetched:
            folder = places.on_board(os.path.join(places.runs, unfetched[0]))
            advice = f"./inv collect, where the campaign was run; or remove {folder} if nobody wants it"
            raise Failure(RIG, f"runs that nobody has fetched: {', '.join(unfetched)}", "purge", advice)
        removed = []
        for path in (places.state, places.run):
            if os.path.lexists(path):
                shutil.rmtree(path)
                removed.append(places.on_board(path))
        for path in (places.payloads, os.path.dirname(places.payloads)):
            # Payloads go by their scope's journal; what is left here is somebody else's.
            if os.path.isdir(path) and not os.listdir(path):
                os.rmdir(path)
                removed.append(places.on_board(path))
    return {"removed": removed}


def _running(places: Places) -> list[str]:
    """Units of runs that are installed now."""
    return sorted(
        os.path.basename(path)
        for pattern in ("boardbench-run-*", "boardbench-logger-*")
        for path in glob.glob(os.path.join(glob.escape(places.units_runtime), pattern))
    )
