"""The NPU rig's thermal log: space-separated, one row about every 1.1 s, whole seconds of the wall clock.

The logger writes 0 for a read that failed: such a reading is missing here.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median

from boardbench.imports.model import LOG, WALL, Missing, Parsed, Samples
from boardbench.imports.text import Faults, Line, reading

COLUMNS = {
    "soc_c": ("soc-thermal_celsius", 1.0),
    "npu_c": ("npu-thermal_celsius", 1.0),
    "ddr_c": ("ddr-thermal_celsius", 1.0),
    "bigcore_c": ("bigcore-thermal_celsius", 1.0),
    "cpu_mhz": ("policy4_cur_khz", 1e3),
    "npu_mhz": ("npu_cur_hz", 1e6),
    "volt_v": ("input_volts", 1.0),
}
GAP_PERIODS = 2.5
JUMP_S = 3600.0
"""A step forward by more is the wall clock being set; a shorter one is a logger that paused."""


def is_header(text: str) -> bool:
    """Whether a file that begins with this line is such a log."""
    names = text.split()
    return len(names) > 1 and names[0] == "epoch" and set(names[1:]) <= set(COLUMNS)


@dataclass
class Forward:
    """Times that only go forward: what stands still or goes back is named and left out."""

    faults: Faults
    times: array[float] = field(default_factory=lambda: array("d"))
    breaks: list[float] = field(default_factory=list)

    def take(self, at: float, line: int) -> bool:
        """Whether the row at this time may be used."""
        if self.times and at <= self.times[-1]:
            by = self.times[-1] - at
            what = "stands still" if by == 0 else f"goes back by {by:g} s"
            self.faults.add("clock-jump", f"the clock {what} at {at:.3f}: the row is left out", line)
            if by > 0:
                self.breaks.append(self.times[-1])
            return False
        if self.times and at - self.times[-1] > JUMP_S:
            self.faults.add("clock-jump", f"the clock goes forward by {at - self.times[-1]:.3f} s in one step", line)
            self.breaks += [self.times[-1], at]
        self.times.append(at)
        return True

    def gaps(self) -> None:
        """Name the holes: steps over 2.5 times the usual one."""
        if len(self.times) < 3:
            return
        steps = [after - before for before, after in zip(self.times, self.times[1:], strict=False)]
        usual = median(steps)
        holes = [
            (step, at) for step, at in zip(steps, self.times, strict=False) if GAP_PERIODS * usual < step <= JUMP_S
        ]
        if holes:
            worst, at = max(holes)
            self.faults.add(
                "logger-gap",
                f"{len(holes)} holes over {GAP_PERIODS * usual:.1f} s, the longest {worst:.1f} s at {at:.0f}",
            )
            self.breaks += [at + 1e-3 for _, at in holes]


def parse(lines: Iterable[Line], name: str, board: str) -> Parsed:
    """The log as samples of `board`. Nothing usable: empty, with faults."""
    faults = Faults(name)
    usable = faults.usable(lines)
    first = next((line for line in usable if line.text.strip()), None)
    if first is None or not is_header(first.text):
        faults.add("malformed-file", "has no header of a thermal log", first.number if first else None)
        return Parsed(faults=faults.done())
    header = first.text.split()
    if len(set(header)) != len(header):
        faults.add("repeated-key", "the header names a column twice", first.number)
        return Parsed(faults=faults.done())
    forward = Forward(faults)
    columns: dict[str, array[float]] = {COLUMNS[column][0]: array("d") for column in header[1:]}
    for line in usable:
        cells = line.text.split()
        if not cells:
            continue
        if len(cells) != len(header):
            faults.add("malformed-file", f"has {len(cells)} fields, the header has {len(header)}", line.number)
            continue
        _row(header, cells, line.number, forward, columns, faults)
    forward.gaps()
    _zero_columns(columns, faults)
    table = Samples(name, LOG, board, WALL, forward.times, columns, tuple(sorted(forward.breaks)))
    return Parsed(
        samples=(table,) if table.rows else (),
        faults=faults.done(),
        not_known=(
            "the logs' boot ids and monotonic clocks: they hold whole seconds of a wall clock that may have been set",
            "scaling_max_freq: the logs hold only the current CPU clock, which idling can lower too",
        ),
    )


def _row(
    header: Sequence[str],
    cells: Sequence[str],
    line: int,
    forward: Forward,
    columns: dict[str, array[float]],
    faults: Faults,
) -> None:
    stamp = reading(cells[0])
    if isinstance(stamp, Missing) or stamp <= 0:
        faults.add("malformed-file", f"epoch is {cells[0][:40]!r}", line)
        return
    values: dict[str, float] = {}
    for column, cell in zip(header[1:], cells[1:], strict=True):
        target, factor = COLUMNS[column]
        value = reading(cell)
        if isinstance(value, Missing):
            faults.add("malformed-file", f"{column}: {value.why}", line)
        # The logger's own fallback for a failed read is 0, and none of these can be 0 on a board that runs.
        values[target] = float("nan") if isinstance(value, Missing) or value == 0.0 else value * factor
    if forward.take(stamp, line):
        for target, known in values.items():
            columns[target].append(known)


def _zero_columns(columns: dict[str, array[float]], faults: Faults) -> None:
    for name, values in columns.items():
        lost = sum(1 for value in values if value != value)
        if values and lost == len(values):
            faults.add("failed-read", f"{name} was never read: 0 or unreadable in all {lost} rows")
        elif lost:
            faults.add("failed-read", f"{name}: {lost} of {len(values)} readings failed (0 in the log)")
