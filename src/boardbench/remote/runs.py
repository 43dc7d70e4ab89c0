"""The verbs of a run: prepare, start, watch, finish, fetch, forget. Each goes on from the run's state on the disk."""

from __future__ import annotations

import hashlib
import json
import os
import select
import time
from typing import Any

from . import gates, guard_request, pings, processes, run_after, run_files, run_prepare, run_units, services, stamps
from .failures import BAD_INPUT, RIG, WORKLOAD, Failure
from .places import Places
from .run_state import Run
from .wire import Call

ALIVE_WITHIN_S = 10.0
CLOCK_ROUND_TRIPS = 5
POLL_S = 0.5
prepare = run_prepare.prepare


def start(args: dict[str, Any], call: Call, manager: services.ServiceManager | None = None) -> dict[str, Any]:
    """The verb: `{"unit", "pid", "started", "boot_id"}`. Repeated with the same arguments it gives the same answer."""
    run = Run(call.places, args.get("run"))
    program = parse_program(args, run)
    state = run.load()
    if run.rebooted(state):
        raise Failure(RIG, "the board rebooted since it was prepared", run.name, "finish this run and make a new one")
    key = hashlib.sha256(json.dumps(args, sort_keys=True, default=str).encode()).hexdigest()
    if state["phase"] == "finished" or state.get("start_key", key) != key:
        raise Failure(BAD_INPUT, f"run {run.name} has started already", "start", "give each attempt a name of its own")
    if "start_answer" in state:
        answer: dict[str, Any] = state["start_answer"]
        return answer
    manager = manager or services.detect(call.places)
    if state.get("start_key") is None or (run.started() is None and run.exit() is None):
        guarded = program.guard is not None
        if state.get("start_key") is not None:
            # A call that was cut off in here may have come as far as the unit.
            manager.stop(run.workload_unit)
            manager.remove_transient(run.workload_unit)
        state = dict(state, phase="started", start_key=key, limits=args.get("limits") or {}, guarded=guarded)
        run.save(state)
        manager.write_transient(run.workload_unit, run_units.write(run, "workload", program))
        _start_unit(manager, run)
    state = dict(state, phase="started", start_key=key, start_answer=_prove_started(run, call.places))
    run.save(state)
    return dict(state["start_answer"])


def _start_unit(manager: services.ServiceManager, run: Run) -> None:
    try:
        manager.start(run.workload_unit)
    except Failure:
        # A program that ended within the manager's first look is not the manager's failure: what it left tells.
        if run.exit() is None:
            raise


def parse_program(args: dict[str, Any], run: Run) -> run_units.Program:
    """What `start` was asked to run."""
    argv = args.get("exec")
    if not isinstance(argv, list) or not argv or not str(argv[0]).startswith("/"):
        raise Failure(BAD_INPUT, f"exec is {argv!r:.80}", "start", "a list that begins with an absolute path")
    env = args.get("env") or {}
    if not isinstance(env, dict) or any("=" in str(key) or "\0" in str(value) for key, value in env.items()):
        raise Failure(BAD_INPUT, f"env is {env!r:.80}", "start", "names and values")
    deadline_s = args.get("deadline_s")
    if isinstance(deadline_s, bool) or not isinstance(deadline_s, (int, float)) or deadline_s <= 0:
        raise Failure(BAD_INPUT, f"deadline_s is {deadline_s!r:.80}", "start", "seconds above 0")
    limits = args.get("limits") or {}
    unknown = set(limits) - {"memory_max_bytes", "swap_max_bytes"}
    if unknown or any(isinstance(v, bool) or not isinstance(v, int) or v < 0 for v in limits.values()):
        raise Failure(BAD_INPUT, f"limits is {limits!r:.80}", "start", "memory_max_bytes, swap_max_bytes: whole bytes")
    return run_units.Program(
        argv=tuple(str(part) for part in argv),
        env={str(key): str(value) for key, value in env.items()},
        cwd=str(args.get("cwd") or run.workload),
        deadline_s=float(deadline_s),
        limits=run_units.Limits(**limits),
        guard=guard_request.parse(args.get("guard"), run.places),
    )


