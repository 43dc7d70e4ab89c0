"""The `apply` verb: makes the board match a list of steps, in order, and says of each what it changed."""

from __future__ import annotations

import errno
import os
from typing import Any, Callable

from . import parsers, reading, resources
from .failures import BAD_INPUT, BUG, RIG, Failure
from .journal import Journal, Lock, check_scope
from .plans import Plan
from .system import System
from .wire import Call

_HIDDEN = "(secret)"
_FULL = (errno.ENOSPC, errno.EDQUOT)


class Outcome:
    """How a step went: the fields of its event."""

    __slots__ = ("changes", "diff", "message", "state")

    def __init__(self, state: str, changes: list[dict[str, str]], diff: str = "", message: str = "") -> None:
        self.state = state
        self.changes = changes
        self.diff = diff
        self.message = message


def apply(args: dict[str, Any], call: Call) -> dict[str, Any]:
    """Runs the steps of `args`. In check mode nothing is touched, and no blob is asked for.

    With `settle` a board that a campaign holds is refused, and what dead campaigns left is put back first.
    """
    steps = args.get("steps")
    if not isinstance(steps, list) or not all(isinstance(step, dict) for step in steps):
        raise Failure(BAD_INPUT, "steps is not a list of steps", "apply")
    if args.get("settle"):
        from . import leftovers

        leftovers.settle(call, check=bool(args.get("check")))
    if args.get("check"):
        return _run(steps, args, System(call.places, remaining_s=call.remaining_s), call)
    scope = check_scope(args.get("scope"))
    with Lock(call.places):
        system = System(
            call.places,
            journal=Journal(call.places, scope),
            fetch=_fetcher(call),
            remaining_s=call.remaining_s,
        )
        return _run(steps, args, system, call)


def _fetcher(call: Call) -> Callable[[list[str]], list[str]]:
    def fetch(hashes: list[str]) -> list[str]:
        call.need(hashes)
        return [call.blob_path(sha) for sha in hashes]

    return fetch


def _run(steps: list[dict[str, Any]], args: dict[str, Any], system: System, call: Call) -> dict[str, Any]:
    recap = {"ok": 0, "changed": 0, "skipped": 0, "failed": 0}
    facts = Facts(system)
    failed = ""
    for step in steps:
        if failed and args.get("stop_on_failure", True):
            outcome = Outcome("skipped", [], message=f"not reached: {failed} failed")
        else:
            outcome = run_step(step, system, facts, diff=bool(args.get("diff")))
        if outcome.state == "failed":
            failed = failed or str(step.get("id"))
        recap[outcome.state] += 1
        call.event(
            "step",
            id=step.get("id"),
            resource=step.get("resource"),
            state=outcome.state,
            changes=outcome.changes,
            diff=outcome.diff,
            message=outcome.message,
        )
    return {"recap": recap}


class Facts:
    """The board's facts, read when a step asks for them and not before."""

    def __init__(self, system: System) -> None:
        self._system = system
        self._found: dict[str, Any] | None = None

    def hold(self, when: dict[str, Any]) -> str:
        """Empty when every fact is as wanted, else the first that is not, in words. Failure for an unknown fact."""
        if when and self._found is None:
            from .facts import read_facts

            self._found = read_facts(self._system.places, [])
        for name, wanted in when.items():
            value = self._value(name)
            # A board's `compatible` is a list: a single word asks whether it is in it.
            holds = wanted in value if isinstance(value, list) and not isinstance(wanted, list) else value == wanted
            if not holds:
                return f"{name} is {value!r}, not {wanted!r}"
        return ""

    def _value(self, name: str) -> Any:
        assert self._found is not None
        try:
            value = parsers.fact_at(self._found, name)
        except KeyError:
            known = ", ".join(sorted(self._found))
            raise Failure(BAD_INPUT, f"there is no fact {name!r}", "when", f"known: {known}") from None
        if reading.is_missing(value):
            raise Failure(RIG, f"the fact {name} cannot be read: {value['missing']}", "when")
        return value


def run_step(step: dict[str, Any], system: System, facts: Facts, *, diff: bool) -> Outcome:
    """One step to its end. What goes wrong is its outcome, except for our own mistakes."""
    planned = Plan()
    try:
        when = step.get("when") or {}
        if not isinstance(when, dict):
            raise Failure(BAD_INPUT, "when is not a mapping of facts", "step")
        why_not = facts.hold(when)
        if why_not:
            return Outcome("skipped", [], message=why_not)
        args = step.get("args")
        if not isinstance(args, dict):
            raise Failure(BAD_INPUT, "args is not a mapping", "step")
        resource = resources.load(step.get("resource"))
        planned = resource.plan(args, system)
        if not system.checking:
            _make(resource, args, planned, system)
    except Failure as failure:
        if failure.fault == BUG:
            raise
        return _outcome("failed", step, planned, diff, str(failure))
    except OSError as error:
        name = error.filename if isinstance(error.filename, str) else ""
        shown = system.places.on_board(name)
        what = f"{shown}: {error.strerror}" if shown else str(error)
        return _outcome("failed", step, planned, diff, f"{what}; make room" if error.errno in _FULL else what)
    return _outcome("changed" if planned.changes else "ok", step, planned, diff, planned.message)


def _make(resource: Any, args: dict[str, Any], planned: Plan, system: System) -> None:
    """Changes what differs and proves it by asking again."""
    if planned.changes:
        needed = resource.blobs(args, system) if hasattr(resource, "blobs") else []
        if needed:
            system.blobs(needed)
        resource.apply(args, system)
        if planned.provable:
            left = resource.plan(args, system).changes
            if left:
                change = left[0]
                raise Failure(RIG, f"after the change it reads {change.before!r}, not {change.after!r}", change.what)
        for sha in needed:
            _drop_blob(sha, system)
    if hasattr(resource, "finish"):
        resource.finish(args, system)


def _drop_blob(sha: str, system: System) -> None:
    try:
        os.unlink(os.path.join(system.places.blobs, sha))
    except FileNotFoundError:
        pass


def _outcome(state: str, step: dict[str, Any], planned: Plan, diff: bool, message: str) -> Outcome:
    changes = [change.as_dict() for change in planned.changes]
    if step.get("secret"):
        changes = [dict(change, before=_HIDDEN, after=_HIDDEN) for change in changes]
        return Outcome(state, changes, "", message)
    return Outcome(state, changes, planned.diff if diff else "", message)
