"""After the load: are the settings still what `prepare` made them? Somebody else may have written them meanwhile."""

from __future__ import annotations

from typing import Any

from . import gates, journal
from .wire import Call


class _Deaf:
    """A call whose events nobody needs: the check says in its result what it saw."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self.steps: list[dict[str, Any]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._call, name)

    def event(self, event: str, /, **fields: Any) -> None:
        if event == "step":
            self.steps.append(fields)


def settings(state: dict[str, Any], call: Call) -> dict[str, Any]:
    """Gate `settings`, read back where they act. Nothing is changed."""
    steps = state.get("settings") or []
    if not steps:
        return gates.evidence("settings", True, {"after_load": {"steps": 0}}, "the run made no settings")
    if state.get("scope_noted") and state["scope"] not in set(journal.scope_names(call.places)):
        # A late collect: they were put back since, and what they were during the load nobody can see any more.
        return gates.evidence("settings", True, {"after_load": {"missing": "put back"}}, "they were put back since")
    from . import apply

    deaf: Any = _Deaf(call)
    args = {"scope": state["scope"], "steps": steps, "check": True, "diff": False, "stop_on_failure": False}
    recap = apply.apply(args, deaf)["recap"]
    wrong = [step for step in deaf.steps if step.get("state") in ("changed", "failed")]
    saw = {
        "after_load": {"recap": recap, "wrong": [{k: w.get(k) for k in ("id", "changes", "message")} for w in wrong]}
    }
    named = ", ".join(str(step.get("id")) for step in wrong)
    return gates.evidence("settings", not wrong, saw, f"after the load these are not as set: {named}" if wrong else "")
