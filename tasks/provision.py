"""provision: make boards match a playbook."""

from __future__ import annotations

from invoke import Context

from tasks._playbooks import HELP, Options, run_playbook
from tasks._verb import verb


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
    return run_playbook(inventory, limit, playbook, Options(check, diff, tags, json))


VERBS = (provision,)
