"""A doubt: what several runs together show against an arm. No decision may rest on what the arm gave on that board."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Doubt:
    """`code` is a word of the closed vocabulary; `what` says it with its numbers. `arms`: all that it is about."""

    board: str
    arms: tuple[str, ...]
    code: str
    what: str

    def as_dict(self) -> dict[str, str]:
        """The doubt as `verdict.json` warns of it."""
        return {"board": self.board, "code": self.code, "what": self.what}


def by_arm(doubts: Iterable[Doubt]) -> dict[tuple[str, str], str]:
    """(board, arm) -> everything that is said against it."""
    found: dict[tuple[str, str], list[str]] = {}
    for doubt in doubts:
        for arm in doubt.arms:
            found.setdefault((doubt.board, arm), []).append(f"{doubt.code}: {doubt.what}")
    return {key: "; ".join(dict.fromkeys(said)) for key, said in found.items()}
