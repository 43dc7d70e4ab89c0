"""verdict.json: what a campaign has to show for each cell. Made from the files, so it can be made again."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from boardbench.errors import InputError
from boardbench.results import audit, decide, loadcurve, plausible, put_back, record, sameness, store
from boardbench.results.problems import Reason
from boardbench.results.sampled import read_all

SCHEMA_VERSION = 1
NAME = "verdict.json"


@dataclass(frozen=True)
class Ending:
    """What the files do not say: why cells have no run, how the campaign ended, and what could not be put back."""

    missing: Mapping[str, str]
    interrupted: bool
    not_restored: Mapping[str, str]


def state_of_cell(campaign: Path, cell: str) -> tuple[str, list[dict[str, object]], list[dict[str, Any]]]:
    """`valid`, `invalid` or `missing`, its attempts in short, and their run.json.

    An attempt whose files lack or changed counts as none.
    """
    attempts: list[dict[str, object]] = []
    runs: list[dict[str, Any]] = []
    for folder in sorted((campaign / "cells" / cell).glob("attempt-*"), key=_number):
        run = whole_run(folder)
        if run is not None:
            runs.append(run)
            attempts.append(
                {"attempt": run["attempt"], "valid": run["valid"], "invalid_reasons": run["invalid_reasons"]}
            )
    if any(entry["valid"] for entry in attempts):
        return "valid", attempts, runs
    return ("invalid" if attempts else "missing"), attempts, runs


def _with_reasons(
    state: str,
    attempts: list[dict[str, object]],
    runs: list[dict[str, Any]],
    differ: Mapping[str, Sequence[Reason]],
) -> tuple[str, list[dict[str, object]], list[dict[str, Any]]]:
    """What only the campaign can show against single runs, in their own words: such a run does not count."""
    said: list[dict[str, object]] = []
    for entry, run in zip(attempts, runs, strict=True):
        more = [reason.as_dict() for reason in differ.get(run["run"], ())]
        said.append({**entry, "valid": False, "invalid_reasons": more} if more else entry)
    if state == "valid" and not any(entry["valid"] for entry in said):
        state = "invalid"
    return state, said, runs


def whole_run(attempt: Path) -> dict[str, Any] | None:
    """run.json of an attempt when every file that it lists is there with its hash; else None."""
    try:
        run = store.read_object(attempt / record.NAME)
    except InputError:
        return None
    files = run.get("files")
    if not isinstance(files, list):
        return None
    for entry in files:
        path = attempt / str(entry["name"])
        if not path.is_file() or store.sha256_file(path) != entry["sha256"]:
            return None
    return run


def make(campaign: Path, plan: Mapping[str, Any], ending: Ending) -> dict[str, Any]:
    """The contents of verdict.json for the campaign as it lies on disk."""
    cells: list[dict[str, object]] = []
    missing: list[dict[str, object]] = []
    valid: list[dict[str, Any]] = []
    counted: dict[str, tuple[Path, dict[str, Any]]] = {}
    head = _head(campaign)
    selected = head.get("selected_cells")
    otherwise = "interrupted before it was done" if ending.interrupted else "the campaign ended before it"
    of_cell = {cell["name"]: state_of_cell(campaign, cell["name"]) for cell in plan["cells"]}
    sampled = read_all(campaign, plan, [run for _, _, runs in of_cell.values() for run in runs if run["valid"]])
    differ = sameness.differing(plan, sampled)
    for cell in plan["cells"]:
        state, attempts, runs = _with_reasons(*of_cell[cell["name"]], differ)
        valid += (good := [run for run in runs if run["valid"] and run["run"] not in differ])
        if good:  # the last one counts, as in the report
            counted[cell["name"]] = (campaign / "cells" / cell["name"] / f"attempt-{good[-1]['attempt']}", good[-1])
        if state == "missing" and isinstance(selected, list) and cell["name"] not in selected:
            state = decide.NOT_SELECTED
        cells.append({"cell": cell["name"], "boards": cell["boards"], "state": state, "attempts": attempts})
        if state == "missing":
            why = ending.missing.get(cell["name"], otherwise)
            missing.append({"cell": cell["name"], "boards": cell["boards"], "why": why})
    states = [cell["state"] for cell in cells]
    sampled = [run for run in sampled if run.run not in differ]
    doubts = plausible.doubts(campaign, plan, valid, sampled)
    return {
        "schema_version": SCHEMA_VERSION,
        "campaign": campaign.name,
        "ended_wall_unix_s": round(time.time(), 3),
        "interrupted": ending.interrupted,
        "counts": {
            "cells": len(cells),
            "valid": states.count("valid"),
            "invalid": states.count("invalid"),
            "missing": states.count("missing"),
            "not_selected": states.count(decide.NOT_SELECTED),
        },
        "cells": cells,
        "decisions": decide.decisions(
            plan,
            {str(cell["cell"]): str(cell["state"]) for cell in cells},
            counted,
            doubts,
            virtual=head.get("virtual") is True,
        )
        | ({"load_curve": curve} if (curve := loadcurve.labels(plan, sampled)) else {}),
        "missing": missing,
        "warnings": [
            *(doubt.as_dict() for doubt in doubts),
            *put_back.warnings(campaign),
            *audit.warnings(campaign, plan["cells"]),
        ],
        "not_restored": [{"board": name, "why": why} for name, why in sorted(ending.not_restored.items())],
    }


def _head(campaign: Path) -> Mapping[str, Any]:
    """campaign.json, or nothing where it cannot be read: that fault is told by who reads it for itself."""
    try:
        return store.read_object(campaign / "campaign.json")
    except InputError:
        return {}


def ending_of(verdict: Mapping[str, Any]) -> Ending:
    """The ending that a verdict holds, to make it again after a late collect."""
    return Ending(
        {entry["cell"]: entry["why"] for entry in verdict["missing"]},
        bool(verdict["interrupted"]),
        {entry["board"]: entry["why"] for entry in verdict["not_restored"]},
    )


def _number(folder: Path) -> tuple[int, str]:
    tail = folder.name.removeprefix("attempt-")
    return (int(tail), "") if tail.isdigit() else (1 << 30, folder.name)
