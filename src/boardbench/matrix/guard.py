"""The guard that a run takes to its board: above a temperature the board itself puts the fan back and ends the load.

It does not depend on the link or the controller. A run that it ended is kept, and does not count (`overheated`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from boardbench.inventory import Board
from boardbench.matrix.cooling import Driver
from boardbench.matrix.cooling.from_outside import CommandFan

PERIOD_S = 1.0
"""Board seconds between two looks."""
MIN_PERIOD_S = 0.1
"""Wall seconds: a guard that looks more often would load the board that it guards."""
FAN_RESOURCES = ("sysfs", "fan", "command")


@dataclass(frozen=True)
class Guard:
    """The hottest of these zones (those that the board has) ends the load above the limit."""

    zone_types: tuple[str, ...]
    above_celsius: float

    def body(self) -> dict[str, object]:
        """The guard as the plan locks it."""
        return {**asdict(self), "zone_types": list(self.zone_types)}


DEFAULTS: Mapping[str, Guard] = {
    # The kernel starts to throttle at 99 degC (passive trip) and shuts down at 104.5: below both, and above what the
    # boards show under a load that they can bear without a fan.
    "jetson-orin-nano": Guard(("tj-thermal", "cpu-thermal", "gpu-thermal"), 95.0),
    # Its kernel holds the chip at 85 to 88 degC by the clock; 91.3 is the most that was ever seen on one.
    "nanopi-r76s": Guard(("soc-thermal", "bigcore-thermal", "npu-thermal"), 95.0),
}
"""By kind of board, where a matrix names none. A policy of ours, not a limit of the hardware."""


def guards_of(declared: Guard | None, boards: Sequence[Board]) -> dict[str, Guard]:
    """The guard of each board: the matrix's own, else that of its kind; none for a kind that has no default."""
    found = {board.name: declared or DEFAULTS.get(board.kind) for board in boards}
    return {name: guard for name, guard in found.items() if guard is not None}


def request(guard: Guard | None, driver: Driver | None, time_scale: float) -> dict[str, Any] | None:
    """What the board is asked to do beside the load. The fan is put back by whatever the board itself can switch."""
    if guard is None:
        return None
    by_board = driver is not None and (not driver.outside or (isinstance(driver, CommandFan) and driver.on_board))
    steps = driver.set("active") if driver is not None and by_board else []
    return {
        **guard.body(),
        "period_s": max(PERIOD_S / time_scale, MIN_PERIOD_S),
        "fan": [step for step in steps if step["resource"] in FAN_RESOURCES],
    }
