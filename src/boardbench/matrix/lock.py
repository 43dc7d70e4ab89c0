"""A plan that is written down before the first run, and read again to run exactly it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from boardbench.errors import InputError
from boardbench.matrix.plan import Plan
from boardbench.results import schema, store

FOLDER = "plans"


@dataclass(frozen=True)
class Locked:
    """A plan as it was locked: its hash, its matrix, the boards it is for and the levels it is restricted to."""

    path: Path
    sha256: str
    matrix: str
    boards: tuple[str, ...]
    restricted_to: Mapping[str, tuple[str, ...]]

    def check(self, plan: Plan) -> None:
        """Raise InputError unless `plan` is the locked one in everything."""
        if plan.sha256 != self.sha256:
            raise InputError(
                f"the plan is {plan.sha256[:8]} now, {self.sha256[:8]} was locked: {_difference(self, plan)}",
                where=str(self.path),
                advice="lock a new plan, or put the matrix file back",
            )


def lock(plan: Plan, results_dir: Path) -> Path:
    """Write `<results>/plans/<matrix>-<sha8>.json`; the same plan again is the same file. Raises InputError."""
    folder = results_dir / FOLDER
    path = folder / f"{plan.matrix.name}-{plan.sha256[:8]}.json"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        store.write_json(path, plan.document())
    except FileExistsError:
        if read(path).sha256 != plan.sha256:
            raise InputError("is there already and is another plan", where=str(path), advice="move it away") from None
    except OSError as error:
        raise InputError(f"the plan cannot be written: {error.strerror}", where=str(path)) from error
    return path


def read(path: Path) -> Locked:
    """A locked plan. Raises InputError when the file is none, or was changed since."""
    document: dict[str, Any] = store.read_object(path)
    for fault in schema.faults(document, "plan"):
        raise InputError(f"is no plan: {fault}", where=str(path), advice="./inv plan --lock writes one")
    body = {key: value for key, value in document.items() if key != "sha256"}
    if store.canonical_sha256(body) != document["sha256"]:
        raise InputError("was changed after it was locked", where=str(path), advice="lock a new plan")
    return Locked(
        path,
        document["sha256"],
        document["matrix"],
        tuple(document["boards"]),
        {name: tuple(levels) for name, levels in document["restricted_to"].items()},
    )


def _difference(locked: Locked, plan: Plan) -> str:
    then, now = store.read_object(locked.path), plan.document()
    changed = sorted(key for key in now if now[key] != then.get(key) and key != "sha256")
    return f"{', '.join(changed)} changed"
