"""Ends a load that gets too hot, on the board itself: no link and no controller is needed for it.

Loaded by `supervise.py` as a plain file, so it imports nothing of ours. It cools first (the fan), then ends the load.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
from typing import Any, Callable

# One odd reading ends no run; a board does not heat much between two looks.
HOT_LOOKS = 2
# A guard that cannot see is none: after so many looks without one reading the load ends too.
BLIND_LOOKS = 10
COMMAND_S = 20.0
ZONES = "/sys/class/thermal"


def zones_celsius() -> dict[str, float]:
    """The temperature of every zone that answers, by type; of two of a type the first. One that fails is left out."""
    found: dict[str, float] = {}
    try:
        zones = sorted(name for name in os.listdir(ZONES) if name.startswith("thermal_zone"))
    except OSError:
        return found
    for zone in sorted(zones, key=lambda name: (len(name), name)):
        try:
            kind = _small_file(os.path.join(ZONES, zone, "type"))
            if kind not in found:
                found[kind] = int(_small_file(os.path.join(ZONES, zone, "temp"))) / 1000
        except (OSError, ValueError):
            continue
    return found


def _small_file(path: str) -> str:
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return os.read(fd, 4096).decode("utf-8", "replace").strip()
    finally:
        os.close(fd)


class HeatGuard(threading.Thread):
    """Looks at the zones every `period_s` seconds until `stop`.

    `request`: `{"zone_types", "above_celsius", "period_s", "fan": [{"path", "value"} | {"argv"}]}`, paths as the board
    has them. `read` gives degrees Celsius by zone type; `end` ends the load.
    """

    def __init__(
        self, request: dict[str, Any], read: Callable[[], dict[str, float]], end: Callable[[], object]
    ) -> None:
        super().__init__(daemon=True)
        self._request = request
        self._read = read
        self._end = end
        self._over = threading.Event()
        self._looks = self._hot = self._blind = 0
        self._highest: float | None = None
        self._tripped: dict[str, Any] | None = None

    def run(self) -> None:
        """Looks, and acts once."""
        while self._tripped is None and not self._over.wait(float(self._request["period_s"])):
            self._look()

    def _look(self) -> None:
        zones = self._read()
        seen = {zone: zones[zone] for zone in self._request["zone_types"] if zone in zones}
        self._looks += 1
        self._blind = 0 if seen else self._blind + 1
        zone = max(seen, key=lambda name: seen[name]) if seen else None
        if zone is not None:
            self._highest = seen[zone] if self._highest is None else max(self._highest, seen[zone])
        hot = zone is not None and seen[zone] > float(self._request["above_celsius"])
        self._hot = self._hot + 1 if hot else 0
        if self._hot < HOT_LOOKS and self._blind < BLIND_LOOKS:
            return
        self._tripped = {"monotonic_s": time.monotonic(), "zone": zone, "celsius": seen[zone] if zone else None}
        try:
            self._tripped["fan"] = [self._cool(action) for action in self._request["fan"]]
        finally:
            # Whatever became of the fan.
            self._end()

    def _cool(self, action: dict[str, Any]) -> dict[str, Any]:
        """One step to put the fan back, and what came of it."""
        try:
            if "argv" in action:
                done = subprocess.run(
                    [str(word) for word in action["argv"]], stdin=subprocess.DEVNULL, timeout=COMMAND_S, check=False
                )
                return dict(action, ok=done.returncode == 0, why=f"exit code {done.returncode}")
            with open(str(action["path"]), "w", encoding="ascii") as file:
                file.write(str(action["value"]) + "\n")
            with open(str(action["path"]), encoding="ascii") as file:
                now = file.read().strip()
            return dict(action, ok=now == str(action["value"]), why=f"reads {now}")
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            return dict(action, ok=False, why=str(error))

    def stop(self) -> dict[str, Any]:
        """Ends it and says what it saw."""
        self._over.set()
        # A fan's command may be under way.
        self.join(COMMAND_S + 5.0)
        return {
            "zone_types": list(self._request["zone_types"]),
            "above_celsius": self._request["above_celsius"],
            "looks": self._looks,
            "highest_celsius": self._highest,
            "tripped": self._tripped,
        }


def started(request: dict[str, Any] | None, end: Callable[[], object]) -> HeatGuard | None:
    """A guard that watches already; None without a request."""
    if request is None:
        return None
    guard = HeatGuard(request, zones_celsius, end)
    guard.start()
    return guard
