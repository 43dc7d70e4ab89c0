"""When the fan is looked at: right before the load and right after it. Between them only the log watches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from boardbench.matrix.cooling.base import Look
from boardbench.results.fetch import DoorLike
from boardbench.results.record import Attempt

if TYPE_CHECKING:
    from boardbench.matrix.run_cell import Bench


def _look(bench: Bench, door: DoorLike) -> Look:
    return Look(door, bench.scope, bench.plan.time_scale, bench.timings.restore_s)


def fan_before(
    bench: Bench, door: DoorLike, board: str, phase: str | None, made: Sequence[Mapping[str, Any]]
) -> tuple[Mapping[str, Any], ...]:
    """Evidence that the fan does what the phase wants; nothing when a setting already failed, or without a phase."""
    driver = bench.drivers.get(board)
    if driver is None or phase is None or any(entry["gate"] == "settings" and not entry["ok"] for entry in made):
        return ()
    found = dict(driver.verify(phase, _look(bench, door)))
    expect = bench.boards[board].cooling.options.get("expect")
    saw = {**found["saw"], "when": "before"}
    if isinstance(expect, Mapping):
        saw["expect"] = {"over_s": expect.get("over_s", 300.0), **dict(expect.get(phase) or {})}
    return ({**found, "saw": saw},)


def fan_after(bench: Bench, door: DoorLike, begun: Attempt) -> tuple[Mapping[str, Any], ...]:
    """Evidence that the fan still is as it was switched: somebody may have had a hand on it meanwhile."""
    driver = bench.drivers.get(begun.board)
    if driver is None or begun.phase is None:
        return ()
    found = dict(driver.verify(begun.phase, _look(bench, door)))
    why = found["why"] and f"after the load: {found['why']}"
    return ({**found, "saw": {**found["saw"], "when": "after"}, "why": why},)
