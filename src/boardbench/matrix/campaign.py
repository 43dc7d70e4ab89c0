"""One execution of a matrix, from the first look at the boards to the manifest.

Whatever happens after the boards are held, Ctrl-C included, the boards are put back, given back, and the folder is
closed with a verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from boardbench import locations
from boardbench.errors import BenchError, InputError
from boardbench.inventory import Board, Inventory
from boardbench.matrix import lease, preflight, waking
from boardbench.matrix.catch_up import catch_up, let_loads_end
from boardbench.matrix.cluster import board_files, payload_names, unfit_cells, whole
from boardbench.matrix.cooling import Operator, drivers_of
from boardbench.matrix.ending import facts_after, put_back
from boardbench.matrix.given import check_commands
from boardbench.matrix.heart import Heart
from boardbench.matrix.interrupt import Stops
from boardbench.matrix.journal import Journal
from boardbench.matrix.lease import Holder
from boardbench.matrix.load import Matrix, choose_boards, load_matrix
from boardbench.matrix.opening import Opening
from boardbench.matrix.plan import Cell, Plan, make_plan
from boardbench.matrix.progress import OnProgress, Phase, Progress, silent
from boardbench.matrix.progress_file import ProgressFile
from boardbench.matrix.resume import Past, Standing, check_payloads, check_plan, matrix_file, read, reopen
from boardbench.matrix.run_cell import Bench, Timings
from boardbench.matrix.wave import Floor, Outcome, run_wave
from boardbench.payload import load_payload
from boardbench.results import collect, store
from boardbench.results.fetch import DoorLike
from boardbench.results.verdict import Ending

RESUME_COMMAND = "./inv bench --resume"


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
    not_selected: int = 0

    @property
    def good(self) -> bool:
        """All cells that were to run are valid and all boards are as they were."""
        return self.valid == self.cells - self.not_selected and not self.not_restored

    def as_dict(self) -> dict[str, object]:
        """The document that `bench --json` prints."""
        return {
            "campaign": str(self.path),
            "cells": self.cells,
            "valid": self.valid,
            "invalid": self.invalid,
            "missing": self.missing,
            "not_selected": self.not_selected,
        }


@dataclass(frozen=True)
class Wishes:
    """How a campaign is to be run, beside what is measured; all of it is the caller's business."""

    open_door: Callable[[Board], DoorLike]
    on_progress: OnProgress = silent
    operator: Operator | None = None
    argv: Sequence[str] = ()
    payloads_dir: Path | None = None
    steal_why: str | None = None
    timings: Timings = field(default_factory=Timings)
    bringing: preflight.Bringing = preflight.by_provision

    def teller(self, phase: Phase) -> Callable[[str, str], None]:
        """Tells (what happens, board) as progress in this phase."""
        return lambda what, board: self.on_progress(Progress(phase, what, board))


class Interrupted(KeyboardInterrupt):
    """A campaign that was stopped in good order: its boards are put back, and it can be resumed."""

    def __init__(self, folder: Path, not_restored: Mapping[str, str]) -> None:
        super().__init__(f"campaign {folder.name} was interrupted")
        self.folder = folder
        self.not_restored = not_restored


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
    bringing: preflight.Bringing = preflight.by_provision,
    cells: Sequence[str] = (),
) -> CampaignOutcome:
    """Run the matrix on those of `boards` that it is for; of its cells only those that a glob of `cells` fits, if any.

    Raises InputError (matrix, boards, operator), RigError (wrong board, held board): nothing was changed then, and
    there is no campaign. Raises Interrupted, and re-raises any other error, after the boards were put back and the
    folder was closed.
    """
    wishes = Wishes(open_door, on_progress, operator, argv, payloads_dir, steal_why, timings or Timings(), bringing)
    loaded = _matrix_of(matrix)
    with Stops(RESUME_COMMAND) as stops:
        holder = Holder.here(store.campaign_name(), steal_why)
        start = _Start(loaded, inventory, choose_boards(loaded, boards, inventory.groups), wishes, holder)
        if isinstance(matrix, Plan) and matrix.sha256 != start.plan.sha256:
            raise InputError(
                "the plan was made for other boards or another time scale", where=str(loaded.path), advice="plan again"
            )
        opening = start.opening(cells)
        folder, errors = _open(opening, results_dir, wishes)
        with Journal(folder / store.JOURNAL) as journal:
            journal.note("planned", plan_sha256=start.plan.sha256, cells=len(start.plan.cells))
            bench = start.bench(folder, opening.holder, journal, stops, [*start.lost, *errors])
            return _Campaign(bench, start.woken, errors, None).run()


