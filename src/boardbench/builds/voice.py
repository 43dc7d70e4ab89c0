"""What a build tells whoever waits for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


def _nothing(*_: object) -> None:
    return None


@dataclass(frozen=True)
class Voice:
    """`say` takes a sentence; `step` takes what is built and how many of how many pieces are done."""

    say: Callable[[str], None] = _nothing
    step: Callable[[str, int, int], None] = _nothing
