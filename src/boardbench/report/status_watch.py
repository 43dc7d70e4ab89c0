"""Looking at boards and campaigns again and again without touching a board that is measured."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from boardbench import crew
from boardbench.errors import BenchError, InputError
from boardbench.inventory import Board
from boardbench.matrix import progress_file
from boardbench.report import status

EVERY_S = 5.0
"""How often an idle board is asked."""
BUSY_S = 60.0
"""How often a board is asked that is held for a campaign whose progress is not known here: it may be measured."""
CALL_S = 15.0


class StatusDoor(Protocol):
    """As much of a door as this needs."""

    def call(self, verb: str, args: dict[str, object], *, deadline_s: float) -> Any:
        """One verb."""

    def __enter__(self) -> StatusDoor: ...

    def __exit__(self, *_: Any) -> None: ...


@dataclass
class Watch:
    """The boards, their last answers, and the campaigns below `results_dir`. `ask_all`: also in measured windows."""

    boards: Sequence[Board]
    results_dir: Path
    open_door: Callable[[Board], StatusDoor]
    ask_all: bool = False
    now: Callable[[], float] = time.time
    answers: dict[str, status.Answer] = field(default_factory=dict)
    problems: list[InputError] = field(default_factory=list)

    def campaigns(self) -> list[status.Followed]:
        """What runs now, read anew."""
        found, unreadable = progress_file.running(self.results_dir)
        followed, planless = status.load_campaigns(found)
        self.problems = [*unreadable, *planless]
        return followed

    def ask(self) -> list[str]:
        """Ask every board that is due and may be asked; their names. Errors are answers."""
        campaigns = self.campaigns()
        if self.problems and not self.ask_all:
            # Whose window it is cannot be known from a file that cannot be read.
            return []
        due = [board for board in self.boards if self._due(board, campaigns)]
        for name, value in crew.each(due, self._ask_one).items():
            self.answers[name] = value if isinstance(value, status.Answer) else status.Answer(value, self.now())
        return [board.name for board in due]

    def _due(self, board: Board, campaigns: Sequence[status.Followed]) -> bool:
        last = self.answers.get(board.name)
        if self.ask_all:
            return last is None or self.now() - last.asked_wall_unix_s >= EVERY_S
        campaign = status.followed_by(board, campaigns)
        return status.may_ask(campaign, last, self.now(), every_s=EVERY_S, busy_s=BUSY_S)

    def _ask_one(self, board: Board) -> status.Answer:
        asked_s = self.now()
        try:
            with self.open_door(board) as door:
                return status.Answer(door.call("status", {}, deadline_s=CALL_S), asked_s)
        except BenchError as error:
            return status.Answer(error, asked_s)

    def lines(self) -> list[status.BoardStatus]:
        """One line a board. An answer from before a measured window does not count in it."""
        campaigns, now_s = self.campaigns(), self.now()
        lines = []
        for board in self.boards:
            campaign = status.followed_by(board, campaigns)
            silent = campaign is not None and campaign.hands_off(now_s) != "" and not self.ask_all
            answer = None if silent else self.answers.get(board.name)
            lines.append(status.board_status(board, campaign, answer, now_s))
        return lines

    def notes(self) -> list[str]:
        """What is not known, beside the boards."""
        said = [f"{error}; no board is asked until it can be read" for error in self.problems]
        if not said and not self.campaigns():
            said.append(
                f"no campaign runs from {self.results_dir}; one that runs from elsewhere is known by leases only"
            )
        return said
