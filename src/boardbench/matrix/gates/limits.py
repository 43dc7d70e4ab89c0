"""What the gates compare with: defaults, and what an inventory declares for a board in its `vars`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from boardbench.errors import InputError
from boardbench.inventory import Board

MIN_FREE_BYTES = 64_000_000
"""Kept free beside what the runs leave: below this the board itself is in trouble."""
MIN_INPUT_VOLTS = 4.9
MAX_CLOCK_OFFSET_S = 5.0
"""Runs are timed by the board's own monotonic clock; a wall clock further off than this has no synchronisation."""
MAX_ABOVE_IDLE_CELSIUS = 10.0
MAX_FOREIGN_CPU_SHARE = 0.1
"""Of all CPUs of a board; and `MAX_FOREIGN_CORE_SHARE` of one core for one process."""
MAX_FOREIGN_CORE_SHARE = 0.25


@dataclass(frozen=True)
class Limits:
    """One board's. None: nothing is declared, and the gate says so."""

    min_input_volts: float = MIN_INPUT_VOLTS
    min_free_bytes: int = MIN_FREE_BYTES
    max_clock_offset_s: float = MAX_CLOCK_OFFSET_S
    link: str | None = None
    link_mbit_per_s: float | None = None
    idle_celsius: float | None = None
    max_above_idle_celsius: float = MAX_ABOVE_IDLE_CELSIUS
    max_foreign_cpu_share: float = MAX_FOREIGN_CPU_SHARE
    zone_types: tuple[str, ...] = ("soc-thermal", "tj-thermal")

    @staticmethod
    def of(board: Board, *, estimate_bytes: int = 0, zone_types: Sequence[str] = ()) -> Limits:
        """From the board's inventory variables of the same names. Raises InputError for one that is no number."""
        vars_ = board.vars
        link = vars_.get("link")
        return Limits(
            min_input_volts=_number(board, vars_, "min_input_volts", MIN_INPUT_VOLTS) or 0.0,
            min_free_bytes=MIN_FREE_BYTES + estimate_bytes,
            max_clock_offset_s=_number(board, vars_, "max_clock_offset_s", MAX_CLOCK_OFFSET_S) or 0.0,
            link=None if link is None else str(link),
            link_mbit_per_s=_number(board, vars_, "link_mbit_per_s", None),
            idle_celsius=_number(board, vars_, "idle_celsius", None),
            max_above_idle_celsius=_number(board, vars_, "max_above_idle_celsius", MAX_ABOVE_IDLE_CELSIUS) or 0.0,
            max_foreign_cpu_share=_number(board, vars_, "max_foreign_cpu_share", MAX_FOREIGN_CPU_SHARE) or 0.0,
            zone_types=tuple(zone_types) or Limits.zone_types,
        )


def _number(board: Board, vars_: Mapping[str, object], name: str, default: float | None) -> float | None:
    value = vars_.get(name, default)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"variable '{name}' is {value!r}, not a number", where=board.where)
    return float(value)
