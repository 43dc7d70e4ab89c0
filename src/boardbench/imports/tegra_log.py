"""A log of tegrastats: its lines as columns over time."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field

from boardbench.imports.model import INDEX, LOG, WALL, Fact, Missing, Parsed, Reading, Samples
from boardbench.imports.npu_thermal import Forward
from boardbench.imports.tegrastats import TegraLine, parse_line
from boardbench.imports.text import LONGEST_TEXT, Faults, Line, slug, strict_json

NAN = float("nan")


@dataclass
class _Table:
    """The lines of one board: columns grow as they appear, earlier lines have no reading there."""

    board: str | None
    stamps: list[float | None] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    columns: dict[str, array[float]] = field(default_factory=dict)
    why: dict[str, dict[str, int]] = field(default_factory=dict)
    unread: dict[str, int] = field(default_factory=dict)
    unprivileged: int = 0

    def add(self, line: TegraLine, number: int) -> None:
        """Take one line."""
        rows = len(self.stamps)
        self.stamps.append(line.stamp)
        self.lines.append(number)
        for name, value in line.readings.items():
            column = self.columns.get(name)
            if column is None:
                column = self.columns[name] = array("d")
            if len(column) < rows:
                column.extend([NAN] * (rows - len(column)))
            column.append(self._known(name, value))
        self.unprivileged += line.unprivileged
        if line.unread:
            self.unread[line.unread] = self.unread.get(line.unread, 0) + (len(self.unread) < 50)

    def close(self) -> None:
        """All lines are in: columns that ended early have no reading in the last lines."""
        for column in self.columns.values():
            column.extend([NAN] * (len(self.stamps) - len(column)))

    def _known(self, name: str, value: Reading) -> float:
        if isinstance(value, Missing):
            counts = self.why.setdefault(name, {})
            counts[value.why] = counts.get(value.why, 0) + 1
            return NAN
        return value


def parse(lines: Iterable[Line], name: str, board: str | None) -> Parsed:
    """The log of `board`. Lines of several boards (JSON lines with `line` and `board`) give a table each."""
    faults = Faults(name)
    tables: dict[str | None, _Table] = {}
    for line in faults.usable(lines, longest=LONGEST_TEXT):
        if not line.text.strip():
            continue
        text, whose = _unwrapped(line, board, faults)
        parsed = parse_line(text)
        if parsed is None or not parsed.readings:
            faults.add("malformed-file", "is no line of tegrastats", line.number)
            continue
        for what in parsed.odd:
            faults.add("failed-read", f"{what}: kept as it is", line.number)
        tables.setdefault(whose, _Table(whose)).add(parsed, line.number)
    parts = [_samples(table, name, faults) for table in tables.values()]
    return Parsed(
        samples=tuple(samples for samples, _, _ in parts),
        facts=tuple(fact for _, facts, _ in parts for fact in facts),
        faults=faults.done(),
        not_known=tuple(dict.fromkeys(text for _, _, texts in parts for text in texts)),
    )


def _unwrapped(line: Line, board: str | None, faults: Faults) -> tuple[str, str | None]:
    """The line itself, and whose it is: wrapped in a JSON object when somebody collected lines of several boards."""
    if not line.text.lstrip().startswith("{"):
        return line.text, board
    try:
        value = strict_json(line.text, faults, line.number)
    except ValueError:
        return line.text, board
    if not isinstance(value, dict) or not isinstance(value.get("line"), str):
        return "", board
    told = [value[key] for key in ("board", "jetpack") if isinstance(value.get(key), str) and value[key]]
    return value["line"], slug(" ".join(told)) if told else board


def _samples(table: _Table, name: str, faults: Faults) -> tuple[Samples, tuple[Fact, ...], tuple[str, ...]]:
    table.close()
    not_known = ["power of a rail between two lines: each line is the value of one moment"]
    label = name if table.board is None else f"{name}:{table.board}"
    if table.unprivileged:
        faults.add(
            "unprivileged-read",
            f"{label}: {table.unprivileged} of {len(table.stamps)} lines have no GPU clock: sampled without root",
        )
    keep, times, clock, breaks = _times(table, faults, not_known)
    columns = table.columns if keep is None else _picked(table, keep)
    facts = [
        Fact(f"{column}.missing", f"{count} x {why}", label)
        for column, reasons in sorted(table.why.items())
        for why, count in sorted(reasons.items())
    ]
    facts += [Fact("unread", text, label) for text in sorted(table.unread)]
    return Samples(label, LOG, table.board, clock, times, columns, breaks), tuple(facts), tuple(not_known)


def _picked(table: _Table, keep: list[int]) -> dict[str, array[float]]:
    return {name: array("d", (column[index] for index in keep)) for name, column in table.columns.items()}


def _times(
    table: _Table, faults: Faults, not_known: list[str]
) -> tuple[list[int] | None, array[float], str, tuple[float, ...]]:
    """Which rows can be used (None: all), their times, and by which clock."""
    if any(stamp is None for stamp in table.stamps):
        not_known.append("when each line was made: the lines have no stamp, only their order is known")
        return None, array("d", range(len(table.stamps))), INDEX, ()
    not_known.append("the time zone of the stamps: they are taken as UTC")
    stamps = [stamp for stamp in table.stamps if stamp is not None]
    spread = _within_second(stamps)
    if any(at != whole for at, whole in zip(spread, stamps, strict=True)):
        not_known.append("when in a second a line was made: lines of one second are spaced evenly in it")
    forward, keep = Forward(faults), []
    for index, at in enumerate(spread):
        if forward.take(at, table.lines[index]):
            keep.append(index)
    forward.gaps()
    return keep, forward.times, WALL, tuple(sorted(forward.breaks))


def _within_second(stamps: list[float]) -> list[float]:
    """Lines that share a second, spaced evenly in it."""
    result: list[float] = []
    at = 0
    while at < len(stamps):
        end = at
        while end < len(stamps) and stamps[end] == stamps[at]:
            end += 1
        result += [stamps[at] + step / (end - at) for step in range(end - at)]
        at = end
    return result
