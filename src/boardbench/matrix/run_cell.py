"""One cell on one board, step by step. The campaign says when; what the steps are stands here.

Between `start` and `collect` nothing is sent to the board: the connection is closed, not idle.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from boardbench import crew
from boardbench.errors import BenchError, DeadlineError, InputError, RigError, UnreachableError
from boardbench.inventory import Board
from boardbench.matrix.cooling import Driver, steps_of
from boardbench.matrix.journal import Journal
from boardbench.matrix.lease import Holder
from boardbench.matrix.plan import Arm, Cell, Plan
from boardbench.matrix.progress import OnProgress, Phase, Progress
from boardbench.results.collect import evidence_of, finish_attempt
from boardbench.results.fetch import DoorLike
from boardbench.results.judge import Rules
from boardbench.results.record import Attempt, RawRead
from boardbench.workloads.base import PYTHON, Durations, Harness, script
from boardbench.workloads.registry import workload

LOGGER_SCRIPT = script("thermal-logger", "thermal_logger.py")
STRAY_GRACE_S = 5.0
ALWAYS_NEEDED = ("leftovers", "strays", "settings")
"""Gates without which a run is never started, whatever the matrix says."""


@dataclass(frozen=True)
class Timings:
    """How long things may take, in wall seconds; beside what the plan says."""

    prepare_s: float = 120.0
    start_s: float = 60.0
    window_slack_s: float = 30.0
    patience_s: float = 120.0
    retry_every_s: float = 3.0
    restore_s: float = 60.0


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
    journal: Journal
    open_door: Callable[[Board], DoorLike]
    on_progress: OnProgress
    timings: Timings

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
        return self.plan.wall_s(self.plan.matrix.duration_s)

    @property
    def limit_s(self) -> float:
        """When the board ends a load that does not end by itself, in wall seconds."""
        return self.window_s + self.plan.wall_s(self.plan.matrix.interval_s) + self.timings.window_slack_s

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
    def hold_s(self) -> float:
        """A hold that outlives cooling, the silent window and the time to get the board back after it."""
        return self.prepare_s + self.limit_s + self.timings.start_s + self.timings.patience_s + 120.0

    def rules(self, arm: Arm) -> Rules:
        """By what a run of this arm is judged."""
        raw_files = workload(self.plan.matrix.workload).raw_files
        return Rules.of_plan(self.plan.body(), arm.phase, raw_files)


def run_name(bench: Bench, cell: Cell, attempt: int) -> str:
    """The run's name on the board: unique over campaigns, and a good unit name."""
    return f"{bench.campaign.rsplit('-', 1)[-1]}-{cell.number:03d}-a{attempt}"


def harness_of(plan: Plan) -> Harness:
    """How strays of this matrix are known."""
    return workload(plan.matrix.workload).harness.joined(Harness(scripts=(LOGGER_SCRIPT,)))


def prepare(bench: Bench, door: DoorLike, cell: Cell, attempt: int) -> tuple[Mapping[str, Any], ...]:
    """Bring the board to the start condition and start the logger; returns the evidence. Raises BenchError."""
    board = cell.boards[0]
    plan, arm = bench.plan, bench.plan.arm(cell.arm)
    driver = bench.drivers.get(board)
    settings = steps_of(plan.matrix.settings)
    if driver is not None and arm.phase is not None:
        settings = [*driver.steps(arm.phase), *settings]
    cool = plan.matrix.cool
    args: dict[str, object] = {
        "run": run_name(bench, cell, attempt),
        "campaign": bench.campaign,
        "scope": bench.scope,
        "strays": harness_of(plan).as_dict(),
        "cache_files": _cache_files(bench) if "cache" in plan.matrix.gates else None,
        "settings": settings,
        "logger": {"argv": [PYTHON, LOGGER_SCRIPT], "period_s": plan.logger_period_s},
        "cool": None
        if cool is None
        else {
            "zone_types": list(cool.zone_types),
            "below_celsius": cool.below_celsius,
            "timeout_s": plan.wall_s(cool.timeout_s),
        },
    }
    bench.holder.renew(door, board, bench.hold_s)
    bench.journal.note("prepare", run=args["run"], cell=cell.name, board=board, attempt=attempt)

    def tell(event: dict[str, object]) -> None:
        if event.get("event") == "phase":
            text = f"{event.get('name')}: {event.get('message')}"
            bench.on_progress(Progress(Phase.PREPARE, text, board, cell.wave, len(plan.waves)))

    evidence = evidence_of(door.call("prepare", args, deadline_s=bench.prepare_s, on_event=tell))
    needed = {*plan.matrix.gates, *ALWAYS_NEEDED}
    failed = [f"{entry['gate']}: {entry['why']}" for entry in evidence if entry["gate"] in needed and not entry["ok"]]
    if failed:
        # A run from a wrong start cannot count, so it is not made; the next attempt may find a better start.
        raise RigError(f"not at the start condition: {'; '.join(failed)}", where=board, transient=True)
    return evidence


def _cache_files(bench: Bench) -> list[str]:
    """Files on the board that must have left memory: the workload's own, which nothing uses before the start."""
    name = bench.plan.matrix.workload
    return [script(name, str(entry["name"])) for entry in bench.payloads[name]]


