"""Proves that an earlier call has ended on the board, with all that it had started."""

from __future__ import annotations

import json
import os
import re
from typing import Any

from . import processes
from .failures import BAD_INPUT, Failure
from .wire import Call

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")


def ended(args: dict[str, Any], call: Call) -> dict[str, Any]:
    """The verb: `{"ended", "pids"}`. A call that left no record has ended: the record is removed last."""
    name = args.get("call")
    if not isinstance(name, str) or not _ID.match(name):
        raise Failure(BAD_INPUT, f"call is {name!r:.80}", "ended", "the id of an earlier call")
    path = os.path.join(call.places.calls, name + ".json")
    try:
        with open(path, encoding="utf-8") as file:
            record = json.load(file)
        pid, ticks, group = int(record["pid"]), int(record["start_time_ticks"]), int(record["pgid"])
    except FileNotFoundError:
        return {"ended": True, "pids": []}
    except (ValueError, KeyError, TypeError):
        raise Failure("bug", "the record of the call cannot be read", path) from None
    pids = _family(call, pid, ticks, group)
    if not pids:
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass
    return {"ended": not pids, "pids": pids}


def _family(call: Call, pid: int, ticks: int, group: int) -> list[int]:
    """The call's process, its descendants, and its group. A group number that was given away since is not ours."""
    places = call.places
    found = set()
    if processes.alive(places, pid, ticks):
        found.add(pid)
        found.update(process.pid for process in processes.descendants(places, pid))
    leader = processes.stat(places, group)
    if leader is None or leader.start_time_ticks == ticks:
        found.update(process.pid for process in processes.each(places) if process.pgrp == group)
    return sorted(found)
