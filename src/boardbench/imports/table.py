"""CSV as tools write it, read strictly: a row that is not as long as the header is no row."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from boardbench.imports.text import Faults, Line


@dataclass(frozen=True)
class Row:
    """One row: its line in the file, and its fields by column name."""

    line: int
    fields: Mapping[str, str]


def fields_of(text: str) -> list[str]:
    """The fields of one line of CSV. Raises ValueError for quotes that do not close."""
    try:
        return next(csv.reader([text], strict=True), [])
    except (csv.Error, StopIteration) as error:
        raise ValueError(f"is not CSV: {error}") from error


def rows_of(lines: Iterable[Line], faults: Faults) -> tuple[tuple[str, ...], Iterator[Row]]:
    """The header and the rows that fit it; blank lines do not count, all others that do not fit are noted.

    A column name that occurs twice names nothing: both columns are left out.
    """
    usable = faults.records(lines)
    first = next((line for line in usable if line.text.strip()), None)
    if first is None:
        return (), iter(())
    try:
        header = tuple(name.strip() for name in fields_of(first.text))
    except ValueError as error:
        faults.add("malformed-file", str(error), first.number)
        return (), iter(())
    twice = {name for name in header if header.count(name) > 1}
    for name in sorted(twice):
        faults.add("repeated-key", f"the column {name[:60]!r} occurs twice: neither is taken", first.number)
    return tuple(name for name in header if name not in twice), _rows(usable, header, twice, faults)


def _rows(lines: Iterator[Line], header: tuple[str, ...], twice: set[str], faults: Faults) -> Iterator[Row]:
    for line in lines:
        if not line.text.strip():
            continue
        try:
            cells = fields_of(line.text)
        except ValueError as error:
            faults.add("malformed-file", str(error), line.number)
            continue
        if len(cells) != len(header):
            faults.add("malformed-file", f"has {len(cells)} fields, the header has {len(header)}", line.number)
            continue
        named = zip(header, cells, strict=True)
        yield Row(line.number, {name: cell for name, cell in named if name not in twice})
