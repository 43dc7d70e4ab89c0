"""What an earlier controller left of a campaign: which cells are done, which runs may still be on the boards.

Read from the folder and its journal alone; the boards are asked by the run loop.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from boardbench.errors import InputError
from boardbench.matrix.opening import controller, file_path
from boardbench.matrix.plan import Plan
from boardbench.results import manifest, store, verdict
from boardbench.results.record import Attempt


@dataclass
class Standing:
    """Which attempts of which cells there were. A new campaign has had none."""

    attempts: int
    used: dict[str, int] = field(default_factory=dict)
    valid: set[str] = field(default_factory=set)
    spent: dict[str, int] = field(default_factory=dict)

    def done(self, cell: str) -> bool:
        """Whether nothing is left to do: a valid run, or as many runs as the plan allows."""
        return cell in self.valid or self.left(cell) <= 0

    def left(self, cell: str) -> int:
        """How many attempts the cell still has. One that left no run (a killed controller, a lost board) cost none."""
        return self.attempts - self.spent.get(cell, 0)

    def next(self, cell: str) -> int:
        """The number of the cell's next attempt; from now on it is used."""
        self.used[cell] = self.used.get(cell, 0) + 1
        return self.used[cell]

    def count(self, run: Mapping[str, Any]) -> None:
        """Take a run that came home into account."""
        cell = str(run["cell"])
        self.used[cell] = max(self.used.get(cell, 0), int(run["attempt"]))
        if run["valid"]:
            self.valid.add(cell)
        self.spent[cell] = self.spent.get(cell, 0) + 1


@dataclass(frozen=True)
class Past:
    """A campaign that is to go on. `pending`: runs whose load was begun, or may have been, and that are not here.

    `latest`: the run for which each board was prepared last.
    """

    folder: Path
    campaign: Mapping[str, Any]
    plan: Mapping[str, Any]
    standing: Standing
    pending: Mapping[str, Attempt]
    latest: Mapping[str, str]

    @property
    def boards(self) -> tuple[str, ...]:
        """The boards of the plan, in its order."""
        return tuple(self.plan["boards"])

    def busy_s(self, window_s: float) -> dict[str, float]:
        """Boards on which a load may still run, and for how many wall seconds: they are not to be disturbed."""
        now = time.time()
        busy: dict[str, float] = {}
        for attempt in self.pending.values():
            # A clock that was set back must not make us wait longer than a whole window.
            left = min(window_s, attempt.controller_started_unix_s + window_s - now)
            if left > 0:
                busy[attempt.board] = max(left, busy.get(attempt.board, 0.0))
        return busy


def newest_unfinished(results_dir: Path) -> Path:
    """The newest campaign that did not come to its end. Raises InputError when there is none."""
    found = sorted(results_dir.glob("*/*/campaign.json"), key=lambda path: path.parent.name, reverse=True)
    for path in found:
        if path.parent.name.startswith("."):
            continue  # its boards were never held
        if unfinished(path.parent):
            return path.parent
    raise InputError("no campaign is unfinished", where=str(results_dir), advice="start one: ./inv bench --matrix NAME")


def unfinished(folder: Path) -> bool:
    """Whether there is something left to do: cells without a run, or boards that were not put back."""
    try:
        said = store.read_object(folder / verdict.NAME)
    except InputError:
        return True
    return bool(said.get("interrupted") or said.get("missing") or said.get("not_restored"))


def read(folder: Path) -> Past:
    """The campaign as it lies on disk. Raises InputError for one that was changed or cannot be read."""
    campaign, plan = store.read_object(folder / "campaign.json"), store.read_object(folder / "plan.json")
    body = {key: value for key, value in plan.items() if key != "sha256"}
    if store.canonical_sha256(body) != plan.get("sha256") or campaign.get("plan_sha256") != plan.get("sha256"):
        raise InputError(
            "is not the plan that the campaign has locked",
            where=str(folder / "plan.json"),
            advice="it was changed: start a new campaign",
        )
    past = Past(folder, campaign, plan, Standing(int(str(plan["attempts"]))), _pending(folder), _latest(folder))
    _count(past)
    return past


