"""The raw files that boards write, read strictly: `thermal.csv` and `burn.jsonl`. Pure functions over files."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from boardbench.errors import InputError
from boardbench.results import store
from boardbench.results.problems import Problem

CLOCKS = ("wall_unix_s", "monotonic_s", "boottime_s", "lateness_s")
_COLUMN = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9_.-]*_celsius(_[0-9]+)?"
    r"|[A-Za-z0-9][A-Za-z0-9_.-]*_(cur|max)_(khz|hz)(_[0-9]+)?"
    r"|input_volts|[A-Za-z0-9][A-Za-z0-9_.-]*_watts(_[0-9]+)?|fan_pwm|fan_rpm"
)
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?")
# A suffix `_2` after the unit: the second zone of one type. The type may also be numbered before the unit.
_TEMPERATURE = re.compile(r".+_celsius(_[0-9]+)?")
ZERO_STEP_CELSIUS = 20.0
"""No part of a board cools to exactly 0.0 and warms again by this much from one row to the next."""


@dataclass(frozen=True)
class ThermalLog:
    """A thermal log. A reading that failed is None, never a number. `lines[i]` is the file's line of row i."""

    columns: tuple[str, ...]
    rows: tuple[tuple[float | None, ...], ...]
    missing: tuple[str, ...]
    lines: tuple[int, ...]

    def column(self, name: str) -> list[float | None]:
        """All values of one column."""
        index = self.columns.index(name)
        return [row[index] for row in self.rows]

    def clock(self, name: str) -> list[float]:
        """All values of one of the clock columns, which are never missing in a log without problems."""
        return [value for value in self.column(name) if value is not None]

    def temperatures(self) -> tuple[str, ...]:
        """Names of the temperature columns."""
        return tuple(name for name in self.columns if _TEMPERATURE.fullmatch(name))


def read_thermal(path: Path) -> tuple[ThermalLog | None, list[Problem]]:
    """The log and everything that is wrong with it; None when it cannot be read as a table at all.

    `Problem.file` is the file's name.
    """
    name = path.name
    try:
        text = path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        return None, [Problem(name, None, f"cannot be read: {error}")]
    if "\r" in text or "\0" in text:
        return None, [Problem(name, None, "has line ends or bytes that a thermal log does not have")]
    table = list(csv.reader(text.splitlines()))
    if not table:
        return None, [Problem(name, None, "is empty")]
    header = tuple(table[0])
    problems = [Problem(name, 1, what) for what in _header_faults(header)]
    if problems:
        return None, problems
    if not text.endswith("\n"):
        problems.append(Problem(name, len(table), "the last row is cut off"))
        table.pop()
    rows: list[tuple[float | None, ...]] = []
    missing: list[str] = []
    lines: list[int] = []
    for number, cells in enumerate(table[1:], start=2):
        values, faults = _row(header, cells)
        problems += [Problem(name, number, what) for what in faults]
        if values is not None:
            rows.append(values)
            missing.append(cells[-1])
            lines.append(number)
    log = ThermalLog(header[:-1], tuple(rows), tuple(missing), tuple(lines))
    problems += [Problem(name, line, what) for line, what in _table_faults(log)]
    return log, problems


def _header_faults(header: tuple[str, ...]) -> Iterator[str]:
    if header[: len(CLOCKS)] != CLOCKS:
        yield f"the first columns must be {', '.join(CLOCKS)}"
    if header[-1] != "missing":
        yield "the last column must be 'missing'"
    for column in header[len(CLOCKS) : -1]:
        if not _COLUMN.fullmatch(column):
            yield f"unknown column '{column}', or one without a unit in its name"
    for column in sorted({column for column in header if header.count(column) > 1}):
        yield f"column '{column}' occurs twice"


def _row(header: tuple[str, ...], cells: list[str]) -> tuple[tuple[float | None, ...] | None, list[str]]:
    if len(cells) != len(header):
        return None, [f"has {len(cells)} fields, the header has {len(header)}"]
    faults: list[str] = []
    values: list[float | None] = []
    for column, cell in zip(header[:-1], cells[:-1], strict=True):
        if cell == "":
            values.append(None)
            continue
        if not _NUMBER.fullmatch(cell) or not math.isfinite(float(cell)):
            faults.append(f"{column} is {cell!r}, not a finite number")
            values.append(None)
            continue
        values.append(float(cell))
    named = [entry.partition("=") for entry in cells[-1].split(";")] if cells[-1] else []
    without_why = [column for column, _, why in named if not why]
    if without_why:
        faults.append(f"'missing' gives no reason for {', '.join(without_why)}")
    empty = {column for column, cell in zip(header[:-1], cells[:-1], strict=True) if cell == ""}
    if empty != {column for column, _, _ in named} or len(named) != len(empty):
        faults.append("the empty fields are not the ones that 'missing' names")
    if empty & set(CLOCKS):
        faults.append("a clock is missing")
    return (None if empty & set(CLOCKS) or faults else tuple(values)), faults


def _table_faults(log: ThermalLog) -> Iterator[tuple[int | None, str]]:
    if not log.rows:
        yield None, "has no usable row"
        return
    clock = log.clock("monotonic_s")
    for before, after, line in zip(clock, clock[1:], log.lines[1:], strict=False):
        if after <= before:
            yield line, f"monotonic_s goes from {before} to {after}"
    for column in log.temperatures():
        values = [value for value in log.column(column) if value is not None]
        if len(values) > 1 and not any(values):
            yield None, f"{column} is 0.0 in all rows: a failed reading is missing, not zero"
        yield from _zeros_among_others(log, column)


def _zeros_among_others(log: ThermalLog, column: str) -> Iterator[tuple[int, str]]:
    """Single zeros that no heat can explain: exactly 0.0 next to readings far from it, on both sides."""
    known = [(line, value) for line, value in zip(log.lines, log.column(column), strict=True) if value is not None]
    for (_, before), (line, value), (_, after) in zip(known, known[1:], known[2:], strict=False):
        if value == 0.0 and min(before, after) > ZERO_STEP_CELSIUS:
            yield line, f"{column} is 0.0 between {before} and {after}: a failed reading is missing, not zero"


def burn_window(path: Path) -> tuple[float, float] | None:
    """First start and last end of the intervals in `burn.jsonl`; None when there is none. Raises InputError."""
    start: float | None = None
    end: float | None = None
    for number, event in store.read_lines(path):
        if not isinstance(event, dict):
            raise InputError("is not an object", where=f"{path}:{number}")
        if event.get("event") != "interval":
            continue
        first, last = event.get("start_monotonic_s"), event.get("end_monotonic_s")
        if not isinstance(first, int | float) or not isinstance(last, int | float):
            raise InputError("an interval without its times", where=f"{path}:{number}")
        start = float(first) if start is None else start
        end = float(last)
    return None if start is None or end is None else (start, end)
