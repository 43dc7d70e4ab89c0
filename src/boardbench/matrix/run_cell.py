"""One cell on one board, step by step. The campaign says when; what the steps are stands here.

Between `start` and `collect` nothing is sent to the board: the connection is closed, not idle.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from boardbench.errors import BenchError, DeadlineError, InputError, RigError, UnreachableError
from boardbench.inventory import Board
from boardbench.matrix import cluster
from boardbench.matrix import guard as guards
from boardbench.matrix.contact import enter, pause
from boardbench.matrix.cooling import Driver, Step, steps_of
from boardbench.matrix.cooling.proof import fan_after, fan_before
from boardbench.matrix.gates.keeper import SAMPLE_S, Keeper
from boardbench.matrix.given import cold_files, options_on
from boardbench.matrix.heart import Heart
from boardbench.matrix.interrupt import Stops
from boardbench.matrix.journal import Journal
from boardbench.matrix.lease import Holder
from boardbench.matrix.plan import Cell, Plan
from boardbench.matrix.power.recovery import refusal
from boardbench.matrix.progress import OnProgress, Phase, Progress
from boardbench.matrix.readback import levels_now
from boardbench.results.collect import evidence_of, finish_attempt
from boardbench.results.fetch import DoorLike
from boardbench.results.judge import Rules
from boardbench.results.record import Attempt, RawRead, with_answer
from boardbench.workloads.base import PYTHON, Chain, Durations, Harness, script
from boardbench.workloads.registry import workload

LOGGER_SCRIPT = script("thermal-logger", "thermal_logger.py")
STRAY_GRACE_S = 5.0
ALWAYS_NEEDED = ("leftovers", "strays", "settings")
"""Gates without which a run is never started, whatever the matrix says."""


@dataclass(frozen=True)
class Timings:
    """How long things may take, in wall seconds; beside what the plan says.

    `lead_s` before the load, in which the controller hangs up, and `trail_s` after it, before it calls again: inside
    the window nothing is sent to a board, though a program takes a moment to start.
    """

    prepare_s: float = 120.0
    start_s: float = 60.0
    window_slack_s: float = 30.0
    lead_s: float = 0.5
    trail_s: float = 0.3
    patience_s: float = 120.0
    retry_every_s: float = 3.0
    restore_s: float = 60.0
    lease_ttl_s: float = 60.0


@dataclass(frozen=True)
class Bench:
    """What every step of a campaign needs. One a campaign; nothing in it changes."""

    folder: Path
    plan: Plan
    boards: Mapping[str, Board]
    drivers: Mapping[str, Driver]
    payloads: Mapping[str, Any]
    boot_ids: Mapping[str, str | None]
    virtual: bool
    holder: Holder
    heart: Heart
    stops: Stops
    journal: Journal
    open_door: Callable[[Board], DoorLike]
    on_progress: OnProgress
    timings: Timings
    facts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    keeper: Keeper = field(default_factory=Keeper)

    @property
    def campaign(self) -> str:
        """The campaign's id."""
        return self.folder.name

    @property
    def scope(self) -> str:
        """The scope of its changes on the boards; by the first word a board knows a dead campaign's scope as such."""
        return f"campaign-{self.campaign}"

    @property
    def window_s(self) -> float:
        """How long a load lasts, in wall seconds."""
        return self.plan.window_s

    @property
    def limit_s(self) -> float:
        """When the board ends a load that does not end by itself, in wall seconds."""
        return self.lead_s + self.silence_s + self.timings.window_slack_s

    @property
    def prepare_s(self) -> float:
        """Deadline of `prepare`: cooling and the rest."""
        cool = self.plan.matrix.cool
        return (self.plan.wall_s(cool.timeout_s) if cool else 0.0) + self.timings.prepare_s

    @property
    def patience_s(self) -> float:
        """How long a board may stay away before its cell is given up; virtual boards live faster and reboot at once."""
        return max(self.timings.patience_s / self.plan.time_scale, min(self.timings.patience_s, 15.0))

    @property
    def assembly_s(self) -> float:
        """Wall seconds in which boards that work together find each other and warm up; 0 for any other load."""
        together = cluster.cluster_workload(self.plan.matrix.workload)
        return together.lead_s(self.plan.matrix.workload_options, self.plan.load_scale) if together is not None else 0.0

    @property
    def lead_s(self) -> float:
        """From a run's start to its load, in wall seconds; scaled, but hanging up takes its time on any board."""
        return self.assembly_s or max(self.timings.lead_s / self.plan.time_scale, min(self.timings.lead_s, 0.3))

    @property
    def trail_s(self) -> float:
        """From the load's end to the next call, in wall seconds."""
        return max(self.timings.trail_s / self.plan.time_scale, min(self.timings.trail_s, 0.1))

    @property
    def silence_s(self) -> float:
        """How long a wave's boards are left alone at most, in wall seconds."""
        return self.window_s + self.plan.interval_s

    @property
    def hold_s(self) -> float:
        """For how long a board is held at a time: short, since heartbeats renew it while the controller lives."""
        return self.timings.lease_ttl_s

    @property
    def window_hold_s(self) -> float:
        """A hold that outlives the silent window, in which there are no heartbeats, and the usual time after it."""
        return self.silence_s + self.hold_s

    def phase(self, cell: Cell) -> str | None:
        """The state of cooling that a run of this cell has; none for a board that only loads others."""
        return None if cell.role == cluster.LOAD else self.plan.arm(cell.arm).phase

    def rules(self, cell: Cell) -> Rules:
        """By what a run of this cell is judged."""
        raw_files = cluster.raw_files(self.plan.matrix.workload, cell.role)
        return Rules.of_plan(self.plan.body(), cell.boards[0], self.phase(cell), raw_files)


