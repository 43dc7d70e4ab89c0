"""The ledger through time: each version says what changed since the one before. Only files decide, never a clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from boardbench.errors import InputError
from boardbench.results import store
from boardbench.results.ledger import Entry

NAME = "ledger.json"
SCHEMA_VERSION = 1
_WATCHED = (
    "state",
    "why",
    "cells",
    "valid",
    "invalid",
    "missing",
    "rulings",
    "prediction",
    "figures",
    "manifest_sha256",
)


@dataclass(frozen=True)
class Change:
    """What a version brought. `changed`: campaign -> the fields that are other than before."""

    version: int
    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: Mapping[str, tuple[str, ...]]

    def as_json(self) -> dict[str, Any]:
        """All fields."""
        return {"version": self.version, "added": list(self.added), "removed": list(self.removed),
                "changed": {name: list(fields) for name, fields in self.changed.items()}}  # fmt: skip

    @property
    def text(self) -> str:
        """One line: `version 3: added a, b; changed c (verdict)`."""
        parts = []
        if self.added:
            parts.append(f"added {_listed(self.added)}")
        if self.removed:
            parts.append(f"no longer there: {_listed(self.removed)}")
        if self.changed:
            parts.append("changed " + _listed([f"{name} ({', '.join(what)})" for name, what in self.changed.items()]))
        return f"version {self.version}: {'; '.join(parts) or 'no campaign yet'}"


@dataclass(frozen=True)
class Ledger:
    """A version of the ledger. `changes`: newest first."""

    version: int
    entries: tuple[Entry, ...]
    changes: tuple[Change, ...]

    def as_json(self) -> dict[str, Any]:
        """The form of `ledger.json`."""
        return {
            "schema_version": SCHEMA_VERSION,
            "version": self.version,
            "entries": [entry.as_json() for entry in self.entries],
            "changes": [change.as_json() for change in self.changes],
        }


def last(path: Path) -> Ledger | None:
    """The ledger that was written before; None when there is none. Raises InputError for one that cannot be read."""
    if not path.exists():
        return None
    data: dict[str, Any] = store.read_object(path)
    try:
        if data["schema_version"] != SCHEMA_VERSION:
            raise ValueError(f"schema version {data['schema_version']}")
        changes = tuple(
            Change(int(one["version"]), tuple(one["added"]), tuple(one["removed"]),
                   {name: tuple(fields) for name, fields in one["changed"].items()})
            for one in data["changes"]
        )  # fmt: skip
        return Ledger(int(data["version"]), tuple(Entry.of(one) for one in data["entries"]), changes)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(
            f"is no ledger of this version of boardbench: {error}", where=str(path),
            advice="move it away: the next ledger then starts at version 1, from the campaigns' own files",
        ) from error  # fmt: skip


def next_version(before: Ledger | None, entries: Sequence[Entry]) -> Ledger:
    """The ledger of these entries: the same version when nothing changed, else the next one with what changed."""
    if before is None:
        return Ledger(1, tuple(entries), (Change(1, tuple(_key(entry) for entry in entries), (), {}),))
    old = {_key(entry): entry for entry in before.entries}
    new = {_key(entry): entry for entry in entries}
    changed = {key: fields for key in old if key in new and (fields := _differ(old[key], new[key]))}
    added, removed = tuple(key for key in new if key not in old), tuple(key for key in old if key not in new)
    if not (added or removed or changed):
        return Ledger(before.version, tuple(entries), before.changes)
    change = Change(before.version + 1, added, removed, changed)
    return Ledger(change.version, tuple(entries), (change, *before.changes))


def write(path: Path, ledger: Ledger) -> None:
    """Keep a ledger for the next one to be held against. Raises InputError when it cannot be written."""
    try:
        store.write_json(path, ledger.as_json(), replace=True)
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", where=str(path)) from error


def _key(entry: Entry) -> str:
    return f"{entry.matrix}/{entry.campaign}"


def _differ(old: Entry, new: Entry) -> tuple[str, ...]:
    return tuple(name for name in _WATCHED if getattr(old, name) != getattr(new, name))


def _listed(names: Sequence[str], most: int = 12) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