def _prove_started(run: Run, places: Places) -> dict[str, Any]:
    """Waits until the program itself runs (or has run): a manager's "started" is only about our supervisor."""
    until = time.monotonic() + ALIVE_WITHIN_S
    while True:
        started, ended = run.started(), run.exit()
        if ended and ended.get("failed"):
            raise Failure(WORKLOAD, str(ended["failed"]), run.workload_unit, run.log_tail("workload.log"))
        if started is not None:
            break
        if time.monotonic() >= until:
            raise Failure(
                RIG,
                f"the workload does not run {ALIVE_WITHIN_S:g} s after its start; {run.log_tail('workload.log')}",
                run.workload_unit,
            )
        time.sleep(0.05)
    pid, ticks = int(started["pid"]), started["start_time_ticks"]
    if ended is None and ticks is not None:
        run.record("workload", run.workload_unit, pid, int(ticks))
        run.record(
            "supervisor",
            run.workload_unit,
            int(started["supervisor_pid"]),
            int(started["supervisor_start_time_ticks"]),
        )
    return {
        "unit": run.workload_unit,
        "pid": pid,
        "started": started["started"],
        "boot_id": stamps.boot_id(places),
        "exe": processes.exe(places, pid),
    }


def watch(args: dict[str, Any], call: Call) -> dict[str, Any]:
    """The verb: returns when the workload has ended: `{"ended": true, "exit", "boot_id"}`. Says nothing before."""
    run = Run(call.places, args.get("run"))
    state = run.load()
    if "start_answer" not in state:
        raise Failure(BAD_INPUT, f"run {run.name} has not started", "watch", "start it first")
    started = run.started()
    if started is not None and not run.rebooted(state):
        ticks = started["supervisor_start_time_ticks"]
        if ticks is not None:
            wait_end(call.places, int(started["supervisor_pid"]), int(ticks))
    boot_id = stamps.boot_id(call.places)
    return {"ended": True, "exit": exit_of(run, None, run.rebooted(state)), "boot_id": boot_id}


def wait_end(places: Places, pid: int, start_time_ticks: int) -> None:
    """Sleeps until exactly that process has ended: woken by the kernel if Python can, else looking twice a second."""
    fd = _pidfd(pid)
    try:
        # Asked for after the pid was opened: a pid that was given away in between is noticed here.
        while processes.alive(places, pid, start_time_ticks):
            if fd is None:
                time.sleep(POLL_S)
            else:
                poller = select.poll()
                poller.register(fd, select.POLLIN)
                poller.poll()
    finally:
        if fd is not None:
            os.close(fd)


def _pidfd(pid: int) -> int | None:
    opener: Any = getattr(os, "pidfd_open", None)
    if opener is None:
        return None
    try:
        return int(opener(pid))
    except OSError:
        return None


def exit_of(run: Run, unit: services.UnitState | None, rebooted: bool) -> dict[str, Any]:
    """`{"code"}`, `{"signal"}` or `{"missing": why}`: from the supervisor, else from the service manager."""
    ended = run.exit()
    if ended is not None:
        for name in ("code", "signal"):
            if name in ended:
                return {name: ended[name]}
        return {"missing": str(ended.get("failed"))}
    if rebooted:
        return {"missing": "the board rebooted while it ran"}
    if unit is not None and unit.exit_signal is not None:
        return {"signal": unit.exit_signal}
    return {"missing": "its supervisor was killed"}


