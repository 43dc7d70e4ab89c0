"""What brings a payload to a board is read from the playbook's own steps and tags."""

from __future__ import annotations

from pathlib import Path

import pytest

from boardbench.playbook.bringing import advice

from . import rig

HEAD = "version: 1\nname: play\nsteps:\n  - sysctl: {name: vm.swappiness, value: 10}\n"


def told(folder: Path, steps: str, board: str = "king") -> str:
    inventory = rig.inventory(folder)
    return advice(rig.playbook(folder, HEAD + steps, inventory), "burn", inventory.boards[board])


@pytest.mark.parametrize(
    ("steps", "command"),
    [
        ("  - payload: {name: burn}\n", "run ./inv provision first"),
        ("  - payload: {name: burn}\n    tags: [load]\n", "run ./inv provision first"),
        ("  - payload: {name: burn}\n    tags: [npu, on-demand]\n", "run ./inv provision --tags npu first"),
        ("  - payload: {name: burn}\n    tags: [zoo, on-demand, npu]\n", "run ./inv provision --tags npu first"),
        ("  - payload: {name: burn}\n    tags: [on-demand]\n", "run ./inv provision --tags on-demand first"),
        (
            "  - payload: {name: burn}\n    tags: [npu, on-demand]\n  - name: always\n    payload: {name: burn}\n",
            "run ./inv provision first",
        ),
    ],
)
def test_the_command_runs_a_step_that_brings_it(tmp_path: Path, steps: str, command: str) -> None:
    assert told(tmp_path, steps) == command


@pytest.mark.parametrize("step", ["", "  - payload: {name: burn, state: absent}\n"])
def test_a_payload_that_no_step_brings_is_said_to_have_none(tmp_path: Path, step: str) -> None:
    assert told(tmp_path, step) == "no step of play.yml brings it to this board: add 'payload: {name: burn}'"


def test_a_step_for_other_boards_brings_nothing_to_this_one(tmp_path: Path) -> None:
    step = "  - payload: {name: burn}\n    groups: [gpu]\n"
    assert told(tmp_path, step, "jetson") == "run ./inv provision first"
    assert told(tmp_path, step, "king").startswith("no step of play.yml")
