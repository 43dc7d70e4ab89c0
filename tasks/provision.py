"""provision: make the boards match a playbook."""

from __future__ import annotations

from invoke import Context

from tasks._playbooks import DEFAULT, HELP, Options, run_playbook
from tasks._verb import verb


@verb(help=HELP)
def provision(
    c: Context,
    inventory: str = "",
    limit: str = "",
    playbook: str = DEFAULT,
    tags: str = "",
    skip_tags: str = "",
    source: str = "",
    check: bool = False,
    diff: bool = False,
    json: bool = False,
) -> int:
    """Make the boards match playbooks/provision.yml: settings, payloads, services."""
    options = Options(check, diff, tags, json, skip_tags=skip_tags, source=source)
    return run_playbook(inventory, limit, playbook, options)


VERBS = (provision,)
