"""teardown: leave the boards as they were found."""

from __future__ import annotations

from invoke import Context

from tasks._verb import verb
from tasks.provision import HELP, run_playbook


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
    return run_playbook(open_rig(inventory, limit), path, check=check, diff=diff, json=json)


VERBS = (teardown,)
