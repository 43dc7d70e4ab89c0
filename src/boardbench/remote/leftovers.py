"""What a campaign that died left changed on this board: put back before anybody changes or measures it further."""

from __future__ import annotations

from typing import Any

from . import journal, lease
from .failures import RIG, Failure
from .wire import Call

CAMPAIGN = "campaign-"


def scopes_of_the_dead(call: Call, alive: str) -> list[str]:
    """Campaigns' scopes that are not put back, but for the one of the living campaign (its scope, or "")."""
    return [name for name in journal.scope_names(call.places) if name.startswith(CAMPAIGN) and name != alive]


def put_back(call: Call, names: list[str]) -> tuple[dict[str, Any], list[str]]:
    """Restores these scopes; what was restored, by scope, and what could not be."""
    saw: dict[str, Any] = {}
    failed = []
    for name in names:
        from . import restore

        call.phase("restore", f"putting back what {name} left")
        saw[name] = restore.restore({"scope": name}, call)["restored"]
        failed += [f"{entry['what']}: {entry['why']}" for entry in saw[name] if not entry["ok"]]
    return saw, failed


def settle(call: Call, *, check: bool) -> None:
    """Before a playbook changes the board: refuses while a campaign holds it, and puts back what dead ones left.

    Both are told as `note` events. With `check` they are only told. Failure `rig` for a held board and for a value
    that cannot be put back.
    """
    store = lease.Store(call.places)
    held, _ = store.current()
    if held is not None and not check:
        advice = "changing the board now would spoil a run: wait for it (./inv lease)"
        what = f"held by {lease.describe(held)}, {store.left_s(held):.0f} s left"
        raise Failure(RIG, what, "lease", advice, transient=True)
    names = scopes_of_the_dead(call, f"{CAMPAIGN}{held['campaign']}" if held is not None else "")
    if check:
        for name in names:
            call.event("note", message=f"would put back what {name} left when it died")
        return
    saw, failed = put_back(call, names)
    if failed:
        raise Failure(RIG, f"what a dead campaign left cannot be put back: {'; '.join(failed)}", "restore")
    for name, restored in saw.items():
        call.event("note", message=f"put back {len(restored)} values that {name} left when it died, each read back")