def _pending(folder: Path) -> dict[str, Attempt]:
    begun: dict[str, Attempt] = {}
    for event, fields in store.journal_events(folder):
        attempt = fields.get("begun") if event == "start" else fields.get("attempt")
        if event in ("start", "started") and isinstance(attempt, dict):
            begun[str(fields["run"])] = Attempt.from_dict(attempt)
        elif event in ("collected", "abandoned"):
            begun.pop(str(fields["run"]), None)
    return {run: attempt for run, attempt in begun.items() if verdict.whole_run(attempt.folder(folder)) is None}


def _latest(folder: Path) -> dict[str, str]:
    events = store.journal_events(folder)
    return {str(fields["board"]): str(fields["run"]) for event, fields in events if event == "prepare"}


def _count(past: Past) -> None:
    standing = past.standing
    for cell in past.plan["cells"]:
        for run in verdict.state_of_cell(past.folder, cell["name"])[2]:
            standing.count(run)
        for path in (past.folder / "cells" / cell["name"]).glob("attempt-*"):
            number = path.name.removeprefix("attempt-").removesuffix(".partial")
            if number.isdigit():
                standing.used[cell["name"]] = max(standing.used.get(cell["name"], 0), int(number))
    for _, fields in store.journal_events(past.folder):
        cell_name, attempt = fields.get("cell"), fields.get("attempt")
        if isinstance(cell_name, str) and isinstance(attempt, int):
            standing.used[cell_name] = max(standing.used.get(cell_name, 0), attempt)


def matrix_file(past: Past, given: Path | None) -> Path:
    """The matrix file that the plan was made of, unchanged. Raises InputError."""
    path = given if given is not None else file_path(str(past.campaign["matrix_file"]))
    if not path.is_file():
        raise InputError(
            f"the matrix file of campaign {past.folder.name} is not there any more",
            where=str(path),
            advice="put it back, or name it with --matrix",
        )
    if store.sha256_file(path) != past.campaign["matrix_file_sha256"]:
        raise InputError(
            f"changed since campaign {past.folder.name} locked its plan",
            where=str(path),
            advice="a changed file is a new campaign: run it without --resume",
        )
    return path


def check_plan(past: Past, plan: Plan) -> None:
    """The plan of now is the one that is locked. Raises InputError."""
    if plan.sha256 != past.plan["sha256"]:
        raise InputError(
            f"the plan would not be the one that campaign {past.folder.name} has locked",
            where=str(plan.matrix.path),
            advice="boardbench, the boards' time scale or the boards themselves have changed: start a new campaign",
        )


def check_payloads(past: Past, payloads: Mapping[str, Any], libraries: Mapping[str, Sequence[str]]) -> None:
    """What is measured is still the same program, with the same Python libraries. Raises InputError."""
    pinned = past.campaign.get("libraries", {})  # campaigns before it was noted say nothing of them
    for name, files in past.campaign["payloads"].items():
        if payloads.get(name) != files or (name in pinned and list(libraries.get(name, ())) != pinned[name]):
            raise InputError(
                f"payload {name} has changed since campaign {past.folder.name} began",
                where=f"payloads/{name}",
                advice="start a new campaign",
            )


def reopen(past: Past, holder: Any, argv: list[str], stolen: list[dict[str, object]]) -> list[str]:
    """The campaign runs again: verdict and manifest go, campaign.json says so. For the holder of its lock."""
    for name in (manifest.NAME, verdict.NAME):
        (past.folder / name).unlink(missing_ok=True)
    # What is pending is fetched anew from the board.
    removed = store.remove_debris(past.folder)
    store.sync_folder(past.folder)
    entry = {"wall_unix_s": round(time.time(), 3), "controller": controller(holder), "argv": argv}
    document = {
        **past.campaign,
        "stolen": [*past.campaign["stolen"], *stolen],
        "resumes": [*past.campaign["resumes"], entry],
    }
    store.write_json(past.folder / "campaign.json", document, replace=True)
    return removed