def finish(args: dict[str, Any], call: Call, manager: services.ServiceManager | None = None) -> dict[str, Any]:
    """The verb: ends what still runs: `{"evidence": [...], "files": [{"name", "size", "sha256"}]}`. May be repeated."""
    run = Run(call.places, args.get("run"))
    state = run.load()
    if state["phase"] == "finished":
        return {"evidence": state["evidence"], "files": state["files"]}
    manager = manager or services.detect(call.places)
    rebooted = run.rebooted(state)
    unit = manager.state(run.workload_unit)
    if unit.active:
        call.phase("finish", "stopping the workload, which still runs")
        manager.stop(run.workload_unit)
        unit = manager.state(run.workload_unit)
    _end_remains(run, call.places)
    exit_ = exit_of(run, unit, rebooted)
    started, ended = run.started(), run.exit()
    window = None
    if started and ended and not rebooted:
        window = gates.Window(started["started"]["monotonic_s"], ended["ended"]["monotonic_s"])
    evidence = [gates.boot(state["boot_id"], stamps.boot_id(call.places)), gates.load(started, ended, exit_)]
    evidence += [gates.load_runs(started, ended), gates.disk(ended), gates.instruments(ended)]
    evidence.append(run_after.settings(state, call))
    evidence.append(gates.evidence("clock", True, pings.clock(call, CLOCK_ROUND_TRIPS)))
    if state.get("guarded"):
        evidence.append(gates.guard(ended))
    if state.get("limits"):
        evidence.append(gates.limits(state["limits"], started))
    if state.get("logger") is not None:
        evidence.append(_finish_logger(run, state, window, manager))
    manager.remove_transient(run.workload_unit)
    run.remove_records()
    files = run_files.listing(run)
    run.save(dict(state, phase="finished", finished=stamps.now(), evidence=evidence, files=files))
    return {"evidence": evidence, "files": files}


def _end_remains(run: Run, places: Places) -> None:
    """A manager that was told to stop may have lost sight of a process: the records have not."""
    started = run.started()
    if started is None:
        return
    wanted = []
    for name in ("supervisor_", ""):
        pid, ticks = started[name + "pid"], started[name + "start_time_ticks"]
        if ticks is not None and processes.alive(places, int(pid), int(ticks)):
            wanted.append((int(pid), int(ticks)))
    stuck = [
        f"process {pid}: {ending.why}"
        for pid, ending in processes.end_all(places, wanted, run_units.STOP_GRACE_S).items()
        if not ending.ended
    ]
    if stuck:
        raise Failure(RIG, "the workload cannot be ended: " + "; ".join(stuck), run.workload_unit, "reboot the board")


def _finish_logger(
    run: Run, state: dict[str, Any], window: gates.Window | None, manager: services.ServiceManager
) -> dict[str, Any]:
    period_s = float(state["logger"]["period_s"])
    was_active = manager.state(run.logger_unit).active
    if window is not None and was_active:
        # One row after the end of the load proves that the log covers it.
        until = time.monotonic() + max(3 * period_s, 1.0)
        while time.monotonic() < until:
            rows = gates.thermal_rows(run.thermal_csv)
            if rows and rows[-1].monotonic_s >= window.end_s:
                break
            time.sleep(min(max(period_s / 4, 0.02), 0.5))
    manager.stop(run.logger_unit)
    manager.remove_transient(run.logger_unit)
    entry = gates.logger(gates.thermal_rows(run.thermal_csv), period_s, window, scaled=_is_scaled(run.places))
    entry["saw"]["ran_until_finish"] = was_active
    if not was_active:
        entry["saw"]["log"] = run.log_tail("logger.log")
    return entry


def _is_scaled(places: Places) -> bool:
    from . import facts

    scale = (facts.virtual(places) or {}).get("time_scale", 1.0)
    return isinstance(scale, (int, float)) and scale > 1.0


def fetch(args: dict[str, Any], call: Call) -> dict[str, Any]:
    """The verb: the finished run's files as `data` events of one uncompressed tar, then `{"bytes"}`."""
    run = Run(call.places, args.get("run"))
    state = run.load()
    if state["phase"] != "finished":
        raise Failure(BAD_INPUT, f"run {run.name} is not finished", "fetch", "finish it first")
    return {"bytes": run_files.send_tar(run, state["files"], lambda data: call.data("tar", data))}


def forget(args: dict[str, Any], call: Call) -> dict[str, Any]:
    """The verb: removes the run's folder. A run that still runs is refused; one that is not there is a success."""
    run = Run(call.places, args.get("run"))
    state = run.load_if_there()
    if state is not None and state["phase"] != "finished":
        raise Failure(BAD_INPUT, f"run {run.name} is not finished", "forget", "finish it first")
    run_files.remove(run)
    return {}
