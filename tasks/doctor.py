"""doctor: would a campaign start now? All gates before a run, read-only."""

from __future__ import annotations

from typing import Any

from invoke import Context

from boardbench.errors import ExitCode
from tasks._verb import emit, note, verb


@verb()
def doctor(c: Context, inventory: str = "", limit: str = "", json: bool = False) -> int:
    """Look through all gates before a run on every board: what each saw, and what to do. Changes nothing."""
    from boardbench.board import Door
    from boardbench.matrix.gates.doctor import FAIL, examine
    from tasks._boards import open_rig

    rig = open_rig(inventory, limit)
    found = examine(rig.inventory, rig.boards, lambda board: Door.open(board, rig.inventory.known_hosts))
    if json:
        emit(
            {
                "findings": [finding.as_dict() for finding in found.findings],
                "failed": {name: error.as_dict() for name, error in found.lost.items()},
                "state": found.worst(),
            }
        )
    else:
        _show(found)
    if found.lost:
        return ExitCode.RIG
    return ExitCode.OUTCOME if found.worst() == FAIL else ExitCode.OK


def _show(found: Any) -> None:
    from boardbench.report.doctor import print_diagnosis

    print_diagnosis(found)
    for error in found.lost.values():
        note(f"inv: {error}")


VERBS = (doctor,)
