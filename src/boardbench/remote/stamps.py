"""Time as a board tells it: wall clock (may jump), monotonic (still in suspend), boot time (never still)."""

from __future__ import annotations

import os
import time

from .places import Places


def now() -> dict[str, float]:
    """A STAMP: `wall_unix_s`, `monotonic_s`, `boottime_s`, all in seconds."""
    return {"wall_unix_s": time.time(), "monotonic_s": time.monotonic(), "boottime_s": boottime_s()}


def boottime_s() -> float:
    """Seconds since the board booted, suspend included; no clock adjustment changes it."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def boot_id(places: Places) -> str:
    """The kernel's name for this boot; another one means that the board has rebooted."""
    with open(os.path.join(places.proc, "sys/kernel/random/boot_id"), encoding="ascii") as file:
        return file.read().strip()
