"""What an import is made of: runs, samples, facts, and everything that is wrong with them or cannot be known."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from boardbench.results.problems import REASON_CODES


@dataclass(frozen=True)
class Missing:
    """A value that is not there, and why. Never 0, NaN or blank."""

    why: str


Reading = float | Missing
FactValue = float | str | bool | tuple[float, ...] | tuple[str, ...] | Missing


@dataclass(frozen=True, order=True)
class Fault:
    """What is wrong with a source: a word of `REASON_CODES`, where (`file:line`), and one sentence."""

    code: str
    where: str
    detail: str

    def __post_init__(self) -> None:
        if self.code not in REASON_CODES:
            raise ValueError(f"{self.code!r} is no reason code")


@dataclass(frozen=True)
class Run:
    """One measured run of a source.

    `boards`: who ran it, empty when the source does not say. `arm`: factor -> level. `window_unix_s`: the load's own
    start and end by the source's wall clock. `metrics`: by name, the unit is in the name. `extra`: what the source
    holds beside, as text. `reasons`: why it does not count, none: nothing speaks against it.
    """

    source: str
    arm: Mapping[str, str]
    metrics: Mapping[str, Reading]
    boards: tuple[str, ...] = ()
    repetition: int = 1
    phase: str | None = None
    window_unix_s: tuple[float, float] | Missing = Missing("the source does not say when the load ran")
    extra: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    reasons: tuple[tuple[str, str], ...] = ()


LOG, REQUESTS, INTERVALS = "log", "requests", "intervals"
WALL, MONOTONIC, INDEX = "wall", "monotonic", "index"


@dataclass(frozen=True)
class Samples:
    """Readings in columns of equal length; NaN inside `values` is a missing reading (it never leaves as a number).

    `clock`: what `time_s` is: `wall` (Unix seconds), `monotonic`, or `index` (only the order is known). `time_s`
    always goes forward. `breaks`: times at which the source's clock or logger did not go on as before.
    """

    name: str
    what: str
    board: str | None
    clock: str
    time_s: array[float]
    values: Mapping[str, array[float]]
    breaks: tuple[float, ...] = ()

    def column(self, name: str) -> list[float | None]:
        """One column with None for missing readings."""
        return [None if math.isnan(value) else value for value in self.values[name]]

    @property
    def rows(self) -> int:
        """How many readings each column has."""
        return len(self.time_s)


@dataclass(frozen=True)
class Fact:
    """Something that a source states once: a name (with its unit), a value, and where it stands."""

    name: str
    value: FactValue
    source: str


@dataclass(frozen=True)
class Parsed:
    """All that one source (or several together) says."""

    runs: tuple[Run, ...] = ()
    samples: tuple[Samples, ...] = ()
    facts: tuple[Fact, ...] = ()
    faults: tuple[Fault, ...] = ()
    not_known: tuple[str, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether nothing in it can be used."""
        return not (self.runs or self.samples or self.facts)


def joined(parts: Sequence[Parsed]) -> Parsed:
    """Several parts as one, in order; what is not known is said once."""
    return Parsed(
        runs=tuple(run for part in parts for run in part.runs),
        samples=tuple(table for part in parts for table in part.samples),
        facts=tuple(fact for part in parts for fact in part.facts),
        faults=tuple(fault for part in parts for fault in part.faults),
        not_known=tuple(dict.fromkeys(text for part in parts for text in part.not_known)),
    )
