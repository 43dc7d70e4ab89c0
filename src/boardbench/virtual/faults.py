"""Faults that a test switches on at a virtual board, read from its `faults.json` whenever that file changes."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Faults:
    """What is broken now; the default is nothing. `zone_errors` maps a zone type to an errno number."""

    zone_errors: Mapping[str, int] = field(default_factory=dict)
    frozen_zones: frozenset[str] = frozenset()
    drop_caches: str = "works"
    jetson_short_table: bool = False


class FaultFile:
    """Keeps the faults of one board up to date with its file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.faults = Faults()
        self._seen: tuple[int, int, int] | None = None

    def refresh(self) -> str | None:
        """Read the file again if it changed. Returns why it was refused (the faults stay as they were), or None."""
        try:
            status = os.stat(self.path)
        except FileNotFoundError:
            self._seen, self.faults = None, Faults()
            return None
        mark = (status.st_mtime_ns, status.st_size, status.st_ino)
        if mark == self._seen:
            return None
        self._seen = mark
        try:
            self.faults = parse(self.path.read_bytes())
        except ValueError as error:
            return f"{self.path}: {error}; the faults stay as they were"
        return None


def parse(data: bytes) -> Faults:
    """The faults of a `faults.json`; ValueError says what is wrong with it."""
    value = json.loads(data)
    known = {"zone_errors", "frozen_zones", "drop_caches", "jetson_short_table"}
    if not isinstance(value, dict):
        raise ValueError("not an object")
    if unknown := sorted(set(value) - known):
        raise ValueError(f"unknown key {unknown[0]!r} (known: {', '.join(sorted(known))})")
    zone_errors: dict[str, int] = {}
    errors = value.get("zone_errors", {})
    if not isinstance(errors, dict):
        raise ValueError("zone_errors is not an object")
    for zone, name in errors.items():
        number = getattr(errno, name, None) if isinstance(name, str) and name.startswith("E") else None
        if not isinstance(number, int):
            raise ValueError(f'zone_errors: {name!r} is not the name of an errno, like "EIO"')
        zone_errors[zone] = number
    frozen = value.get("frozen_zones", [])
    if not isinstance(frozen, list) or not all(isinstance(zone, str) for zone in frozen):
        raise ValueError("frozen_zones is not a list of zone types")
    drop = value.get("drop_caches", "works")
    if drop not in ("works", "ignored", "read-only"):
        raise ValueError(f'drop_caches: {drop!r} is none of "works", "ignored", "read-only"')
    short = value.get("jetson_short_table", False)
    if not isinstance(short, bool):
        raise ValueError("jetson_short_table is not true or false")
    return Faults(zone_errors, frozenset(frozen), drop, short)
