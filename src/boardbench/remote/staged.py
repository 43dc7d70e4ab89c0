"""`staged`: which runs lie on this board, so that a controller that was away can go on without guessing."""

from __future__ import annotations

import os
from typing import Any

from . import processes
from .failures import Failure
from .run_state import Run
from .wire import Call


def staged(_args: dict[str, Any], call: Call) -> dict[str, Any]:
    """The verb: `{"runs": [{"run", "campaign", "phase", "running", "start_answer", "said"}]}`, by name; only looks.

    `phase`: `prepared`, `started`, `finished`, or `unknown` for a folder whose preparation was cut off.
    `start_answer`: what `start` answered, or null when it never came to an answer. `said`: the last line that a
    running workload printed, else empty.
    """
    try:
        names = sorted(os.listdir(call.places.runs))
    except FileNotFoundError:
        names = []
    return {"runs": [_one(name, call) for name in names if os.path.isdir(os.path.join(call.places.runs, name))]}


def _one(name: str, call: Call) -> dict[str, Any]:
    try:
        run = Run(call.places, name)
        state = run.load_if_there() or {}
        started, ended = run.started(), run.exit()
    except Failure:
        return {"run": name, "campaign": None, "phase": "unknown", "running": False, "start_answer": None, "said": ""}
    running = False
    if started is not None and ended is None and state and not run.rebooted(state):
        ticks = started.get("start_time_ticks")
        running = ticks is not None and processes.alive(call.places, int(started["pid"]), int(ticks))
    return {
        "run": name,
        "campaign": state.get("campaign"),
        "phase": state.get("phase", "unknown"),
        "running": running,
        "start_answer": state.get("start_answer"),
        "said": run.log_tail("workload.log", 1) if running else "",
    }
