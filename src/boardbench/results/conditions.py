"""Under which conditions a campaign's figures came about: what must be alike before two campaigns are compared.

Each condition has a name, by which a user may say that a difference is known. A condition that is not known is not
alike to anything: "could not read" was once compared equal in the field, and a wrong result believed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from boardbench.errors import InputError
from boardbench.results import store

NAMES = ("virtual", "time-scale", "cooling", "clocks", "payload", "workload", "model", "scheduler-host", "boards")
NOT_KNOWN = "not known"
NONE = "none"
"""A condition that this kind of load does not have."""


def of_campaign(folder: Path, boards: Sequence[str], phases: Sequence[str | None]) -> dict[str, str]:
    """Condition -> what it was, in words that are equal exactly when it was the same.

    `boards`, `phases`: those of the cells that are to be compared. Raises InputError for files that cannot be read.
    """
    campaign: dict[str, Any] = store.read_object(folder / "campaign.json")
    plan: dict[str, Any] = store.read_object(folder / "plan.json")
    facts = {board: _facts(folder, board) for board in boards}
    return {
        "virtual": "virtual boards (a thermal model)" if campaign["virtual"] else "hardware",
        "time-scale": f"{plan['time_scale']:g} x real time",
        "cooling": _cooling(phases),
        "clocks": _clocks(plan, facts),
        "payload": _payload(campaign),
        "workload": _workload(plan),
        "model": _named(plan, "model"),
        "scheduler-host": _scheduler(campaign, plan),
        "boards": "hardware is not read of virtual boards" if campaign["virtual"] else _boards(campaign, boards),
    }


def of_import(stored_phases: Sequence[str | None]) -> dict[str, str]:
    """The conditions of an imported campaign: hardware, the cooling where the source says it, and nothing else."""
    known = dict.fromkeys(NAMES, NOT_KNOWN)
    return {
        **known,
        "virtual": "hardware, by the source",
        "time-scale": "1 x real time",
        "cooling": _cooling(stored_phases),
    }


def unlike(a: Mapping[str, str], b: Mapping[str, str]) -> tuple[tuple[str, str, str], ...]:
    """(name, in a, in b) of each condition that differs, or that is not known in one of them."""
    return tuple((name, a[name], b[name]) for name in NAMES if a[name] != b[name] or NOT_KNOWN in (a[name], b[name]))


def _facts(folder: Path, board: str) -> Mapping[str, Any]:
    try:
        return store.read_object(folder / "boards" / board / "facts-before.json")
    except InputError:
        return {}


def _cooling(phases: Sequence[str | None]) -> str:
    if not phases or None in phases:
        return NOT_KNOWN
    return ", ".join(sorted({str(phase) for phase in phases}))


def _clocks(plan: Mapping[str, Any], facts: Mapping[str, Mapping[str, Any]]) -> str:
    """Settings of the matrix and the highest clocks of each board, as the board told them before the campaign."""
    settings = [
        f"{one['resource']} {' '.join(str(value) for value in one['args'].values())}" for one in plan["settings"]
    ]
    told = []
    for board, found in facts.items():
        tops = [f"{one['policy']} {one['hw_max_khz']}" for one in found.get("cpu_policies", ())]
        tops += [f"{one['kind'] or one['name']} {one['max_hz']}" for one in found.get("devfreq", ())]
        if not tops:
            return NOT_KNOWN
        told.append(f"{board}: {', '.join(tops)}")
    return "; ".join([*sorted(settings), *sorted(told)]) or NOT_KNOWN


def _payload(campaign: Mapping[str, Any]) -> str:
    files = (
        f"{name}/{file['name']} {file['sha256'][:12]}" for name, many in campaign["payloads"].items() for file in many
    )
    return ", ".join(sorted(files)) or NOT_KNOWN


def _workload(plan: Mapping[str, Any]) -> str:
    load, times = plan["workload"], plan["board_time"]
    options = ", ".join(f"{name}={value}" for name, value in sorted(load["options"].items()))
    return f"{load['name']} ({options}) for {times['duration_s']:g} s in intervals of {times['interval_s']:g} s"


def _options(plan: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    yield from plan["workload"]["options"].items()
    for arm in plan["arms"]:
        yield from arm["options"].items()


def _named(plan: Mapping[str, Any], word: str) -> str:
    """What the workload's options say under a name with this word; none where the load has no such option."""
    return ", ".join(sorted({f"{name}={value}" for name, value in _options(plan) if word in name})) or NONE


def _scheduler(campaign: Mapping[str, Any], plan: Mapping[str, Any]) -> str:
    hosts = [_who(board) for board in campaign["boards"] if "scheduler" in board["kind"]]
    named = _named(plan, "scheduler")
    return ", ".join([*sorted(hosts), *([] if named == NONE else [named])]) or NONE


def _boards(campaign: Mapping[str, Any], boards: Sequence[str]) -> str:
    used = {name for board in boards for name in board.split("+")}
    return ", ".join(sorted(_who(board) for board in campaign["boards"] if board["name"] in used)) or NOT_KNOWN


def _who(board: Mapping[str, Any]) -> str:
    who = board["identity"]
    return f"{board['name']} {who.get('serial') or who.get('machine_id') or NOT_KNOWN}"
