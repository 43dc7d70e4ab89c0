"""What a user sees of builds: sentences, and how far the compilers are."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from boardbench.builds.completing import Completer
from boardbench.builds.voice import Voice
from tasks._verb import note

TERMINAL_EVERY_S = 0.2
PLAIN_EVERY_S = 5.0


class _Steps:
    """`[37/220]`: redrawn in place on a terminal, a line now and then elsewhere. On stderr, like every note."""

    def __init__(self) -> None:
        self._last = 0.0
        self._open = False

    def say(self, text: str) -> None:
        self.close()
        note(text)

    def step(self, title: str, done: int, total: int) -> None:
        terminal, now = sys.stderr.isatty(), time.monotonic()
        if done < total and now - self._last < (TERMINAL_EVERY_S if terminal else PLAIN_EVERY_S):
            return
        self._last = now
        if not terminal:
            note(f"{title} [{done}/{total}]")
            return
        print(f"\r{title} [{done}/{total}]\x1b[K", end="\n" if done == total else "", file=sys.stderr, flush=True)
        self._open = done < total

    def close(self) -> None:
        if self._open:
            print(file=sys.stderr)
        self._open = False


def voice() -> Voice:
    """A voice for the user of a verb."""
    steps = _Steps()
    return Voice(steps.say, steps.step)


def completer(rig: Any, *, source: str = "", check: bool = False) -> Completer:
    """Builds what the rig's boards need. `source`: the tarball or checkout that the user names, for all payloads."""
    from boardbench.board import Door

    given = str(Path(source).expanduser().absolute()) if source else ""
    return Completer(
        lambda board: Door.open(board, rig.inventory.known_hosts), voice(), given=given, check=check
    )  # fmt: skip
