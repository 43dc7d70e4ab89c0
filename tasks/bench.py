"""bench: run a matrix on the boards."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from invoke import Context

from boardbench.errors import ExitCode
from tasks import _hold
from tasks._operator import operator
from tasks._verb import emit, note, verb


def run_matrix(
    rig: Any,
    matrix: Any,
    *,
    json: bool,
    cells: Sequence[str] = (),
    confirm_phase: str = "",
    hold: _hold.Hold | None = None,
) -> Any:
    """Run one matrix (its name, or a loaded matrix or plan) with live progress on stderr; returns the outcome."""
    from boardbench.board import Door
    from boardbench.matrix import campaign
    from boardbench.report.progress import progress_display
    from tasks._files import matrix_file, results_dir
    from tasks._playbooks import bringing

    with progress_display(plain=json) as display:
        return campaign.run(
            matrix_file(matrix) if isinstance(matrix, str) else matrix,
            rig.inventory,
            rig.boards,
            results_dir=results_dir(),
            open_door=lambda board: Door.open(board, rig.inventory.known_hosts, stay=True),
            on_progress=display,
            operator=operator(confirm_phase),
            argv=["inv", *sys.argv[1:]],
            cells=cells,
            bringing=bringing(rig.inventory),
            **(hold or _hold.Hold.of(False, "", 60.0)).options(),
        )


def summary(outcome: Any) -> str:
    """What a campaign came to, in one or more lines."""
    counts = f"{outcome.valid} valid, {outcome.invalid} invalid, {outcome.missing} missing of {outcome.cells} cells"
    if outcome.not_selected:
        counts += f" ({outcome.not_selected} not selected)"
    lines = [f"{counts}: {outcome.path}"]
    lines += uncounted(outcome.path)
    lines += [f"{board}: not proved to be as it was: {why}" for board, why in sorted(outcome.not_restored.items())]
    return "\n".join(lines)


def stage_table(campaign: Path) -> None:
    """The table of stages of a campaign that has stages, on stdout; nothing for any other."""
    from boardbench.report.campaign_report import load_report
    from boardbench.report.tables import print_stages

    print_stages(load_report(campaign))


def uncounted(campaign: Path) -> list[str]:
    """How many runs do not count and why, most frequent word first; nothing when all count. Also retried ones."""
    from boardbench.results import store, verdict

    made: dict[str, Any] = store.read_object(campaign / verdict.NAME)
    runs = [attempt for cell in made["cells"] for attempt in cell["attempts"]]
    bad = [attempt for attempt in runs if not attempt["valid"]]
    words = Counter(word for run in bad for word in sorted({reason["code"] for reason in run["invalid_reasons"]}))
    why = ", ".join(f"{word} {count}" for word, count in words.most_common())
    return [f"{len(bad)} of {len(runs)} runs do not count: {why}"] if bad else []


@verb(
    help={
        "matrix": "name of a file in playbooks/matrices, or a path",
        "plan": "a plan that 'plan --lock' wrote: run exactly it, or nothing",
        "set_": "only these levels: factor=level,level (may be given again for another factor)",
        "cells": "only cells whose names fit one of these globs, joined by commas; the plan stays whole",
        "confirm_phase": "active or fanless: fans that are switched by hand are so now: nobody is asked",
        "list_cells": "list the cells (all, or those that --cells fits) and run nothing",
        **_hold.HELP,
    },
    iterable=["set_"],
    optional=_hold.OPTIONAL,
)
def bench(
    c: Context,
    matrix: str = "",
    inventory: str = "",
    limit: str = "",
    plan: str = "",
    set_: list[str] | None = None,
    cells: str = "",
    list_cells: bool = False,
    confirm_phase: str = "",
    resume: str = "",
    steal: bool = False,
    why: str = "",
    lease_ttl: float = 60.0,
    json: bool = False,
) -> int:
    """Run a benchmark matrix: cool, drop caches, log, load, collect, validate, restore."""
    from tasks._boards import open_rig
    from tasks._plans import asked, cell_list, globs_of, offline_plan

    hold = _hold.Hold.of(steal, why, lease_ttl)
    if resume:
        folder = _hold.campaign_to_resume(resume)
        rig = open_rig(inventory, "")
        person = operator(confirm_phase)
        return _ended(
            lambda: _hold.resume_matrix(rig, folder, matrix, hold, person, json=json), inventory, matrix, json
        )
    wanted = asked(matrix, set_ or (), plan)
    globs = globs_of(cells)
    if list_cells or globs or wanted.locked is not None:  # what is wrong with them is said before anything starts
        offline = offline_plan(wanted, inventory, limit)
        offline.select(globs)
    if list_cells:
        return cell_list(offline, globs, json=json)
    given = wanted.matrix if wanted.locked is None else offline
    rig = open_rig(inventory, limit or wanted.limit)
    return _ended(
        lambda: run_matrix(rig, given, json=json, cells=globs, confirm_phase=confirm_phase, hold=hold),
        inventory,
        matrix,
        json,
    )


def _ended(go: Callable[[], Any], inventory: str, matrix: str, json: bool) -> int:
    """Run it and say what came of it; of an interrupted campaign also how to go on."""
    from boardbench.matrix.campaign import Interrupted

    try:
        outcome = go()
    except Interrupted as stop:
        command = _hold.how_to_resume(stop.folder, inventory, matrix)
        note(f"inv: interrupted; go on with: {command}")
        for board, why in sorted(stop.not_restored.items()):
            note(f"{board}: not proved to be as it was: {why}")
        if json:
            emit({"campaign": str(stop.folder), "interrupted": True, "resume": command})
        return ExitCode.INTERRUPTED
    if json:
        emit(outcome.as_dict())
    else:
        note(summary(outcome))
        stage_table(outcome.path)
    return ExitCode.OK if outcome.good else ExitCode.OUTCOME


VERBS = (bench,)
