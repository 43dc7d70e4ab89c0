"""provision: make boards match a playbook."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from invoke import Context

from tasks._verb import emit, verb

HELP = {
    "playbook": "playbook file",
    "tags": "only steps with one of these tags, joined by commas",
    "check": "say what would change; touch nothing",
    "diff": "show the differences of files",
}


def run_playbook(
    rig: Any, path: Path, *, check: bool = False, diff: bool = False, tags: str = "", json: bool, quiet: bool = False
) -> int:
    """Apply one playbook to the chosen boards, print what happens and the recap; returns the exit code."""
    from boardbench.board import Door
    from boardbench.playbook import apply, load
    from boardbench.report.steps import StepPrinter

    playbook = load.load(path, rig.inventory)
    printer = StepPrinter(check=check, diff=diff, quiet=quiet)
    outcome = apply.run(
        rig.inventory,
        rig.boards,
        playbook,
        check=check,
        diff=diff,
        tags=[tag.strip() for tag in tags.split(",") if tag.strip()] or None,
        open_door=lambda board: Door.open(board, rig.inventory.known_hosts),
        on_event=(lambda board, event: emit({"board": board, **event})) if json else printer.event,
    )
    if json:
        emit(outcome.as_json())
    else:
        printer.recap(outcome)
    return outcome.exit_code


@verb(help=HELP)
def provision(
    c: Context,
    inventory: str = "",
    limit: str = "",
    tags: str = "",
    playbook: str = "playbooks/provision.yml",
    check: bool = False,
    diff: bool = False,
    json: bool = False,
) -> int:
    """Make the boards match playbooks/provision.yml: settings, payloads, services."""
    from tasks._boards import open_rig
    from tasks._files import project_file

    path = project_file(playbook)
    return run_playbook(open_rig(inventory, limit), path, check=check, diff=diff, tags=tags, json=json)


VERBS = (provision,)
