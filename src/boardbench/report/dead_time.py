"""The dead time of a campaign as its own files tell it, and as a line of the report."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from boardbench.analysis.deadtime import DeadTime, Gap, Note, dead_time
from boardbench.errors import InputError
from boardbench.results import store
from boardbench.results.verdict import whole_run

GOAL_S = 2.0
"""The median that virtual boards are to stay below."""


def dead_time_of(folder: Path, plan: Mapping[str, Any]) -> DeadTime:
    """From the journal and the whole attempts of a campaign. Raises InputError for a journal that is broken."""
    notes: list[Note] = []
    try:
        for _, line in store.read_lines(folder / "journal.jsonl"):
            if isinstance(line, dict) and isinstance(line.get("fields"), dict):
                notes.append(Note(float(line["monotonic_s"]), str(line["event"]), line["fields"]))
    except InputError as error:
        # A killed controller may leave half a line at the end; what stood before it is good.
        if "cut off" not in error.what:
            raise
    runs = [run for path in sorted(folder.glob("cells/*/attempt-*")) if (run := whole_run(path)) is not None]
    return dead_time(notes, runs, {str(cell["name"]): int(cell["wave"]) for cell in plan["cells"]})


def dead_time_line(dead: DeadTime) -> str:
    """One line: the median and where it goes."""
    median_s = dead.median_s
    if median_s is None:
        return f"dead time between cells: not known, {dead.why_none}"

    def part(of: Callable[[Gap], float]) -> str:
        return f"{statistics.median(of(gap) for gap in dead.gaps):.1f} s"

    return (
        f"dead time between cells: {median_s:.1f} s median of {len(dead.gaps)} "
        f"(collect {part(lambda gap: gap.collect_s)}, prepare {part(lambda gap: gap.prepare_s)}, "
        f"start {part(lambda gap: gap.start_s)}), apart from cool-down {part(lambda gap: gap.cooling_s)} "
        f"and declared waits {part(lambda gap: gap.waits_s)}"
    )
