"""Before a campaign the Python libraries of boards, as these recorded them, are held against what payloads pin."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_boards import PAYLOAD, FakeBoard, Fleet

from boardbench.errors import RigError
from boardbench.inventory import Board

Bench = Callable[..., Any]
PINS = ["small==1.0", "other==2.1"]
RIGHT = {"python": "3.12", "arch": "aarch64", "wheels": sorted(PINS), "changed": []}


def has(board: FakeBoard, libraries: Any) -> None:
    def change(look: dict[str, Any]) -> None:
        look["libraries"] = libraries

    board.change_look = change


@pytest.fixture
def pinned(tmp_path: Path, bench: Bench) -> Bench:
    """The small matrix, whose payload `burn` pins two libraries; `bench` wrote its folder."""
    (tmp_path / "payloads/burn/payload.yml").write_text(PAYLOAD.format(name="burn") + f"python: [{', '.join(PINS)}]\n")
    return bench


def test_boards_with_the_pinned_libraries_are_measured(pinned: Bench, fleet: Fleet) -> None:
    for board in fleet.fakes.values():
        has(board, {"burn": RIGHT})
    outcome = pinned()
    assert outcome.good
    assert json.loads((outcome.path / "campaign.json").read_text())["libraries"] == {"burn": PINS}


@pytest.mark.parametrize(
    ("libraries", "said"),
    [
        (None, "queen: the board has no record of the Python libraries of payload burn"),
        ({"other": RIGHT}, "queen: the board has no record of the Python libraries of payload burn"),
        (
            {"burn": {**RIGHT, "wheels": ["other==2.1", "small==0.9"]}},
            r"queen: the Python libraries of payload burn are not those that .*payloads/burn/payload.yml pins: "
            "small==0.9 there, small==1.0 here",
        ),
        (
            {"burn": {**RIGHT, "wheels": ["small==1.0"]}},
            r"queen: .*: nothing more there, other==2.1 here",
        ),
        (
            {"burn": {**RIGHT, "python": "3.11"}},
            "queen: .* on the board are for Python 3.11 on aarch64, the board has Python 3.12 on aarch64",
        ),
        (
            {"burn": {**RIGHT, "changed": ["small/__init__.py", "small/fast.so"]}},
            r"queen: file small/__init__.py of payload burn is not as it was put there \(and 1 more\)",
        ),
    ],
)
def test_a_board_with_other_libraries_stops_everything(
    pinned: Bench, fleet: Fleet, tmp_path: Path, libraries: Any, said: str
) -> None:
    has(fleet["king"], {"burn": RIGHT})
    has(fleet["queen"], libraries)
    with pytest.raises(RigError, match=f"^{said}; run ./inv provision first$"):
        pinned()
    assert not (tmp_path / "results").exists()


def test_the_one_who_knows_the_playbook_says_how_a_payload_gets_there(bench: Bench, fleet: Fleet) -> None:
    fleet["queen"].installed = {"0" * 64}

    def bringing(payload: str, board: Board) -> str:
        return f"bring {payload} to {board.name}"

    with pytest.raises(RigError, match=r"queen: payload burn is not on the board .*; bring burn to queen$"):
        bench(bringing=bringing)
