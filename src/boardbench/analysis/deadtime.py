"""How long boards stand idle between the loads of a campaign, and with what: what cools, what waits, what is ours.

Pure: from the lines of a campaign's journal and its run.json documents. All times are seconds of the controller's
monotonic clock. When a load ended is told by its board, as a length since its start, so clocks are never compared.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

WAITED = "waited"
"""Event of a declared wait: for a hand, a switch, or a time that the matrix asks for; `took_s` says how long."""


@dataclass(frozen=True)
class Note:
    """One line of the journal."""

    monotonic_s: float
    event: str
    fields: Mapping[str, Any]


@dataclass(frozen=True)
class Gap:
    """The time between the loads of two waves that follow each other, and its parts, which add up to it.

    `start_s` ends where the load begins, not where its program does. `cooling_s`: the start gate was waited for.
    `waits_s`: fans were switched from outside the board, perhaps by hand; or boards that work together found each
    other and warmed up in the time that their workload declares for it.
    """

    after_wave: int
    total_s: float
    collect_s: float
    waits_s: float
    prepare_s: float
    cooling_s: float
    start_s: float

    @property
    def dead_s(self) -> float:
        """What neither cools nor was declared: collecting, preparing, starting."""
        return self.total_s - self.cooling_s - self.waits_s

    def as_json(self) -> dict[str, object]:
        """The gap with its parts, rounded to milliseconds."""
        parts = {name: round(value, 3) for name, value in vars(self).items() if name != "after_wave"}
        return {"after_wave": self.after_wave, "dead_s": round(self.dead_s, 3), **parts}


@dataclass(frozen=True)
class DeadTime:
    """The gaps of a campaign in order; `why_none` where there is none."""

    gaps: tuple[Gap, ...]
    why_none: str = ""

    @property
    def median_s(self) -> float | None:
        """The median of the dead times; None when there is no gap."""
        return statistics.median(gap.dead_s for gap in self.gaps) if self.gaps else None

    def as_json(self) -> dict[str, object]:
        """`median` and `per_wave`; a median that is not known is `{"missing": why}`."""
        median_s = self.median_s
        return {
            "median": round(median_s, 3) if median_s is not None else {"missing": self.why_none},
            "per_wave": [gap.as_json() for gap in self.gaps],
        }


@dataclass
class _Wave:
    """Cells that started together, as the journal saw them. `waits_s`: declared waits before their preparation."""

    wave: int
    waits_s: float
    runs: dict[str, str] = field(default_factory=dict)
    prepare_s: list[float] = field(default_factory=list)
    start_s: list[float] = field(default_factory=list)
    assembly_s: float = 0.0
    started_s: dict[str, float] = field(default_factory=dict)
    collected_s: list[float] = field(default_factory=list)

    def takes(self, wave: int, cell: str, run: str) -> bool:
        """Whether a preparation belongs to it: before its start, and not the next attempt of a cell that it has."""
        return not self.start_s and self.wave == wave and self.runs.get(cell, run) == run


def dead_time(notes: Iterable[Note], runs: Sequence[Mapping[str, Any]], wave_of: Mapping[str, int]) -> DeadTime:
    """The dead time of a campaign. `wave_of`: cell -> wave, from the plan; `runs`: the run.json of every attempt.

    A campaign that was resumed has no gap where its controller was away, and none where a wave could not be measured.
    """
    by_run = {str(run["run"]): run for run in runs}
    gaps: list[Gap] = []
    for before, after in _pairs(_waves(notes, wave_of)):
        gap = _gap(before, after, by_run)
        if gap is not None:
            gaps.append(gap)
    return DeadTime(tuple(gaps), "" if gaps else "no two loads of one controller follow each other")


def _waves(notes: Iterable[Note], wave_of: Mapping[str, int]) -> list[_Wave | None]:
    """What started together, in order; None where the controller changed."""
    waves: list[_Wave | None] = []
    current: _Wave | None = None
    of_run: dict[str, _Wave] = {}
    waits_s = 0.0
    for note in notes:
        run, cell = str(note.fields.get("run")), str(note.fields.get("cell"))
        if note.event in ("planned", "resumed"):
            current = None
            waves.append(None)
        elif note.event == WAITED:
            waits_s += float(note.fields["took_s"])
        elif note.event == "prepare":
            wave = wave_of.get(cell, 0)
            if current is None or not current.takes(wave, cell, run):
                current, waits_s = _Wave(wave, waits_s), 0.0
                waves.append(current)
            of_run[run] = current
            current.runs[cell] = run
            current.prepare_s.append(note.monotonic_s)
        elif (known := of_run.get(run)) is not None:
            if note.event == "start":
                known.start_s.append(note.monotonic_s)
                known.assembly_s = max(known.assembly_s, float(note.fields.get("assembly_s", 0.0)))
            elif note.event == "started":
                known.started_s[run] = note.monotonic_s
            elif note.event == "collected":
                known.collected_s.append(note.monotonic_s)
    return waves


def _pairs(waves: Sequence[_Wave | None]) -> list[tuple[_Wave, _Wave]]:
    return [(a, b) for a, b in itertools.pairwise(waves) if a is not None and b is not None]


def _gap(before: _Wave, after: _Wave, runs: Mapping[str, Mapping[str, Any]]) -> Gap | None:
    ends = [at + length for run, at in before.started_s.items() if (length := _load_s(runs.get(run))) is not None]
    begins = [at + lead for run, at in after.started_s.items() if (lead := _lead_s(runs.get(run))) is not None]
    if not ends or not before.collected_s or not after.prepare_s or not after.start_s or not begins:
        return None
    end_s, collected_s, prepare_s = max(ends), max(before.collected_s), min(after.prepare_s)
    # The barrier: the first load starts when the last board is prepared.
    start_s, begin_s = min(after.start_s), min(begins)
    found = [runs[run] for run in after.started_s if run in runs]
    assembly_s = min(after.assembly_s, max(0.0, begin_s - start_s))
    cooling_s = min(max((_cooled_s(run) for run in found), default=0.0), max(0.0, start_s - prepare_s))
    return Gap(
        after_wave=before.wave,
        total_s=begin_s - end_s,
        collect_s=collected_s - end_s,
        waits_s=after.waits_s + assembly_s,
        prepare_s=start_s - collected_s - after.waits_s - cooling_s,
        cooling_s=cooling_s,
        start_s=begin_s - start_s - assembly_s,
    )


def _lead_s(run: Mapping[str, Any] | None) -> float | None:
    """From the board's word that the program runs to the start of its load, by the board's own clock."""
    return _since_start_s(run, 0)


def _load_s(run: Mapping[str, Any] | None) -> float | None:
    """From the board's word that the program runs to the end of its load's last interval, by the board's own clock."""
    return _since_start_s(run, 1)


def _since_start_s(run: Mapping[str, Any] | None, edge: int) -> float | None:
    if run is None:
        return None
    window, started = run["load_window_monotonic_s"], run["started"]["board"]
    if not isinstance(window, Sequence) or "monotonic_s" not in started:
        return None
    return float(window[edge]) - float(started["monotonic_s"])


def _cooled_s(run: Mapping[str, Any]) -> float:
    """How long the board was waited for to be cool, by the gate's evidence."""
    waited = [entry["saw"].get("waited_s") for entry in run["evidence"] if entry["gate"] == "cool"]
    return max((float(value) for value in waited if isinstance(value, int | float)), default=0.0)
