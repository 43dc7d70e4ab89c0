"""What every workload promises: its command line, how its processes are known, and its raw output as samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

PAYLOAD_ROOT = "/opt/boardbench/payloads"
RUN_ROOT = "/var/lib/boardbench/runs"
PYTHON = "/usr/bin/python3"


@dataclass(frozen=True)
class Harness:
    """How the board knows processes of ours: by executable, by script or by unit; never by a pattern."""

    executables: tuple[str, ...] = ()
    scripts: tuple[str, ...] = ()
    units: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, object]:
        """The harness as the wire carries it."""
        return {"executables": list(self.executables), "scripts": list(self.scripts), "units": list(self.units)}

    def joined(self, other: Harness) -> Harness:
        """Both harnesses in one."""
        return Harness(self.executables + other.executables, self.scripts + other.scripts, self.units + other.units)


@dataclass(frozen=True)
class Interval:
    """Work done between two readings of the board's monotonic clock (seconds as the board's clock counts them)."""

    index: int
    start_monotonic_s: float
    end_monotonic_s: float
    amount: float
    rate_per_s: float


@dataclass(frozen=True)
class ClosedLoop:
    """What a load generator with a fixed number of requests under way measured over its window."""

    concurrency: float
    rate_per_s: float
    mean_latency_s: float


@dataclass(frozen=True)
class Count:
    """One number of something, where it comes from, and its unit: only equal units can be compared."""

    source: str
    value: float
    unit: str


@dataclass(frozen=True)
class Pair:
    """The same quantity from two sources that know nothing of each other."""

    what: str
    parsed: Count
    independent: Count


@dataclass(frozen=True)
class Answers:
    """Who was asked to take part, and how many samples came from whom. A registration is no answer."""

    asked: tuple[str, ...]
    counted: Mapping[str, int]


@dataclass(frozen=True)
class Figure:
    """A figure of a whole run that is no rate over time, in the base unit that `Traits.figures` names; `value` is None
    when it was not measured, and `why` says so."""

    value: float | None
    why: str = ""


@dataclass(frozen=True)
class Outputs:
    """What the load was answered, to compare runs with each other: equal work must give equal answers.

    `family`: what decides the answers (model, prompts, length); only runs of one family are compared. `texts`: name of
    the request -> hash of its answer. `perplexity`: None when it was not measured; `perplexity_of`: of which text, cut
    how.
    """

    family: str
    texts: Mapping[str, str]
    perplexity: float | None = None
    perplexity_of: str = ""


@dataclass(frozen=True)
class Golden:
    """What each node made of one and the same input before the load: node -> hashes of its outputs, in order.

    `alike`: nodes whose outputs must be equal (none named: all). `why`: what the load generator itself has against it.
    """

    outputs: Mapping[str, tuple[str, ...]]
    alike: tuple[tuple[str, ...], ...] = ()
    why: str = ""


@dataclass(frozen=True)
class Effect:
    """What an arm should do to the load, as its own output shows it. `saw`: the numbers; `why`: empty when seen."""

    what: str
    saw: Mapping[str, object]
    why: str = ""


@dataclass(frozen=True)
class Samples:
    """A workload's raw output, read. `unit` is what is counted, for example `operations`.

    `end_stamp`: the board's clocks when the load ended by itself; None when it did not.

    A workload only declares the quantities that its output yields; None (or empty) is one that it does not. The rules
    over them are applied to every run of every workload: `total`, its own count of the whole, must be the sum of the
    intervals; `pairs` must agree; `answers` must come from whom was asked; `golden` outputs must be equal;
    `closed_loop` must obey Little's law, and its rate is a point of the arm's load curve.

    `separate`: intervals are pieces of work of their own, with time between them; `planned`: how many there should be.
    `figures`, `outputs`, `effects`: see their classes. `counters`: numbers of the run that two different arms never
    have in common (without them: the intervals' amounts).
    """

    unit: str
    intervals: tuple[Interval, ...]
    ended_by_itself: bool
    end_reason: str
    end_stamp: Mapping[str, float] | None
    virtual: bool
    closed_loop: ClosedLoop | None = None
    total: float | None = None
    pairs: tuple[Pair, ...] = ()
    answers: Answers | None = None
    golden: Golden | None = None
    separate: bool = False
    planned: int | None = None
    figures: Mapping[str, Figure] = field(default_factory=dict)
    outputs: Outputs | None = None
    effects: tuple[Effect, ...] = ()
    counters: tuple[float, ...] = ()

    @property
    def window_monotonic_s(self) -> tuple[float, float] | None:
        """From the start of the first interval to the end of the last; None when there is no interval."""
        if not self.intervals:
            return None
        return self.intervals[0].start_monotonic_s, self.intervals[-1].end_monotonic_s


@dataclass(frozen=True)
class Chain:
    """Short runs with pauses instead of one continuous load; every pause gives a hot board its clock back."""

    run_s: float
    gap_s: float


@dataclass(frozen=True)
class Durations:
    """Times in seconds as the board's clock counts them, that is already divided by the time scale.

    `chain`: None for one continuous load. The duration is that of the whole, pauses included. `lead_s`: from the
    program's start to the load's, so that whoever started it has left; not part of the duration.
    """

    duration_s: float
    interval_s: float
    chain: Chain | None = None
    lead_s: float = 0.0


@dataclass(frozen=True)
class Traits:
    """In what a workload differs from a load of fixed duration.

    - `ends_by_work`: it ends when its work is done, and that takes real time also where a board's time is scaled; the
      matrix's duration is the longest that it may take;
    - `cold_files`: from the options, files on the board whose pages must be cold at the start, beside the payload's;
    - `board_options`: option -> variable of the inventory that gives its value where the matrix does not;
    - `figures`: name of a figure of its own -> unit -> what the base unit is multiplied by;
    - `level_words`: option -> how a factor's levels call its values, where those have hyphens or are no words;
    - `options`: all that a matrix may give it. What is not among them is refused, since it would change nothing.
    """

    ends_by_work: bool = False
    cold_files: Callable[[Mapping[str, object]], tuple[str, ...]] = field(default=lambda _: ())
    board_options: Mapping[str, str] = field(default_factory=dict)
    figures: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    level_words: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    options: tuple[str, ...] = ()


class Workload(Protocol):
    """One kind of load. Raw output lies in the run's `workload/` folder.

    `concurrency_option`: the option that sets how many requests are under way; arms that differ in nothing else are
    one load curve. None for a load that has no such thing.
    """

    name: str
    harness: Harness
    raw_files: tuple[str, ...]
    concurrency_option: str | None
    traits: Traits

    def argv(self, run: str, options: Mapping[str, object], durations: Durations) -> list[str]:
        """The command line on the board for run `run`; first element an absolute path."""
        ...

    def read(self, raw: Path) -> Samples:
        """Samples from the folder `workload/` as it was fetched. Raises InputError (missing or malformed file)."""
        ...


def run_folder(run: str) -> str:
    """Where a run is staged on the board."""
    return f"{RUN_ROOT}/{run}"


def script(payload: str, name: str) -> str:
    """Absolute path of a payload's script on the board."""
    return f"{PAYLOAD_ROOT}/{payload}/{name}"


def seconds_text(value: float) -> str:
    """Seconds for a command line: plain decimal, neither an exponent nor float noise (microseconds are enough)."""
    return f"{value:.6f}".rstrip("0").rstrip(".")
