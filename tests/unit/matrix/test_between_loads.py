"""Between two loads a board is asked only what must be asked, over one connection; one that is away is not waited for
again and again."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fake_boards import MATRIX, FakeDoor, Fleet

from boardbench.errors import UnreachableError
from boardbench.inventory import Board
from boardbench.matrix import lease
from boardbench.matrix.heart import Heart
from boardbench.matrix.lease import Holder

Bench = Callable[..., Any]


class Counted:
    """Opens the fleet's doors and counts them; `cut`: boards that do not answer from now on."""

    def __init__(self, fleet: Fleet) -> None:
        self.opened: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.cut: set[str] = set()
        self._fleet = fleet

    def open(self, board: Board) -> FakeDoor:
        if board.name in self.cut:
            self.refused[board.name] += 1
            raise UnreachableError("does not answer", where=board.name)
        self.opened[board.name] += 1
        return self._fleet.open(board)


def heart_of(fleet: Fleet, doors: Counted, ttl_s: float) -> Heart:
    holder = Holder.here("c-1")
    lease.take_all(holder, fleet.boards, ttl_s, fleet.open)
    return Heart(holder, {board.name: board for board in fleet.boards}, ttl_s, doors.open)


def test_a_board_that_is_held_long_enough_is_not_asked_before_a_window(fleet: Fleet) -> None:
    doors = Counted(fleet)
    heart = heart_of(fleet, doors, 60.0)
    heart.start()
    try:
        with heart.silent(8.0, ["king"]):
            assert doors.opened == {}
        with heart.silent(100.0, ["king"]):
            assert doors.opened == {"queen": 1}
            assert fleet["queen"].log[-1][1]["ttl_s"] >= 160.0
    finally:
        heart.stop()


def test_no_beat_comes_between_the_end_of_a_window_and_its_collection(fleet: Fleet) -> None:
    """The calls of its run have held the board: the beat that fell into the window is not made up for."""
    doors = Counted(fleet)
    heart = heart_of(fleet, doors, 3.0)
    heart.start()
    try:
        with heart.silent(1.5, ["king", "queen"]):
            time.sleep(1.5)
        time.sleep(0.3)
        assert doors.opened == {}
        until_s = time.monotonic() + 10
        while set(doors.opened) != {"king", "queen"}:
            assert time.monotonic() < until_s, "no beat at all"
            time.sleep(0.02)
    finally:
        heart.stop()


def test_a_wave_costs_one_connection_a_board(bench: Bench, fleet: Fleet, tmp_path: Path) -> None:
    opened, matrix = [], tmp_path / "small.yml"
    for repeats in (1, 3):
        doors = Counted(fleet)
        matrix.write_text(MATRIX.replace("repeats: 1\n", f"repeats: {repeats}\n"))
        assert bench(open_door=doors.open, matrix=matrix).good
        opened.append(doors.opened)
    # Two cells a board and repetition: each is one wave more.
    assert {name: opened[1][name] - opened[0][name] for name in ("king", "queen")} == {"king": 4, "queen": 4}


def test_a_board_that_is_away_at_the_end_is_waited_for_once(bench: Bench, fleet: Fleet) -> None:
    doors = Counted(fleet)
    seen: list[int] = []

    def cut(_: object, args: dict[str, Any]) -> None:
        if "002" in args["run"]:
            doors.cut.add("queen")

    def note(news: Any) -> None:
        if news.phase.value == "restore" and not seen:
            seen.append(doors.refused["queen"])

    fleet["queen"].on("forget", cut)
    outcome = bench(open_door=doors.open, on_progress=note)
    assert "queen" in outcome.not_restored
    assert doors.refused["queen"] - seen[0] == 1
