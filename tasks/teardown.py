"""teardown: leave the boards as they were found."""

from __future__ import annotations

from invoke import Context

from tasks._playbooks import HELP, Options, run_playbook
from tasks._verb import verb


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
    return run_playbook(inventory, limit, playbook, Options(check, diff, "", json), put_back=True)


VERBS = (teardown,)
