"""Read an imported campaign back from its folder, typed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from boardbench.errors import InputError
from boardbench.imports import columns
from boardbench.imports.model import Missing, Reading
from boardbench.results import store


@dataclass(frozen=True)
class StoredRun:
    """A run of an imported campaign; the unit of a metric is in its name."""

    run: str
    cell: str
    boards: tuple[str, ...]
    arm: Mapping[str, str]
    phase: str | None
    repetition: int
    window_unix_s: tuple[float, float] | Missing
    metrics: Mapping[str, Reading]
    extra: Mapping[str, str]
    notes: tuple[str, ...]
    source: str
    valid: bool
    reasons: tuple[tuple[str, str], ...]

    def number(self, metric: str) -> float | None:
        """A metric's value, None where there is none."""
        value = self.metrics.get(metric)
        return None if value is None or isinstance(value, Missing) else value


@dataclass(frozen=True)
class StoredSamples:
    """A file of samples: what it holds, and where."""

    path: Path
    what: str
    board: str | None
    clock: str
    columns: tuple[str, ...]
    rows: int
    source: str


@dataclass(frozen=True)
class StoredImport:
    """A whole imported campaign: the entries of its documents, and the same typed (`measured`, `logs`)."""

    folder: Path
    campaign: Mapping[str, Any]
    runs: tuple[Mapping[str, Any], ...]
    samples: tuple[Mapping[str, Any], ...]
    facts: tuple[Mapping[str, Any], ...]
    faults: tuple[Mapping[str, Any], ...]
    measured: tuple[StoredRun, ...]
    logs: tuple[StoredSamples, ...]

    @property
    def provenance(self) -> Mapping[str, Any]:
        """The `imported` object of campaign.json: format, source, files with hashes, what could not be known."""
        found: Mapping[str, Any] = self.campaign["imported"]
        return found

    def column(self, samples: StoredSamples, name: str) -> tuple[list[float], list[float | None]]:
        """Times and readings of one column, in order. Raises InputError for a file or a column that is not there."""
        found = columns.read(samples.path, [columns.TIME, name])
        return found[columns.TIME].tolist(), columns.readings(found[name])


def is_imported(folder: Path) -> bool:
    """Whether a campaign's folder holds an import; False for everything else."""
    try:
        return "imported" in store.read_object(folder / "campaign.json")
    except InputError:
        return False


def load(folder: Path) -> StoredImport:
    """The imported campaign in a folder. Raises InputError when it is none, or cannot be read."""
    campaign = store.read_object(folder / "campaign.json")
    if "imported" not in campaign:
        raise InputError("is no imported campaign", where=str(folder))
    try:
        runs, samples = _list(folder, "runs"), _entries(campaign["samples"])
        return StoredImport(
            folder=folder,
            campaign=campaign,
            runs=tuple(runs),
            samples=tuple(samples),
            facts=tuple(_list(folder, "facts")),
            faults=tuple(_list(folder, "faults")),
            measured=tuple(_run(entry) for entry in runs),
            logs=tuple(_samples(folder, entry) for entry in samples),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"is not as an import writes it: {error}", where=str(folder), advice="./inv validate tells what"
        ) from error


def _entries(value: object) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
        raise TypeError("a list of objects is wanted")
    return value


def _list(folder: Path, name: str) -> list[dict[str, Any]]:
    return _entries(store.read_object(folder / f"{name}.json").get(name))


def _reading(value: object) -> Reading:
    if isinstance(value, dict):
        return Missing(str(value["missing"]))
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{value!r} is no reading")
    return float(value)


def _run(entry: Mapping[str, Any]) -> StoredRun:
    window = entry["window_unix_s"]
    return StoredRun(
        run=entry["run"],
        cell=entry["cell"],
        boards=tuple(entry["boards"]),
        arm=dict(entry["arm"]),
        phase=entry["phase"],
        repetition=entry["repetition"],
        window_unix_s=Missing(window["missing"]) if isinstance(window, dict) else (window[0], window[1]),
        metrics={name: _reading(value) for name, value in entry["metrics"].items()},
        extra=dict(entry["extra"]),
        notes=tuple(entry["notes"]),
        source=entry["source"],
        valid=entry["valid"],
        reasons=tuple((reason["code"], reason["detail"]) for reason in entry["invalid_reasons"]),
    )


def _samples(folder: Path, entry: Mapping[str, Any]) -> StoredSamples:
    inside = PurePosixPath(entry["file"])
    if inside.is_absolute() or ".." in inside.parts:
        raise ValueError(f"{entry['file']!r} leads out of the campaign")
    return StoredSamples(
        path=folder / entry["file"],
        what=entry["what"],
        board=entry["board"],
        clock=entry["clock"],
        columns=tuple(entry["columns"]),
        rows=entry["rows"],
        source=entry["source"],
    )