def run_name(bench: Bench, cell: Cell, attempt: int) -> str:
    """The run's name on the board: unique over campaigns, and a good unit name."""
    return f"{run_prefix(bench)}{cell.number:03d}-a{attempt}"


def run_prefix(bench: Bench) -> str:
    """How the names of all runs of the campaign begin."""
    return f"{bench.campaign.rsplit('-', 1)[-1]}-"


def harness_of(plan: Plan) -> Harness:
    """How strays of this matrix are known."""
    return workload(plan.matrix.workload).harness.joined(Harness(scripts=(LOGGER_SCRIPT,)))


def prepare(
    bench: Bench, door: DoorLike, cell: Cell, attempt: int, fan: Sequence[Step] = ()
) -> tuple[Mapping[str, Any], ...]:
    """Bring the board to the start condition and start the logger; returns the evidence. Raises BenchError.

    `fan`: what the board itself sets for its fan.
    """
    board = cell.boards[0]
    plan, arm = bench.plan, bench.plan.arm(cell.arm)
    settings = [*fan, *steps_of(plan.settings(arm, board, bench.facts.get(board)))]
    cool = None if cell.role == cluster.LOAD else plan.matrix.cool  # it is not under test
    args: dict[str, object] = {
        "run": run_name(bench, cell, attempt),
        "campaign": bench.campaign,
        "scope": bench.scope,
        "strays": harness_of(plan).as_dict(),
        "cache_files": cold_files(plan, bench.boards[board], arm, bench.payloads)
        if "cache" in plan.matrix.gates
        else None,
        "settings": settings,
        "logger": {"argv": [PYTHON, LOGGER_SCRIPT], "period_s": plan.logger_period_s},
        "watch_s": SAMPLE_S,
        "cool": None
        if cool is None
        else {
            "zone_types": list(cool.zone_types),
            "below_celsius": bench.keeper.start_below(bench.boards[board], cool.below_celsius),
            "timeout_s": plan.wall_s(cool.timeout_s),
        },
    }
    args["lease"] = bench.holder.heartbeat(bench.hold_s)
    bench.journal.note("prepare", run=args["run"], cell=cell.name, board=board, attempt=attempt)

    def tell(event: dict[str, object]) -> None:
        if event.get("event") == "phase":
            text = f"{event.get('name')}: {event.get('message')}"
            bench.on_progress(Progress(Phase.PREPARE, text, board, cell.wave, len(plan.waves)))

    answer = door.call("prepare", args, deadline_s=bench.prepare_s, on_event=tell)
    evidence = evidence_of(answer)
    evidence += fan_before(bench, door, board, bench.phase(cell), evidence)
    if all(entry["ok"] for entry in evidence if entry["gate"] == "settings"):
        evidence += levels_now(bench, door, board, arm, "before")
    evidence += bench.keeper.before_run(door, bench.boards[board], str(args["run"]), answer.get("load"))
    needed = {*plan.matrix.gates, *ALWAYS_NEEDED}
    failed = [f"{entry['gate']}: {entry['why']}" for entry in evidence if entry["gate"] in needed and not entry["ok"]]
    if failed:
        # A run from a wrong start cannot count, so it is not made; the next attempt may find a better start.
        raise refusal(evidence, f"not at the start condition: {'; '.join(failed)}", board)
    return evidence


