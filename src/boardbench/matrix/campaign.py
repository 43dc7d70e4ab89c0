"""One execution of a matrix, from the first look at the boards to the manifest.

Whatever happens after the boards are held, Ctrl-C included, the boards are put back, given back, and the folder is
closed with a verdict.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from boardbench import __version__, crew, locations
from boardbench.errors import BenchError, InputError
from boardbench.inventory import Board, Inventory
from boardbench.matrix import lease, preflight
from boardbench.matrix.cooling import CommandFan, ManualFan, Operator, drivers_of
from boardbench.matrix.journal import Journal
from boardbench.matrix.lease import Holder
from boardbench.matrix.load import Matrix, choose_boards, load_matrix
from boardbench.matrix.plan import Plan, make_plan
from boardbench.matrix.progress import OnProgress, Phase, Progress, silent
from boardbench.matrix.run_cell import Bench, Timings, restore_board
from boardbench.matrix.wave import Floor, run_wave
from boardbench.payload import load_payload
from boardbench.results import collect, store
from boardbench.results.fetch import DoorLike
from boardbench.results.verdict import Ending

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class CampaignOutcome:
    """What a campaign came to: its folder, the number of cells, and how many are valid, invalid and missing.

    `not_restored`: by board, why it is not proved that the board is as it was.
    """

    path: Path
    cells: int
    valid: int
    invalid: int
    missing: int
    not_restored: Mapping[str, str]

    @property
    def good(self) -> bool:
        """All cells are valid and all boards are as they were."""
        return self.valid == self.cells and not self.not_restored

    def as_dict(self) -> dict[str, object]:
        """The document that `bench --json` prints."""
        return {
            "campaign": str(self.path),
            "cells": self.cells,
            "valid": self.valid,
            "invalid": self.invalid,
            "missing": self.missing,
        }


def run(
    matrix: Path | Matrix | Plan,
    inventory: Inventory,
    boards: Sequence[Board],
    *,
    results_dir: Path,
    open_door: Callable[[Board], DoorLike],
    on_progress: OnProgress = silent,
    operator: Operator | None = None,
    argv: Sequence[str] = (),
    payloads_dir: Path | None = None,
    steal_why: str | None = None,
    timings: Timings | None = None,
) -> CampaignOutcome:
    """Run the matrix on those of `boards` that it is for.

    Raises InputError (matrix, boards, operator), RigError (wrong board, held board; nothing was changed then), and
    re-raises KeyboardInterrupt and any other error after the boards were put back and the folder was closed.
    """
    loaded = _matrix_of(matrix)
    chosen = choose_boards(loaded, boards)
    drivers = drivers_of(chosen, loaded.phases, operator)
    payloads_dir = payloads_dir or locations.project_dir() / "payloads"
    payloads = {name: load_payload(payloads_dir / name) for name in (loaded.workload, loaded.logger.payload)}
    on_progress(Progress(Phase.FACTS, f"asking {len(chosen)} boards for their facts"))
    met, lost = preflight.meet(chosen, open_door, list(payloads.values()))
    by_name = {board.name: board for board in chosen}
    virtual, scale = preflight.check(by_name, met)
    plan = make_plan(loaded, chosen, scale)
    if isinstance(matrix, Plan) and matrix.sha256 != plan.sha256:
        raise InputError(
            "the plan was made for other boards or another time scale", where=str(loaded.path), advice="plan again"
        )
    folder = store.new_campaign_folder(results_dir, loaded.name)
    with Journal(folder / "journal.jsonl") as journal:
        bench = Bench(
            folder=folder,
            plan=plan,
            boards=by_name,
            drivers=drivers,
            payloads={name: preflight.payload_files(payload) for name, payload in payloads.items()},
            boot_ids={name: found.facts.get("boot_id") for name, found in met.items()},
            virtual=virtual,
            holder=Holder.here(folder.name, steal_why),
            journal=journal,
            open_door=open_door,
            on_progress=on_progress,
            timings=timings or Timings(),
        )
        _open_folder(bench, inventory, met, lost, argv, operator)
        return _Campaign(bench, lost).run()


def _matrix_of(given: Path | Matrix | Plan) -> Matrix:
    if isinstance(given, Plan):
        return given.matrix
    return load_matrix(given) if isinstance(given, Path) else given


def _open_folder(
    bench: Bench,
    inventory: Inventory,
    met: Mapping[str, preflight.Met],
    lost: Mapping[str, BenchError],
    argv: Sequence[str],
    operator: Operator | None,
) -> None:
    """campaign.json, the locked plan and the facts, all before the first change of any board."""
    boards: list[dict[str, object]] = []
    for name, board in bench.boards.items():
        entry: dict[str, object] = {"name": name, "kind": board.kind, "cooling_driver": board.cooling.driver}
        if name in met:
            found = met[name]
            entry["clock"] = {"offset_s": found.offset_s, "error_s": found.error_s}
            entry["identity"] = {key: found.facts.get(key) for key in ("hostname", "machine_id", "serial", "boot_id")}
            target = bench.folder / "boards" / name
            target.mkdir(parents=True)
            store.write_json(target / "facts-before.json", dict(found.facts))
        else:
            entry["clock"] = entry["identity"] = {"missing": str(lost[name])}
        boards.append(entry)
    document = {
        "schema_version": SCHEMA_VERSION,
        "campaign": bench.campaign,
        "matrix": bench.plan.matrix.name,
        "question": bench.plan.matrix.question,
        "plan_sha256": bench.plan.sha256,
        "matrix_file_sha256": store.sha256_file(bench.plan.matrix.path),
        "inventory_file": inventory.path.name,
        "created_wall_unix_s": round(time.time(), 3),
        "virtual": bench.virtual,
        "time_scale": bench.plan.time_scale,
        "controller": {
            "owner": bench.holder.owner,
            "host": bench.holder.host,
            "boardbench": __version__,
            "python": platform.python_version(),
            "system": platform.platform(),
        },
        "operator": None if operator is None else {"name": operator.name, "how": operator.how},
        "argv": list(argv),
        "payloads": dict(bench.payloads),
        "boards": boards,
    }
    store.write_json(bench.folder / "campaign.json", document)
    store.write_json(bench.folder / "plan.json", bench.plan.document())
    bench.journal.note("planned", plan_sha256=bench.plan.sha256, cells=len(bench.plan.cells))


class _Campaign:
    """The run loop. State: why boards are out, why cells have no run, what is true on the boards."""

    def __init__(self, bench: Bench, lost: Mapping[str, BenchError]) -> None:
        self.bench = bench
        self.out = {name: f"not reached at the start: {error}" for name, error in lost.items()}
        self.missing: dict[str, str] = {}
        self.floor = Floor()
        self.not_restored: dict[str, str] = {}
        self.interrupted = True  # until the last wave is through
        self.touched = False

    def run(self) -> CampaignOutcome:
        try:
            self._hold()
            self._waves()
            self.interrupted = False
        finally:
            # Not one `finally` less: a board that is not put back spoils the next campaign.
            try:
                self._put_back()
            finally:
                outcome = self._close()
        return outcome

    def _active(self) -> list[Board]:
        return [board for name, board in self.bench.boards.items() if name not in self.out]

    def _tell(self, phase: Phase, message: str, board: str | None = None) -> None:
        self.bench.on_progress(Progress(phase, message, board))

    def _hold(self) -> None:
        self._tell(Phase.LEASE, "taking the boards")
        self.bench.journal.note("lease", boards=[board.name for board in self._active()])
        errors = lease.take_all(self.bench.holder, self._active(), self.bench.hold_s, self.bench.open_door)
        self.out |= {name: f"not reached for the lease: {error}" for name, error in errors.items()}
        self.touched = True

    def _waves(self) -> None:
        waves = self.bench.plan.waves
        for index, cells in enumerate(waves):
            eta_s = self.bench.plan.estimated_s * (len(waves) - index) / len(waves)
            self._wave(cells, eta_s)

    def _wave(self, cells: Sequence[Any], eta_s: float) -> None:
        for cell in cells:
            if cell.boards[0] in self.out:
                self.missing[cell.name] = self.out[cell.boards[0]]
        todo = [cell for cell in cells if cell.boards[0] not in self.out]
        attempts = self.bench.plan.matrix.attempts
        for attempt in range(1, attempts + 1):
            if not todo:
                return
            if attempt > 1:
                self._tell(Phase.RETRY, f"attempt {attempt} of {attempts}: {', '.join(c.name for c in todo)}")
            outcomes = run_wave(self.bench, todo, attempt, self.floor, eta_s)
            again = []
            for cell in todo:
                outcome = outcomes[cell.name]
                if isinstance(outcome, BenchError):
                    self.missing[cell.name] = str(outcome)
                    if outcome.transient:
                        again.append(cell)
                elif not outcome["valid"]:
                    again.append(cell)
            todo = again

    def _put_back(self) -> None:
        if not self.touched:
            return
        self._tell(Phase.RESTORE, "putting the boards back as they were")
        self.bench.journal.note("restore", boards=[board.name for board in self._active()])
        try:
            self._fans_back()
            outcomes = crew.each(self._active(), self._restore_one)
            for name, outcome in outcomes.items():
                if outcome is not None:
                    self.not_restored[name] = str(outcome)
        finally:
            errors = lease.release_all(self.bench.holder, self._active(), self.bench.open_door)
            self.bench.journal.note(
                "restored",
                not_restored=self.not_restored,
                not_released={name: str(error) for name, error in errors.items()},
            )
        for name, why in self.not_restored.items():
            self._tell(Phase.RESTORE, f"not put back: {why}", name)

    def _fans_back(self) -> None:
        """Fans that no board can switch back by itself: left running, which harms no board."""
        for name, (phase, _) in self.floor.phases.items():
            driver = self.bench.drivers[name]
            if phase == "fanless" and isinstance(driver, CommandFan):
                try:
                    driver.switch("active")
                except BenchError as error:
                    self.not_restored[name] = f"fan: {error}"
            elif phase == "fanless" and isinstance(driver, ManualFan):
                self._tell(Phase.RESTORE, "the fan is still switched off: switch it on by hand", name)

    def _restore_one(self, board: Board) -> str | None:
        why = restore_board(self.bench, board)
        if why is not None:  # perhaps not ours any more
            return why
        for run_name in sorted(self.floor.leftover.get(board.name, ())):
            self._forget(board, run_name)
        return None

    def _forget(self, board: Board, run_name: str) -> None:
        """Runs that nobody will collect. That one stays staged costs space only, so it is noted and no more."""
        try:
            with self.bench.open_door(board) as door:
                door.call("finish", {"run": run_name}, deadline_s=self.bench.timings.restore_s)
                door.call("forget", {"run": run_name}, deadline_s=self.bench.timings.restore_s)
            self.bench.journal.note("abandoned", run=run_name)
        except BenchError as error:
            self.bench.journal.note("not-forgotten", run=run_name, error=error.as_dict())

    def _close(self) -> CampaignOutcome:
        """facts-after, verdict, manifest. After an interruption without the facts: nobody wants to wait for them."""
        if not self.interrupted:
            self._facts_after()
        self.bench.journal.note("closed", interrupted=self.interrupted)
        ending = Ending(self.missing, self.interrupted, self.not_restored)
        made = collect.close(self.bench.folder, ending)
        for entry in made["warnings"]:
            self._tell(Phase.DONE, entry["what"], entry["board"])
        self._tell(Phase.DONE, "interrupted; the boards were put back" if self.interrupted else "done")
        return CampaignOutcome(self.bench.folder, not_restored=dict(self.not_restored), **made["counts"])

    def _facts_after(self) -> None:
        try:
            met, lost = preflight.meet(self._active(), self.bench.open_door)
        except BenchError as error:
            self.bench.journal.note("facts-after", error=error.as_dict())
            return
        for name, found in met.items():
            store.write_json(self.bench.folder / "boards" / name / "facts-after.json", dict(found.facts))
            self.bench.journal.note("clock", board=name, offset_s=found.offset_s, error_s=found.error_s)
        for name, loss in lost.items():
            self.bench.journal.note("facts-after", board=name, error=loss.as_dict())


def plan_only(path: Path, boards: Sequence[Board], time_scale: float = 1.0) -> Plan:
    """The plan that `run` would lock, without asking any board. Raises InputError."""
    matrix = load_matrix(path)
    return make_plan(matrix, choose_boards(matrix, boards), time_scale)