def start(bench: Bench, door: DoorLike, cell: Cell, attempt: int, evidence: tuple[Mapping[str, Any], ...]) -> Attempt:
    """Start the load, journal it, and return what is needed to collect it. Raises BenchError."""
    plan, board = bench.plan, cell.boards[0]
    kind = workload(plan.matrix.workload)
    name = run_name(bench, cell, attempt)
    durations = Durations(bench.window_s, plan.wall_s(plan.matrix.interval_s))
    argv = kind.argv(name, plan.matrix.workload_options, durations)
    bench.holder.renew(door, board, bench.hold_s)
    args = {"run": name, "exec": argv, "env": {}, "cwd": "/", "limits": {}, "deadline_s": bench.limit_s}
    bench.journal.note("start", run=name, cell=cell.name, board=board, attempt=attempt)
    answer = door.call("start", args, deadline_s=bench.timings.start_s)
    boot_id = answer.get("boot_id")
    started = answer.get("started")
    if not isinstance(started, Mapping):
        raise RigError("the board did not say when the load started", where=board)
    begun = Attempt(
        run=name,
        campaign=bench.campaign,
        cell=cell.name,
        arm=dict(plan.arm(cell.arm).levels),
        phase=plan.arm(cell.arm).phase,
        repetition=cell.repetition,
        attempt=attempt,
        board=board,
        workload={"name": kind.name, "argv": argv, "payload_files": bench.payloads.get(kind.name, [])},
        raw_files=kind.raw_files,
        virtual=bench.virtual,
        time_scale=plan.time_scale,
        logger_period_s=plan.logger_period_s,
        boot_id=boot_id if isinstance(boot_id, str) and boot_id else None,
        started=dict(started),
        controller_started_unix_s=round(time.time(), 3),
        evidence=evidence,
    )
    bench.journal.note("started", run=name, attempt=begun.as_dict())
    return begun


def read_raw(name: str, folder: Path) -> RawRead:
    """What a workload's raw files say; a file that cannot be read is a reason against the run, not an error."""
    try:
        samples = workload(name).read(folder)
    except InputError as error:
        # The folder of the moment (`.partial`) is no part of what is wrong.
        where = error.where.replace(f"{folder}/", "workload/")
        return RawRead(None, None, f"{where}: {error.what}")
    return RawRead(samples.window_monotonic_s, samples.end_stamp, None)


def collect_run(bench: Bench, board: Board, begun: Attempt) -> dict[str, Any]:
    """Reconnect after the window and bring the run home; tries again while the board does not answer.

    Raises the last UnreachableError or DeadlineError when the patience is used up (the run stays on the board), or any
    other BenchError at once.
    """
    deadline = time.monotonic() + bench.patience_s
    watch_s = bench.plan.wall_s(bench.plan.matrix.interval_s) + bench.timings.window_slack_s
    rules = bench.rules(bench.plan.arm("-".join(begun.arm.values())))
    while True:
        try:
            with bench.open_door(board) as door:
                bench.holder.renew(door, board.name, bench.hold_s)
                seen = replace(begun, evidence=(*begun.evidence, *_fan_after(bench, door, begun)))
                run = finish_attempt(door, seen, bench.folder, rules, read_raw, watch_s=watch_s)
        except (UnreachableError, DeadlineError) as error:
            if time.monotonic() + bench.timings.retry_every_s >= deadline:
                raise
            tell = Progress(Phase.COLLECT, f"no answer ({error.what}), trying again", board.name)
            bench.on_progress(tell)
            pause(bench.timings.retry_every_s)
        else:
            bench.journal.note(
                "collected", run=begun.run, valid=run["valid"], reasons=[r["code"] for r in run["invalid_reasons"]]
            )
            return run


def _fan_after(bench: Bench, door: DoorLike, begun: Attempt) -> list[Mapping[str, Any]]:
    """Evidence that the fan still is as it was switched: somebody may have had a hand on it meanwhile."""
    driver = bench.drivers.get(begun.board)
    steps = driver.steps(begun.phase) if driver is not None and begun.phase is not None else []
    if not steps:
        return []
    args = {"scope": bench.scope, "steps": steps, "check": True, "diff": False, "stop_on_failure": True}
    recap = door.call("apply", args, deadline_s=bench.timings.restore_s).get("recap")
    # In check mode `changed` means that the board would have to be changed.
    ok = isinstance(recap, Mapping) and recap.get("changed") == 0 and recap.get("failed") == 0
    why = "" if ok else f"after the load the fan is not as phase {begun.phase} wants it"
    return [{"gate": "cooling", "ok": ok, "saw": {"phase": begun.phase, "after_load": recap}, "why": why}]


def pause(seconds: float) -> None:
    """Sleep that a Ctrl-C of the campaign ends soon."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        crew.check_stop()
        time.sleep(min(left, 0.2))


def restore_board(bench: Bench, board: Board) -> str | None:
    """Put back what the campaign changed and stop what it started; None, or why that is not proved."""
    try:
        with bench.open_door(board) as door:
            # Whoever took the board over by now would lose the processes that are ended below.
            bench.holder.renew(door, board.name, bench.hold_s)
            args: dict[str, object] = {
                "harness": harness_of(bench.plan).as_dict(),
                "end": True,
                "grace_s": STRAY_GRACE_S,
            }
            strays = door.call("strays", args, deadline_s=bench.timings.restore_s)
            answer = door.call("restore", {"scope": bench.scope}, deadline_s=bench.timings.restore_s)
    except BenchError as error:
        return str(error)
    restored, found = answer.get("restored"), strays.get("found")
    if not isinstance(restored, list) or not isinstance(found, list):
        return "the board did not say what it put back"
    bad = [f"{entry.get('what')}: {entry.get('why')}" for entry in restored if entry.get("ok") is not True]
    bad += [f"process {entry.get('pid')} still runs: {entry.get('why')}" for entry in found if not entry.get("ended")]
    return "; ".join(bad) or None