def start(bench: Bench, door: DoorLike, cell: Cell, attempt: int, evidence: tuple[Mapping[str, Any], ...]) -> Attempt:
    """Start the load, journal it, and return what is needed to collect it. Raises BenchError.

    When the link is lost meanwhile the board is asked: what it started counts, what it did not start is not started
    any more, since the conditions that were proved are no longer fresh.
    """
    begun = _attempt(bench, cell, attempt, evidence)
    argv = begun.workload["argv"]
    args = {"run": begun.run, "exec": argv, "env": {}, "cwd": "/", "limits": dict(bench.plan.matrix.limits)}
    args["deadline_s"] = bench.limit_s
    guard = guards.request(bench.plan.guards.get(begun.board), bench.drivers.get(begun.board), bench.plan.time_scale)
    args |= {"lease": bench.holder.heartbeat(bench.window_hold_s), "guard": guard}
    fields = {"run": begun.run, "cell": cell.name, "board": begun.board, "attempt": attempt, "begun": begun.as_dict()}
    bench.journal.note("start", **fields, **({"assembly_s": bench.assembly_s} if bench.assembly_s else {}))
    try:
        answer: Mapping[str, Any] = door.call("start", args, deadline_s=bench.timings.start_s)
    except (UnreachableError, DeadlineError) as error:
        answer = _answer_of_start(bench, begun, error)
    if not isinstance(answer.get("started"), Mapping):
        raise RigError("the board did not say when the load started", where=begun.board)
    begun = with_answer(begun, answer)
    bench.journal.note("started", run=begun.run, attempt=begun.as_dict())
    return begun


def _attempt(bench: Bench, cell: Cell, attempt: int, evidence: tuple[Mapping[str, Any], ...]) -> Attempt:
    """All of an attempt that is known before the board has answered."""
    plan = bench.plan
    arm, kind, name = plan.arm(cell.arm), workload(plan.matrix.workload), run_name(bench, cell, attempt)
    options = options_on(plan, bench.boards[cell.boards[0]], arm)
    given = options.get("chain")
    chain = Chain(plan.wall_s(given["run_s"]), plan.wall_s(given["gap_s"])) if given is not None else None
    durations = Durations(bench.window_s, plan.interval_s, chain, bench.lead_s)
    wave = [other for other in plan.cells if other.wave == cell.wave]
    place = None
    if cell.role:
        place = cluster.place_of(cell, wave, bench.boards, virtual=bench.virtual, seed=plan.matrix.seed)
    argv = cluster.argv(kind.name, place, name, options, durations)
    mode = str(options.get("mode", "sustained"))
    return Attempt(
        run=name,
        campaign=bench.campaign,
        cell=cell.name,
        arm=dict(arm.levels),
        phase=bench.phase(cell),
        repetition=cell.repetition,
        attempt=attempt,
        board=cell.boards[0],
        workload={
            "name": kind.name,
            "mode": mode,
            "argv": argv,
            "payload_files": cluster.payload_files(kind.name, bench.payloads),
        },
        raw_files=cluster.raw_files(kind.name, cell.role),
        virtual=bench.virtual,
        time_scale=plan.time_scale,
        logger_period_s=plan.logger_period_s,
        boot_id=None,
        started={},
        controller_started_unix_s=round(time.time(), 3),
        evidence=evidence,
    )


def _answer_of_start(bench: Bench, begun: Attempt, error: BenchError) -> Mapping[str, Any]:
    """What a board that could not answer `start` has to say about it. Raises `error` when it has not started."""
    with enter(bench, bench.boards[begun.board]) as door:
        found = door.call("staged", {}, deadline_s=bench.timings.restore_s).get("runs")
    for entry in found if isinstance(found, list) else []:
        if entry.get("run") == begun.run and isinstance(entry.get("start_answer"), Mapping):
            return dict(entry["start_answer"])
    raise error


