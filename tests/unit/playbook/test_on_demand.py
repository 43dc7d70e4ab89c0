"""Steps that are not for every day, and payloads that lack libraries until the controller has fetched them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from boardbench.builds import wheels
from boardbench.builds.completing import Completer
from boardbench.builds.voice import Voice
from boardbench.builds.wheels import Interpreter
from boardbench.errors import BugError
from boardbench.inventory import Board, Inventory
from boardbench.payload import Payload, PayloadFile, hash_file
from boardbench.playbook.compile import compile_playbook
from boardbench.playbook.load import Playbook

from . import rig

TEXT = """\
version: 1
name: play
steps:
  - sysctl: {name: vm.swappiness, value: 10}
  - payload: {name: burn}
    tags: [npu, on-demand]
"""


def ids(folder: Path, tags: Sequence[str] | None) -> list[str]:
    inventory = rig.inventory(folder)
    (program,) = compile_playbook(rig.playbook(folder, TEXT, inventory), inventory.select("king"), tags=tags)
    return [step["id"] for request in program.requests for step in request.steps]


def test_a_step_on_demand_runs_only_when_a_tag_of_its_is_asked_for(tmp_path: Path) -> None:
    assert ids(tmp_path, None) == ["sysctl vm.swappiness"]
    assert ids(tmp_path, ["npu"]) == ["payload burn"]


def lacking(folder: Path, inventory: Inventory, text: str = TEXT.replace(", on-demand", "")) -> Playbook:
    """A playbook whose payload pins a library."""
    playbook = rig.playbook(folder, text, inventory)
    return replace(playbook, payloads={"burn": replace(playbook.payloads["burn"], python=("small==1.0",))})


def test_a_payload_gets_its_libraries_for_the_boards_own_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inventory = rig.inventory(tmp_path)
    playbook = lacking(tmp_path, inventory)
    library = tmp_path / "small.py"
    library.write_text("x = 1\n")
    size, sha256 = hash_file(library)
    asked: list[tuple[tuple[str, ...], Interpreter]] = []

    def ensure(requirements: Sequence[str], wanted: Interpreter, _: Path) -> list[PayloadFile]:
        asked.append((tuple(requirements), wanted))
        return [PayloadFile(library, "small.py", "0644", size, sha256)]

    monkeypatch.setattr(wheels, "ensure", ensure)
    completer = Completer(lambda _: pytest.fail("it was met already"), Voice(), cache=tmp_path)
    completer._facts["king"] = {"arch": "aarch64", "python": "3.12.3"}
    (program,) = compile_playbook(playbook, inventory.select("king"), complete=completer.complete)
    step = program.requests[0].steps[-1]
    assert asked == [(("small==1.0",), Interpreter("3.12", "aarch64"))]
    assert [file["path"] for file in step["args"]["files"]] == ["main.py", "small.py"]
    assert program.requests[0].blobs[sha256] == library


def test_a_payload_that_lacks_its_libraries_never_reaches_a_board(tmp_path: Path) -> None:
    inventory = rig.inventory(tmp_path)
    playbook = lacking(tmp_path, inventory)
    with pytest.raises(BugError, match="lacks what is built or fetched for it"):
        compile_playbook(playbook, inventory.select("king"))


def test_what_is_removed_needs_no_libraries(tmp_path: Path) -> None:
    inventory = rig.inventory(tmp_path)
    text = TEXT.replace(", on-demand", "").replace("{name: burn}", "{name: burn, state: absent}")
    playbook = lacking(tmp_path, inventory, text)

    def nobody(payload: Payload, board: Board, _: str) -> Payload:
        raise AssertionError(f"{payload.name} for {board.name} was asked for")

    (program,) = compile_playbook(playbook, inventory.select("king"), complete=nobody)
    assert program.requests[0].steps[-1]["args"]["state"] == "absent"
