"""teardown: leave the boards as they were found."""

from __future__ import annotations

from typing import Any

from invoke import Context

from tasks._verb import note, verb
from tasks.provision import HELP, run_playbook


def put_back_first(rig: Any, *, check: bool) -> None:
    """What a dead campaign left on the boards is put back, and said, before the rest is.

    Raises RigError for a board that a campaign holds. Any other trouble of a board is told by the playbook itself.
    """
    from boardbench.board import Door
    from boardbench.errors import DeadlineError, UnreachableError
    from boardbench.matrix.leftovers import put_back

    failed = put_back(rig.boards, lambda board: Door.open(board, rig.inventory.known_hosts), note, check=check)
    for error in failed.values():
        # Held: it can be tried again later. Lost boards can too, and cost only themselves.
        if error.transient and not isinstance(error, UnreachableError | DeadlineError):
            raise error


@verb(help=HELP)
def teardown(
    c: Context,
    inventory: str = "",
    limit: str = "",
    playbook: str = "playbooks/teardown.yml",
    check: bool = False,
    diff: bool = False,
    json: bool = False,
) -> int:
    """Put back what campaigns and provision changed on the boards, and remove what is ours."""
    from tasks._boards import open_rig
    from tasks._files import project_file

    path = project_file(playbook)
    rig = open_rig(inventory, limit)
    put_back_first(rig, check=check)
    return run_playbook(rig, path, check=check, diff=diff, json=json)


VERBS = (teardown,)