def resume(
    folder: Path,
    inventory: Inventory,
    *,
    open_door: Callable[[Board], DoorLike],
    matrix_path: Path | None = None,
    on_progress: OnProgress = silent,
    operator: Operator | None = None,
    argv: Sequence[str] = (),
    payloads_dir: Path | None = None,
    steal_why: str | None = None,
    timings: Timings | None = None,
    bringing: preflight.Bringing = preflight.by_provision,
) -> CampaignOutcome:
    """Bring a campaign to its end that was killed, cut off or interrupted. Raises as `run` does.

    The plan is the locked one. What lies here whole is not run again; what ran on a board meanwhile is collected.
    """
    wishes = Wishes(open_door, on_progress, operator, argv, payloads_dir, steal_why, timings or Timings(), bringing)
    past = read(folder)
    loaded = load_matrix(matrix_file(past, matrix_path)).restrict(past.plan["restricted_to"])
    with Stops(RESUME_COMMAND) as stops, Journal(folder / store.JOURNAL) as journal:
        past = read(folder)  # now that nobody else writes it
        stops.doing = "the resume"
        let_loads_end(past, float(past.plan["wall_time"]["duration_s"]), on_progress)
        boards = [board for board in inventory.select(",".join(past.boards)) if board.name in past.boards]
        holder = Holder.here(folder.name, steal_why)
        boards = sorted(boards, key=lambda board: past.boards.index(board.name))
        start = _Start(loaded, inventory, boards, wishes, holder)
        check_plan(past, start.plan)
        check_payloads(past, start.payloads, start.libraries)
        taken = start.hold(holder)
        journal.note("resumed", pending=sorted(past.pending), done=sorted(past.standing.valid))
        reopen(past, holder, list(argv), taken.stolen_from(steal_why))
        bench = start.bench(folder, holder, journal, stops, [*start.lost, *taken.errors])
        return _Campaign(bench, start.woken, taken.errors, past).run()


def _matrix_of(given: Path | Matrix | Plan) -> Matrix:
    if isinstance(given, Plan):
        return given.matrix
    return load_matrix(given) if isinstance(given, Path) else given


class _Start:
    """The way from a matrix to boards that are proved to be the right ones. Asks, and changes nothing."""

    def __init__(
        self, matrix: Matrix, inventory: Inventory, boards: Sequence[Board], wishes: Wishes, holder: Holder
    ) -> None:
        self.inventory, self.wishes, self.holder = inventory, wishes, holder
        self.boards = {board.name: board for board in boards}
        # A mistake in the inventory, about fans or about power, is told before anything is touched.
        self.drivers = drivers_of(boards, matrix.phases, wishes.operator)
        folder = wishes.payloads_dir or locations.project_dir() / "payloads"
        payloads = {
            name: load_payload(folder / name) for name in (*payload_names(matrix.workload), matrix.logger.payload)
        }
        self.payloads = {name: preflight.payload_files(payload) for name, payload in payloads.items()}
        self.libraries = {name: payload.python for name, payload in payloads.items() if payload.python}
        wishes.on_progress(Progress(Phase.FACTS, f"asking {len(boards)} boards for their facts"))
        wanted = preflight.Wanted(list(payloads.values()), board_files(matrix, boards), wishes.bringing)
        self.woken = waking.meet(boards, wishes.open_door, wanted, holder, wishes.teller(Phase.LOST))
        self.met, self.lost = self.woken.met, self.woken.lost
        self.virtual, scale = preflight.check(self.boards, self.met)
        self.plan = make_plan(matrix, boards, scale)
        check_commands(self.plan, self.boards, virtual=self.virtual)
        self.keeper = preflight.keeper(self.plan, self.inventory, self.boards, self.met)
        for name, what in self.keeper.warnings():
            wishes.on_progress(Progress(Phase.FACTS, f"warning: {what}", name))

    def opening(self, cells: Sequence[str]) -> Opening:
        """A new campaign, of those of its cells that a glob of `cells` fits (none given: of all)."""
        return Opening(
            plan=self.plan,
            boards=self.boards,
            met=self.met,
            lost=self.lost,
            virtual=self.virtual,
            holder=self.holder,
            inventory=self.inventory,
            operator=self.wishes.operator,
            argv=self.wishes.argv,
            payloads=self.payloads,
            libraries=self.libraries,
            selected=self.plan.select(cells),
        )

    def hold(self, holder: Holder) -> lease.Taken:
        """All reachable boards, or none. Raises RigError."""
        return _hold(holder, [self.boards[name] for name in self.met], self.wishes)

    def bench(self, folder: Path, holder: Holder, journal: Journal, stops: Stops, out: Sequence[str]) -> Bench:
        """What every step of the campaign needs."""
        held = {name: board for name, board in self.boards.items() if name not in out}
        chosen = list(self.boards.values())
        return Bench(
            folder=folder,
            plan=self.plan,
            boards=self.boards,
            drivers=self.drivers,
            payloads=self.payloads,
            boot_ids={name: found.facts.get("boot_id") for name, found in self.met.items()},
            virtual=self.virtual,
            holder=holder,
            heart=Heart(holder, held, self.wishes.timings.lease_ttl_s, self.wishes.open_door),
            stops=stops,
            journal=journal,
            open_door=self.wishes.open_door,
            on_progress=ProgressFile(folder, self.plan.matrix.name, chosen, holder.owner, self.wishes.on_progress),
            timings=self.wishes.timings,
            facts={name: found.facts for name, found in self.met.items()},
            keeper=self.keeper,
        )


