"""Steps that push the fleet's certificates: made before a board is touched, when asked for, and never shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from boardbench.inventory import load_inventory
from boardbench.locations import certificates_dir
from boardbench.playbook.certificates import certified
from boardbench.playbook.compile import compile_playbook
from boardbench.secretwords import REGISTRY

from . import rig

TEXT = """\
version: 1
name: play
steps:
  - directory: {path: /etc/boardbench/npu, mode: "0700"}
  - file: {path: "/etc/npu/${board}-key.pem", source: "${fleet_certificates}/${board}-key.pem", mode: "0600"}
    groups: [npu]
    tags: [npu, on-demand]
"""


class Fleet:
    """King and jetson, and where their certificates are kept."""

    def __init__(self, folder: Path, **king_vars: object) -> None:
        self.inventory = rig.inventory(folder, king_vars)
        self.playbook = rig.playbook(folder, TEXT, self.inventory)
        self.boards = self.inventory.select("king,jetson")
        self.folder = folder / "state" / "certs"
        self.said: list[str] = []

    def keys(self, *, check: bool = False, tags: tuple[str, ...] | None = ("npu",)) -> dict[str, bytes]:
        """Board -> the key that its call would carry."""
        found = {}
        with certified(self.playbook, self.boards, self.folder, self.said.append, check=check, tags=tags) as boards:
            assert [board.name for board in boards] == [board.name for board in self.boards]
            for program in compile_playbook(self.playbook, boards, tags=tags):
                for request in program.requests:
                    for step in request.steps:
                        if step["resource"] == "file":
                            assert "content" not in step["args"]
                            source = request.blobs[step["args"]["blob"]]
                            assert isinstance(source, Path)
                            found[program.board.name] = source.read_bytes()
        return found


def test_what_is_missing_is_made_once_and_a_board_gets_its_own(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    first = fleet.keys()
    assert list(first) == ["king"]
    assert first["king"] == (fleet.folder / "king-key.pem").read_bytes()
    assert fleet.said == [f"certificates made in {fleet.folder}: ca, token, king, npu-scheduler, npu-load"]
    assert fleet.keys() == first
    assert len(fleet.said) == 1


def test_without_such_a_step_nothing_is_made(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    assert fleet.keys(tags=None) == {}
    assert not fleet.folder.exists()


def test_a_check_sees_what_would_change_and_makes_nothing(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    seen = fleet.keys(check=True)
    assert seen["king"].startswith(b"-----BEGIN PRIVATE KEY")
    assert not fleet.folder.exists()
    made = fleet.keys()
    before = {path.name: path.read_bytes() for path in fleet.folder.iterdir()}
    assert fleet.keys(check=True) == made
    assert {path.name: path.read_bytes() for path in fleet.folder.iterdir()} == before


def test_an_inventory_with_certificates_of_its_own_keeps_them(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "king-key.pem").write_text("mine")
    fleet = Fleet(tmp_path, fleet_certificates=str(own))
    assert fleet.keys() == {"king": b"mine"}
    assert not fleet.folder.exists()


@pytest.fixture
def forgetting() -> object:
    yield
    REGISTRY.forget()


@pytest.mark.usefixtures("forgetting")
def test_the_token_is_hidden_in_every_text_from_then_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    fleet = Fleet(tmp_path)
    fleet.folder = certificates_dir(fleet.inventory.path)
    fleet.keys()
    token = (fleet.folder / "token").read_text().strip()
    assert REGISTRY.hide(f"it is {token}.") == "it is ***."
    REGISTRY.forget()
    # Any later command knows it by the inventory, so that a campaign is audited for it.
    load_inventory(fleet.inventory.path)
    assert REGISTRY.hide(token) == "***"
