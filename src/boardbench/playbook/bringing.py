"""How a payload that a board lacks gets there: the command, as the steps of the playbook have it."""

from __future__ import annotations

from boardbench.inventory import Board

from .compile import ON_DEMAND
from .load import Playbook

COMMAND = "./inv provision"


def advice(playbook: Playbook, payload: str, board: Board) -> str:
    """What to do so that `board` gets `payload`: the command that runs a step for it, or that there is no such step.

    A step on demand runs only when it is asked for by another tag of its: the first of these by name.
    """
    steps = [
        step
        for step in playbook.steps
        if step.resource == "payload"
        and step.args["name"] == payload
        and step.args.get("state") != "absent"
        and board.name in step.boards
    ]
    if not steps:
        return f"no step of {playbook.path.name} brings it to this board: add 'payload: {{name: {payload}}}'"
    if any(ON_DEMAND not in step.tags for step in steps):
        return f"run {COMMAND} first"
    tag = min(steps[0].tags - {ON_DEMAND}, default=ON_DEMAND)
    return f"run {COMMAND} --tags {tag} first"