def _hold(holder: Holder, boards: Sequence[Board], wishes: Wishes) -> lease.Taken:
    wishes.on_progress(Progress(Phase.LEASE, "taking the boards"))
    return lease.take_all(holder, boards, wishes.timings.lease_ttl_s, wishes.open_door, wishes.teller(Phase.LEASE))


def _open(opening: Opening, results_dir: Path, wishes: Wishes) -> tuple[Path, Mapping[str, BenchError]]:
    """The campaign's folder, whole, and its boards held; or neither. Also the boards that could not be asked."""
    draft = store.draft_campaign_folder(results_dir, opening.plan.matrix.name, opening.holder.campaign)
    held: list[Board] = []
    try:
        opening.write_draft(draft)
        boards = [opening.boards[name] for name in opening.met]
        taken = _hold(opening.holder, boards, wishes)
        held = boards
        store.write_json(draft / "campaign.json", opening.document(taken.stolen_from(wishes.steal_why)))
        return store.publish(draft), taken.errors
    except BaseException:
        store.drop_draft(draft)
        lease.release_all(opening.holder, held, wishes.open_door)
        raise


class _Campaign:
    """The run loop. State: why boards are out, why cells have no run, what is true on the boards."""

    def __init__(
        self, bench: Bench, woken: waking.Woken, not_held: Mapping[str, BenchError], past: Past | None
    ) -> None:
        self.bench = bench
        self.past = past
        self.standing = past.standing if past is not None else Standing(bench.plan.matrix.attempts)
        self.out = {name: f"not reached at the start: {error}" for name, error in woken.lost.items()}
        self.out |= {name: f"not reached for the lease: {error}" for name, error in not_held.items()}
        self.unsettled: dict[str, str] = {}
        self.recovery = woken.go_on(bench.journal, lambda what, board: self._tell(Phase.LOST, what, board))
        self.quarantined = dict(self.recovery.quarantined)
        self.missing: dict[str, str] = {}
        self.floor = Floor()
        self.not_restored: dict[str, str] = {}
        self.interrupted = True  # until the last wave is through

    def run(self) -> CampaignOutcome:
        stops = self.bench.stops
        self.bench.heart.start()
        try:
            self.bench.journal.note("lease", boards=[board.name for board in self._active()])
            self._catch_up()
            try:
                self._waves()
            finally:
                self.floor.close_doors()
            self.interrupted = False
        except KeyboardInterrupt:
            stops.wanted = stops.wanted or "a stop"
        finally:
            # Not one `finally` less: a board that is not put back spoils the next campaign.
            with stops.finishing("the boards are being put back"):
                try:
                    self.not_restored = put_back(self.bench, self._active(), self.floor)
                finally:
                    outcome = self._close()
        if self.interrupted:
            raise Interrupted(self.bench.folder, self.not_restored)
        return outcome

    def _active(self) -> list[Board]:
        return [board for name, board in self.bench.boards.items() if name not in self.out]

    def _tell(self, phase: Phase, message: str, board: str | None = None) -> None:
        self.bench.on_progress(Progress(phase, message, board))

    def _catch_up(self) -> None:
        if self.past is None:
            return
        self.bench.stops.doing = "the collection of runs that went on without a controller; they stay on the boards"
        done = sum(self.standing.done(cell.name) for cell in self.bench.plan.cells)
        self._tell(Phase.COLLECT, f"{done} of {len(self.bench.plan.cells)} cells are done; asking for runs left behind")
        for name, error in catch_up(self.bench, self._active(), self.past).items():
            self._tell(Phase.LOST, f"what was left on it is not settled: {error}", name)
            self.bench.journal.note("lost", board=name, phase=Phase.COLLECT.value, error=error.as_dict())
            self.unsettled[name] = f"what an earlier controller left on it is not settled: {error}"

    def _waves(self) -> None:
        selected = store.read_object(self.bench.folder / "campaign.json").get("selected_cells")
        waves = self.bench.plan.chosen_waves(selected if isinstance(selected, list) else None)
        for index, cells in enumerate(waves):
            eta_s = self.bench.plan.estimated_s * (len(waves) - index) / len(self.bench.plan.waves)
            self._wave(cells, eta_s)

    def _wave(self, cells: Sequence[Cell], eta_s: float) -> None:
        todo = whole(cells, [cell for cell in cells if not self.standing.done(cell.name)])
        unfit = unfit_cells(todo, self.out | self.unsettled | self.quarantined)
        self.missing |= unfit
        todo = [cell for cell in todo if cell.name not in unfit]
        rounds = {cell.name: self.standing.left(cell.name) for cell in todo}
        again = False
        while todo:
            attempts = {cell.name: self.standing.next(cell.name) for cell in todo}
            self.bench.stops.doing = f"{', '.join(attempts)} (repeated on resume)"
            if again:
                self._tell(Phase.RETRY, ", ".join(f"{name} attempt {number}" for name, number in attempts.items()))
            tried, outcomes = todo, run_wave(self.bench, todo, attempts, self.floor, eta_s)
            self.bench.stops.check()
            for cell in todo:
                rounds[cell.name] -= 1
            failed = [cell for cell in todo if self._again(cell, outcomes[cell.name])]
            todo = [cell for cell in whole(tried, failed) if rounds[cell.name] > 0]
            self.quarantined = self.recovery.after({cell.boards[0]: outcomes[cell.name] for cell in tried})
            unfit = unfit_cells(todo, self.quarantined)
            self.missing |= unfit
            todo = [cell for cell in todo if cell.name not in unfit]
            again = True

    def _again(self, cell: Cell, outcome: Outcome) -> bool:
        """Take an outcome into account; whether another attempt may do better."""
        if isinstance(outcome, BenchError):
            self.missing[cell.name] = str(outcome)
            return outcome.transient
        self.standing.count(outcome)
        return not outcome["valid"]

    def _close(self) -> CampaignOutcome:
        """facts-after, verdict, manifest. After an interruption without the facts: nobody wants to wait for them."""
        if not self.interrupted:
            facts_after(self.bench, [board for board in self._active() if board.name not in self.floor.away])
        self.bench.journal.note("closed", interrupted=self.interrupted)
        ending = Ending(self.missing, self.interrupted, self.not_restored)
        made = collect.close(self.bench.folder, ending)
        for entry in made["warnings"]:
            self._tell(Phase.DONE, entry["what"], entry["board"])
        self._tell(Phase.DONE, "interrupted; the boards were put back" if self.interrupted else "done")
        return CampaignOutcome(self.bench.folder, not_restored=dict(self.not_restored), **made["counts"])


def plan_only(path: Path, boards: Sequence[Board], time_scale: float = 1.0) -> Plan:
    """The plan that `run` would lock, without asking any board. Raises InputError."""
    matrix = load_matrix(path)
    return make_plan(matrix, choose_boards(matrix, boards), time_scale)
