"""The folder of a new campaign: plan, facts and campaign.json, whole before the first change of any board.

The folder is hidden until it is whole and the boards are held. So a refused campaign leaves nothing, and a killed one
leaves either nothing that counts or a campaign that can be resumed.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from boardbench import __version__, locations
from boardbench.errors import BenchError
from boardbench.inventory import Board, Inventory
from boardbench.matrix.cooling import Operator
from boardbench.matrix.lease import Holder
from boardbench.matrix.plan import Plan
from boardbench.matrix.preflight import Met
from boardbench.results import store
from boardbench.results.audit_patterns import mask

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Opening:
    """What is known of a campaign before it holds its boards."""

    plan: Plan
    boards: Mapping[str, Board]
    met: Mapping[str, Met]
    lost: Mapping[str, BenchError]
    virtual: bool
    holder: Holder
    inventory: Inventory
    operator: Operator | None
    argv: Sequence[str]
    payloads: Mapping[str, object]
    libraries: Mapping[str, Sequence[str]]
    selected: tuple[str, ...] | None = None

    def write_draft(self, draft: Path) -> None:
        """The locked plan and the facts."""
        store.write_json(draft / "plan.json", self.plan.document())
        for name, found in self.met.items():
            target = draft / "boards" / name
            target.mkdir(parents=True)
            store.write_json(target / "facts-before.json", dict(found.facts))
            store.sync_folder(target.parent)

    def document(self, stolen: Sequence[Mapping[str, object]]) -> dict[str, object]:
        """campaign.json; `stolen`: the leases that were taken away for it."""
        matrix = self.plan.matrix
        return {
            "schema_version": SCHEMA_VERSION,
            "campaign": self.holder.campaign,
            "matrix": matrix.name,
            "question": matrix.question,
            "plan_sha256": self.plan.sha256,
            "matrix_file": file_name(matrix.path),
            "matrix_file_sha256": matrix.file_sha256,
            "inventory_file": self.inventory.path.name,
            "created_wall_unix_s": round(time.time(), 3),
            "virtual": self.virtual,
            "time_scale": self.plan.time_scale,
            "controller": controller(self.holder),
            "operator": None if self.operator is None else {"name": self.operator.name, "how": self.operator.how},
            "argv": [mask(word) for word in self.argv],  # what a user typed may hold a secret
            "selected_cells": None if self.selected is None else list(self.selected),
            "payloads": dict(self.payloads),
            "libraries": {name: list(pins) for name, pins in self.libraries.items()},
            "boards": [self._board(name, board) for name, board in self.boards.items()],
            "stolen": [dict(entry) for entry in stolen],
            "resumes": [],
        }

    def _board(self, name: str, board: Board) -> dict[str, object]:
        entry: dict[str, object] = {"name": name, "kind": board.kind, "cooling_driver": board.cooling.driver}
        if name not in self.met:
            why = {"missing": str(self.lost[name])}
            return {**entry, "clock": why, "identity": why}
        found = self.met[name]
        entry["clock"] = {"offset_s": found.offset_s, "error_s": found.error_s}
        entry["identity"] = {key: found.facts.get(key) for key in ("hostname", "machine_id", "serial", "boot_id")}
        return entry


def file_name(path: Path) -> str:
    """A file of the checkout by its place in it, any other by its whole path."""
    whole, project = path.resolve(), locations.project_dir().resolve()
    return whole.relative_to(project).as_posix() if whole.is_relative_to(project) else str(whole)


def file_path(name: str) -> Path:
    """The path that `file_name` named."""
    return locations.project_dir() / name


def controller(holder: Holder) -> dict[str, object]:
    """Who runs a campaign, where, and with what."""
    return {
        "owner": holder.owner,
        "host": holder.host,
        "boardbench": __version__,
        "python": platform.python_version(),
        "system": platform.platform(),
    }
