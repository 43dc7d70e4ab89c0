"""How far the board's wall clock is off the controller's, by round trips inside one call: the shortest one counts."""

from __future__ import annotations

import time
from typing import Any

from . import stamps
from .wire import Call


def offset(before_s: float, theirs_s: float, after_s: float) -> tuple[float, float]:
    """(seconds that our clock is ahead of theirs, bound of the error). `theirs_s` was read in between."""
    return (before_s + after_s) / 2 - theirs_s, (after_s - before_s) / 2


def clock(call: Call, round_trips: int) -> dict[str, Any]:
    """`{"stamp", "offset_s", "error_s", "round_trips_s"}`; without a round trip offset and error are missing."""
    best: tuple[float, float] | None = None
    trips: list[float] = []
    for _ in range(round_trips):
        began_s, wall_s = time.monotonic(), time.time()
        theirs_s = call.ping()
        took_s = time.monotonic() - began_s
        # By the monotonic clock: a wall clock that is set in this moment must not make a trip look short.
        found = offset(wall_s, theirs_s, wall_s + took_s)
        trips.append(round(took_s, 6))
        if best is None or found[1] < best[1]:
            best = found
    missing = {"missing": "no round trip was asked for"}
    return {
        "stamp": stamps.now(),
        "offset_s": round(best[0], 6) if best else missing,
        "error_s": round(best[1], 6) if best else missing,
        "round_trips_s": trips,
    }
