"""What a page says, before it is HTML or Markdown. All text is plain: whoever writes it out escapes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Cell = str | float | int | None
"""What stands in a table: text, a number, or nothing (shown as a dash, never as 0)."""


@dataclass(frozen=True)
class Table:
    """Rows under named columns. `numeric`: columns set to the right; `notes`: what a reader must know of it.

    `marks`: row number -> `bad` or `good`, for a colour beside the words that say the same.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    numeric: frozenset[int] = frozenset()
    notes: tuple[str, ...] = ()
    caption: str = ""
    folded: bool = False
    marks: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Part:
    """Rows of a data set that share fields: `same` is in each row, `columns` are zipped. Small in a file."""

    same: Mapping[str, Any]
    columns: Mapping[str, Sequence[Any]]

    def rows(self) -> Iterator[dict[str, Any]]:
        """The rows in full."""
        for values in zip(*self.columns.values(), strict=True):
            yield {**self.same, **dict(zip(self.columns, values, strict=True))}


@dataclass(frozen=True)
class Chart:
    """A Vega-Lite drawing. `spec` names its data sets, `data` holds them; widths that say `fill` are the page's.

    `says` is read out in place of the picture; `table` holds its numbers.
    """

    key: str
    title: str
    says: str
    spec: Mapping[str, Any]
    data: Mapping[str, tuple[Part, ...]]
    table: Table | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """A word that was decided (supported, refuted, null, hit, missed, ...), what about, and the numbers behind it."""

    word: str
    name: str
    text: str
    lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class Section:
    """One part of a page, in the order of `lines`, `commands`, `verdicts`, `tables`, `charts`."""

    key: str
    title: str
    lines: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    charts: tuple[Chart, ...] = ()
    commands: tuple[str, ...] = ()
    verdicts: tuple[Verdict, ...] = ()


@dataclass(frozen=True)
class Page:
    """A whole report. `banner`: what must be seen first (virtual boards, an import); empty: nothing of the kind.

    `marks`: facts in a line under the title, as (name, value).
    """

    title: str
    name: str
    question: str
    banner: str
    answer: str
    prediction: Verdict | None
    verdicts: tuple[Verdict, ...]
    domain: str
    marks: tuple[tuple[str, str], ...]
    sections: tuple[Section, ...]

    def charts(self) -> Iterator[Chart]:
        """All charts in order."""
        for section in self.sections:
            yield from section.charts


def shown(value: Cell, digits: int = 4) -> str:
    """A table's cell as text: a dash for nothing, thousands grouped, no float noise."""
    if value is None:
        return "–"
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.{digits}g}"
