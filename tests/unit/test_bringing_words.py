"""The project's own playbook: which command `bench` names for a payload that a board lacks."""

from __future__ import annotations

from pathlib import Path

import pytest

from boardbench.inventory import load_inventory
from boardbench.locations import project_dir
from boardbench.matrix.cluster import payload_names
from tasks import _playbooks

INVENTORY = project_dir() / "inventory/virtual.yml"


@pytest.mark.parametrize("payload", payload_names("npu-load"))
@pytest.mark.parametrize("board", ["king", "jetson"])
def test_the_clusters_payloads_are_brought_on_demand(payload: str, board: str) -> None:
    inventory = load_inventory(INVENTORY)
    said = _playbooks.bringing(inventory)(payload, inventory.boards[board])
    assert said == "run ./inv provision --tags npu first"


def test_what_every_provision_brings_needs_no_tag() -> None:
    inventory = load_inventory(INVENTORY)
    assert _playbooks.bringing(inventory)("burn", inventory.boards["king"]) == "run ./inv provision first"


def test_a_playbook_that_is_itself_at_fault_does_not_hide_what_the_board_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken.yml").write_text("version: 1\nname: broken\nsteps: [{nothing: {}}]\n")
    monkeypatch.setattr(_playbooks, "DEFAULT", str(tmp_path / "broken.yml"))
    inventory = load_inventory(INVENTORY)
    assert _playbooks.bringing(inventory)("npu-run", inventory.boards["king"]) == "run ./inv provision first"