def await_end(bench: Bench, board: Board, begun: Attempt) -> None:
    """Wait on a silent connection until a load that ends by its own work has ended. Raises BenchError."""
    with bench.open_door(board) as door:
        door.call("watch", {"run": begun.run}, deadline_s=bench.limit_s)


def read_raw(name: str, folder: Path) -> RawRead:
    """What a workload's raw files say; a file that cannot be read is a reason against the run, not an error."""
    try:
        samples = workload(name).read(folder)
    except InputError as error:
        # The folder of the moment (`.partial`) is no part of what is wrong.
        where = error.where.replace(f"{folder}/", "workload/")
        return RawRead(None, None, f"{where}: {error.what}")
    return RawRead(samples.window_monotonic_s, samples.end_stamp, None)


def collect_run(
    bench: Bench,
    board: Board,
    begun: Attempt,
    *,
    settings_stand: bool = True,
    leave_open: Callable[[DoorLike], None] | None = None,
) -> dict[str, Any]:
    """Reconnect after the window and bring the run home; tries again while the board does not answer.

    `settings_stand`: what was set for the run still stands, so that what is seen now says something about it.
    `leave_open` gets the connection once the run is home, in place of closing it.

    Raises the last UnreachableError or DeadlineError when the patience is used up (the run stays on the board), or any
    other BenchError at once.
    """
    deadline = time.monotonic() + bench.patience_s
    # A load that went on without a controller may be at its beginning.
    watch_s = bench.limit_s
    rules = bench.rules(bench.plan.cell(begun.cell))
    wait_s = bench.timings.retry_every_s / 4
    lease = bench.holder.heartbeat(bench.hold_s)
    while True:
        try:
            with ExitStack() as closing:
                door = closing.enter_context(bench.open_door(board))
                look = partial(after_load, bench, door, begun) if settings_stand else tuple
                run = finish_attempt(
                    door, begun, bench.folder, rules, read_raw, watch_s=watch_s, look=look, lease=lease
                )
                if leave_open is not None:
                    closing.pop_all()
                    leave_open(door)
        except (UnreachableError, DeadlineError) as error:
            if time.monotonic() + wait_s >= deadline:
                raise
            tell = Progress(Phase.COLLECT, f"no answer ({error.what}), trying again", board.name)
            bench.on_progress(tell)
            pause(wait_s)
            wait_s = min(2 * wait_s, 4 * bench.timings.retry_every_s)
        else:
            bench.journal.note(
                "collected", run=begun.run, valid=run["valid"], reasons=[r["code"] for r in run["invalid_reasons"]]
            )
            return run


def after_load(bench: Bench, door: DoorLike, begun: Attempt) -> tuple[Mapping[str, Any], ...]:
    """Evidence that what was set for the run still holds at its end."""
    arm = bench.plan.arm(bench.plan.cell(begun.cell).arm)
    return (*fan_after(bench, door, begun), *levels_now(bench, door, begun.board, arm, "after"))


def restore_board(bench: Bench, board: Board) -> str | None:
    """Put back what the campaign changed and stop what it started; None, or why that is not proved.

    Raises UnreachableError for a board that does not answer.
    """
    try:
        with bench.open_door(board) as door:
            args: dict[str, object] = {
                # Whoever took the board over by now would lose the processes that are ended below.
                "lease": bench.holder.heartbeat(bench.hold_s),
                "harness": harness_of(bench.plan).as_dict(),
                "end": True,
                "grace_s": STRAY_GRACE_S,
            }
            strays = door.call("strays", args, deadline_s=bench.timings.restore_s)
            answer = door.call("restore", {"scope": bench.scope}, deadline_s=bench.timings.restore_s)
    except UnreachableError:
        raise
    except BenchError as error:
        return str(error)
    restored, found = answer.get("restored"), strays.get("found")
    if not isinstance(restored, list) or not isinstance(found, list):
        return "the board did not say what it put back"
    bad = [f"{entry.get('what')}: {entry.get('why')}" for entry in restored if entry.get("ok") is not True]
    bad += [f"process {entry.get('pid')} still runs: {entry.get('why')}" for entry in found if not entry.get("ended")]
    return "; ".join(bad) or None
