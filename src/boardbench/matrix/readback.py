"""What an arm's levels set, read back from where it acts: before the load, and again after it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from boardbench.matrix.arms import Arm
from boardbench.matrix.cooling import steps_of
from boardbench.matrix.factors import Setting
from boardbench.results.fetch import DoorLike

if TYPE_CHECKING:
    from boardbench.matrix.run_cell import Bench

GATE = "settings"
_CAP = re.compile(r"/sys/devices/system/cpu/cpufreq/(?P<policy>policy[0-9]+)/scaling_max_freq")


def levels_now(bench: Bench, door: DoorLike, board: str, arm: Arm, when: str) -> tuple[Mapping[str, Any], ...]:
    """Evidence of gate `settings` that the levels of this arm are in force now; nothing for an arm that sets nothing.

    A cap that heat has lowered further is not the level that the arm names, so it fails as well. Changes nothing.
    """
    always = len(bench.plan.matrix.settings)
    mine = bench.plan.settings(arm, board, bench.facts.get(board))[always:]
    if not mine:
        return ()
    args = {"scope": bench.scope, "steps": steps_of(mine), "check": True, "diff": False, "stop_on_failure": False}
    told: list[Mapping[str, object]] = []

    def note(event: Mapping[str, object]) -> None:
        if event.get("event") == "step":
            told.append(event)

    recap = door.call("apply", args, deadline_s=bench.timings.restore_s, on_event=note).get("recap")
    caps = read_caps(mine, door.call("facts", {}, deadline_s=bench.timings.restore_s).get("facts"))
    wrong = [
        f"{cap['policy']} may go to {cap['reads_khz']} kHz, not {cap['wanted_khz']}" for cap in caps if not cap["ok"]
    ]
    held = isinstance(recap, Mapping) and recap.get("changed") == 0 and recap.get("failed") == 0
    if not held and not wrong:
        wrong = [_differs(event) for event in told if event.get("state") != "ok"] or [
            "a level's setting is not in force"
        ]
    saw = {"when": when, "levels": dict(arm.levels), "settings": len(mine), "recap": recap, "caps": caps}
    return (
        {"gate": GATE, "ok": not wrong, "saw": saw, "why": f"{when} the load: {'; '.join(wrong)}" if wrong else ""},
    )


def read_caps(settings: Sequence[Setting], facts: object) -> list[dict[str, Any]]:
    """Every cap among the settings, with what the board's facts say of its policy. Clocks in kHz."""
    policies = facts.get("cpu_policies") if isinstance(facts, Mapping) else None
    seen = {str(entry.get("policy")): entry for entry in policies or () if isinstance(entry, Mapping)}
    found = []
    for setting in settings:
        match = _CAP.fullmatch(str(setting.args.get("path")))
        if match is None:
            continue
        entry = seen.get(match["policy"], {})
        wanted, reads = int(str(setting.args["value"])), entry.get("max_khz", {"missing": "no such policy now"})
        cap = {"policy": match["policy"], "wanted_khz": wanted, "reads_khz": reads, "ok": reads == wanted}
        found.append({**cap, "cur_khz": entry.get("cur_khz", {"missing": "no such policy now"})})
    return found


def _differs(event: Mapping[str, object]) -> str:
    changes = event.get("changes")
    first = changes[0] if isinstance(changes, list) and changes else {}
    if not isinstance(first, Mapping) or "before" not in first:
        return f"{event.get('id')}: {event.get('message') or event.get('state')}"
    return f"{first.get('what')} reads {first.get('before')}, not {first.get('after')}"
