"""Fans back on at the end of a campaign: those that no board can switch back by itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from boardbench.errors import BenchError
from boardbench.matrix.cooling.base import Step
from boardbench.matrix.cooling.from_outside import ManualFan
from boardbench.matrix.progress import Phase, Progress

if TYPE_CHECKING:
    from boardbench.matrix.run_cell import Bench


def fans_back(bench: Bench, phases: Mapping[str, tuple[str, list[Step]]]) -> dict[str, str]:
    """Switch them on, which harms no board; by board, why that is not proved. A person is told, not asked."""
    failed: dict[str, str] = {}
    for name, (phase, _) in phases.items():
        driver = bench.drivers[name]
        if phase == "active" or not driver.outside:
            continue
        if isinstance(driver, ManualFan):
            told = Progress(Phase.RESTORE, "the fan may still be switched off: switch it on by hand", name)
            bench.on_progress(told)
            continue
        try:
            steps = driver.set("active")
            if steps:
                args = {"scope": bench.scope, "steps": steps, "check": False, "diff": False, "stop_on_failure": True}
                with bench.open_door(bench.boards[name]) as door:
                    door.call("apply", args, deadline_s=bench.timings.restore_s)
        except BenchError as error:
            failed[name] = f"fan: {error}"
    return failed
