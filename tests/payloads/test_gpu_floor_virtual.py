"""The GPU floor service on a virtual board, by the words of the board's folder: what it can see, and no GPU anyway."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from .floor_parts import health, processes, virtual


def _board(folder: Path, about: dict[str, object] | None) -> str:
    (folder / "status.json").write_text("{}")
    if about is not None:
        (folder / "bpftrace.json").write_text(json.dumps(about))
    return str(folder)


def test_a_real_board_is_no_virtual_one(tmp_path: Path) -> None:
    assert not virtual.here(str(tmp_path))
    assert virtual.here(_board(tmp_path, None))


def test_the_sandbox_of_a_virtual_board_is_known_and_a_real_board_has_none(tmp_path: Path) -> None:
    assert virtual.kind(str(tmp_path)) is None
    assert virtual.kind(_board(tmp_path, None)) is None
    (tmp_path / "status.json").write_text('{"kind": "bwrap"}')
    assert virtual.kind(str(tmp_path)) == "bwrap"


@pytest.mark.parametrize(
    ("about", "why"),
    [
        ({"possible": True, "why": ""}, ""),
        ({"possible": False, "why": "no root"}, "this is a virtual board, and its host sees no calls for it: no root"),
        (None, "this is a virtual board, and its host sees no calls for it"),
        ({}, "this is a virtual board, and its host sees no calls for it: it does not say why"),
    ],
)
def test_the_host_says_whether_it_sees_calls_for_its_board(
    tmp_path: Path, about: dict[str, object] | None, why: str
) -> None:
    assert virtual.why_blind(_board(tmp_path, about)) == why


@pytest.mark.parametrize(
    ("state", "is_virtual", "code", "said"),
    [
        ("idle", False, 0, "idle"),
        ("idle", True, 0, "idle; virtual board: the clock is a file, there is no GPU to speed up"),
        ("blind", True, 0, "virtual board: the service runs and is blind: no reason given"),
        ("blind", False, 1, "the service runs and is blind: no reason given"),
    ],
)
def test_health_forgives_blindness_on_a_virtual_board_only(
    tmp_path: Path, state: str, is_virtual: bool, code: int, said: str
) -> None:
    board, run = tmp_path / "board", tmp_path / "run"
    board.mkdir()
    run.mkdir()
    if is_virtual:
        _board(board, None)
    status = {"pid": os.getpid(), "start_ticks": processes.start_ticks(os.getpid()), "state": state, "problems": []}
    (run / "status.json").write_text(json.dumps(status))
    lines: list[str] = []
    assert health.health(str(run), lines.append, str(board)) == code
    assert lines == [said]
