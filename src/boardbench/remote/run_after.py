"""After the load: are the settings still what `prepare` made them? Somebody else may have written them meanwhile."""

from __future__ import annotations

from typing import Any

from . import gates, journal
from .kept_steps import KeptSteps
from .wire import Call


def settings(state: dict[str, Any], call: Call) -> dict[str, Any]:
    """Gate `settings`, read back where they act. Nothing is changed."""
    steps = state.get("settings") or []
    if not steps:
        return gates.evidence("settings", True, {"after_load": {"steps": 0}}, "the run made no settings")
    if state.get("scope_noted") and state["scope"] not in set(journal.scope_names(call.places)):
        # A late collect: they were put back since, and what they were during the load nobody can see any more.
        return gates.evidence("settings", True, {"after_load": {"missing": "put back"}}, "they were put back since")
    from . import apply

    # Nobody needs the events: the check says in its result what it saw.
    deaf: Any = KeptSteps(call, tell=False)
    args = {"scope": state["scope"], "steps": steps, "check": True, "diff": False, "stop_on_failure": False}
    recap = apply.apply(args, deaf)["recap"]
    wrong = [step for step in deaf.steps if step.get("state") in ("changed", "failed")]
    saw = {
        "after_load": {"recap": recap, "wrong": [{k: w.get(k) for k in ("id", "changes", "message")} for w in wrong]}
    }
    named = ", ".join(str(step.get("id")) for step in wrong)
    return gates.evidence("settings", not wrong, saw, f"after the load these are not as set: {named}" if wrong else "")
