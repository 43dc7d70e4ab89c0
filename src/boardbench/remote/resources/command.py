"""`command`: runs a program. With `creates` or `unless` only when needed; with neither it always counts as a change."""

from __future__ import annotations

import os
from typing import Any

from ..failures import BAD_INPUT, RIG, Failure
from ..plans import Change, Plan
from ..system import System
from . import absolute, check

_UNLESS_DEADLINE_S = 60.0
_DEADLINE_S = 3600.0


def _argv(value: Any, name: str) -> list[str]:
    if not isinstance(value, list) or not value or not all(isinstance(part, (str, int, float)) for part in value):
        raise Failure(BAD_INPUT, f"{name} is not a list of words", "args", "like [make, -j2]; it is not a shell line")
    return [str(part) for part in value]


def _env(args: dict[str, Any]) -> dict[str, str]:
    env = args.get("env") or {}
    if not isinstance(env, dict):
        raise Failure(BAD_INPUT, "env is not a mapping", "args")
    return {str(key): str(value) for key, value in env.items()}


def plan(args: dict[str, Any], system: System) -> Plan:
    """Whether the program has to run. `unless` is asked in check mode too: it must only look."""
    check(args, ["argv"], ["creates", "unless", "cwd", "env"])
    argv = _argv(args["argv"], "argv")
    _env(args)
    if args.get("creates") is not None and args.get("unless") is not None:
        raise Failure(BAD_INPUT, "both creates and unless are given", "args", "one of them")
    shown = " ".join(argv)[:200]
    if args.get("creates") is not None:
        path = absolute(args, "creates")
        return (
            Plan() if os.path.lexists(system.places.at(path)) else Plan((Change(path, "absent", f"made by {shown}"),))
        )
    if args.get("unless") is not None:
        probe = _argv(args["unless"], "unless")
        answer = system.run(probe, deadline_s=_UNLESS_DEADLINE_S, env=_env(args))
        if answer.code == 0:
            return Plan()
        return Plan((Change(" ".join(probe)[:200], f"exit code {answer.code}", "exit code 0"),))
    return Plan((Change(shown, "not run", "run"),), provable=False)


def apply(args: dict[str, Any], system: System) -> None:
    """Runs it. Failure `rig` with exit code and last lines when it does not end with 0."""
    argv = _argv(args["argv"], "argv")
    if args.get("creates") is not None:
        # What it makes is noted; what else it does cannot be put back by us.
        system.note("path", absolute(args, "creates"))
    cwd = system.places.at(absolute(args, "cwd")) if args.get("cwd") is not None else None
    answer = system.run(argv, deadline_s=_DEADLINE_S, cwd=cwd, env=_env(args))
    if answer.code != 0:
        how = f"ended by signal {-answer.code}" if answer.code < 0 else f"ended with exit code {answer.code}"
        raise Failure(RIG, f"{how}: {answer.last_lines()}", argv[0])
