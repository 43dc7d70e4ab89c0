"""The traps that must be there, in the words of the people who fell into them, and all that are set up."""

from __future__ import annotations

from . import board_life, board_state, made_files, pure_rules
from .harness import Trap

KINDS = (
    "temperature-read-after-the-run",
    "failed-read-stored-as-a-value",
    "column-mix-up",
    "overload-quoted-at-the-operating-point",
    "second-harness",
    "harness-believed-stopped",
    "same-day-result-path",
    "password-in-prose",
    "board-swapped-behind-its-alias",
    "reboot-that-looks-like-slowness",
    "clock-jump-in-mid-run",
    "cache-drop-that-did-not-work",
    "arm-that-did-not-take-effect",
    "fan-switched-in-a-fanless-run",
    "logger-died-or-too-short",
    "disk-filled-in-mid-run",
    "nodes-counted-by-registration",
    "wrong-answers-at-full-speed",
    "damaged-result-file",
    "restore-that-forgets-a-board",
)

TRAPS: tuple[Trap, ...] = (*made_files.TRAPS, *pure_rules.TRAPS, *board_state.TRAPS, *board_life.TRAPS)
