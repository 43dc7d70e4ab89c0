"""What a campaign tells while it runs; who shows it is somebody else's business."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from boardbench.secretwords import REGISTRY


class Phase(StrEnum):
    """Where a campaign, or one board in it, stands."""

    FACTS = "facts"
    LEASE = "lease"
    COOLING = "cooling"
    PREPARE = "prepare"
    START = "start"
    MEASURE = "measure"
    COLLECT = "collect"
    RETRY = "retry"
    RESTORE = "restore"
    DONE = "done"
    LOST = "lost"


@dataclass(frozen=True)
class Progress:
    """One piece of news, without known secrets.

    `board` is None when it is about all boards; `eta_s` is wall seconds to the campaign's end.
    """

    phase: Phase
    message: str
    board: str | None = None
    wave: int | None = None
    waves: int | None = None
    eta_s: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", REGISTRY.hide(self.message))


OnProgress = Callable[[Progress], None]
"""Called from any thread; it must not raise and must not block for long."""


def silent(_: Progress) -> None:
    """For callers that want no news."""
