"""`prepare`: brings a board to the proved start of a run, one gate after the other."""

from __future__ import annotations

import os
import shutil
import time
from typing import Any

from . import cooling_wait, gates, journal, leftovers, look_load, pagecache, run_units, services, stamps, strays
from .failures import BAD_INPUT, RIG, Failure
from .kept_steps import KeptSteps
from .run_state import Run
from .wire import Call

STRAY_GRACE_S = 5.0
# A slow board needs this long to start an interpreter; only then the logger's own time counts.
FIRST_ROW_S = 10.0
PROVE_ROWS = 3
MIN_PROVE_S = 3.0
# Asking a service manager costs more than reading a file of rows; rows that come are proof enough.
ALIVE_EVERY_S = 1.0
MAX_WATCH_S = 60.0
ARGUMENTS = {"run", "campaign", "cool", "strays", "cache_files", "logger", "settings", "scope", "watch_s"}


def prepare(args: dict[str, Any], call: Call, manager: services.ServiceManager | None = None) -> dict[str, Any]:
    """The verb: `{"evidence": [...], "ready": bool, "load"}`. `null` for an argument leaves its gate out.

    `watch_s`: other people's load is watched meanwhile, at least so long: `load` is what `look` would say of it.

    A stray that cannot be ended or a setting that cannot be made ends it there (`ready` is false, no logger runs);
    a board that does not get cool or a cache that stays warm is evidence, and for the campaign to judge.
    """
    unknown = set(args) - ARGUMENTS
    if unknown:
        raise Failure(BAD_INPUT, f"unknown argument {', '.join(sorted(unknown))}", "prepare")
    run = Run(call.places, args.get("run"))
    scope = journal.check_scope(args.get("scope"))
    cool = cooling_wait.parse(args["cool"]) if args.get("cool") is not None else None
    watch_s = parse_watch(args.get("watch_s"))
    manager = manager or services.detect(call.places)
    _clear(run, manager)
    found = [_leftover_scopes(call, scope)]
    found.append(_strays(args.get("strays"), scope, call, manager))
    if found[-1]["ok"] and args.get("settings"):
        found.append(_settings(args["settings"], scope, call))
    if not found[-1]["ok"]:
        return {"evidence": found, "ready": False, "load": None}
    if cool is not None:
        found.append(cooling_wait.wait(call.places, cool, lambda text: call.phase("cooling", text)))
    if args.get("cache_files") is not None:
        found.append(_cache(args["cache_files"], call))
    run.create()
    state: dict[str, Any] = {
        "run": run.name,
        "campaign": args.get("campaign"),
        "scope": scope,
        "boot_id": stamps.boot_id(call.places),
        "phase": "prepared",
        "prepared": stamps.now(),
        "logger": args.get("logger"),
        "settings": args.get("settings") or [],
        # Nothing is noted in the scope when the board was as wanted already.
        "scope_noted": scope in set(journal.scope_names(call.places)),
    }
    # Saved before the logger starts: whoever comes next knows that there may be one.
    run.save(state)
    mark = None
    if args.get("logger") is not None:
        proved, mark = _logger(args["logger"], run, call, manager)
        found.append(proved)
    run.save(dict(state, prepare_evidence=found))
    load = None
    if watch_s is not None:
        load = look_load.end(call.places, manager, mark or look_load.begin(call.places), watch_s)
    return {"evidence": found, "ready": all(entry["ok"] for entry in found), "load": load}


def parse_watch(value: Any) -> float | None:
    """The `watch_s` argument: seconds, or None."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= MAX_WATCH_S:
        raise Failure(BAD_INPUT, f"watch_s is {value!r:.80}", "prepare", f"seconds above 0, at most {MAX_WATCH_S:g}")
    return float(value)


def _clear(run: Run, manager: services.ServiceManager) -> None:
    """A `prepare` that was cut off may be repeated; a run that has started may not."""
    state = run.load_if_there()
    if state is None and not os.path.exists(run.folder):
        return
    if state is not None and state["phase"] != "prepared":
        raise Failure(
            BAD_INPUT,
            f"run {run.name} is {state['phase']} already",
            "prepare",
            "give each attempt a name of its own",
        )
    manager.stop(run.logger_unit)
    manager.remove_transient(run.logger_unit)
    run.remove_records()
    shutil.rmtree(run.folder)


def _leftover_scopes(call: Call, scope: str) -> dict[str, Any]:
    """What a campaign that died left changed is put back before anything is measured."""
    saw, failed = leftovers.put_back(call, leftovers.scopes_of_the_dead(call, scope))
    return gates.evidence("leftovers", not failed, {"scopes": saw}, "; ".join(failed))


def _strays(harness: Any, scope: str, call: Call, manager: services.ServiceManager) -> dict[str, Any]:
    places = call.places
    wanted = strays.parse_harness(harness).merged(strays.installed_harness(places))
    found = strays.find(places, manager, wanted, frozenset())
    if found:
        call.phase("strays", f"ending {len(found)} left-over process(es)")
        strays.end(places, manager, found, STRAY_GRACE_S, strays.noter(places, manager, scope))
        strays.verify(places, manager, wanted, frozenset(), found)
    left = [f"{stray.exe or stray.unit} {stray.pid or ''}: {stray.why}" for stray in found if not stray.ended]
    return gates.evidence("strays", not left, {"found": [stray.as_dict() for stray in found]}, "; ".join(left))


def _settings(steps: Any, scope: str, call: Call) -> dict[str, Any]:
    from . import apply

    if not isinstance(steps, list):
        raise Failure(BAD_INPUT, f"settings is {steps!r:.80}", "prepare", "a list of steps")
    call.phase("settings", f"making {len(steps)} setting(s)")
    listening: Any = KeptSteps(call, tell=True)
    args = {"scope": scope, "steps": steps, "check": False, "diff": False, "stop_on_failure": True}
    recap = apply.apply(args, listening)["recap"]
    told = [{key: step.get(key) for key in ("id", "state", "changes", "message")} for step in listening.steps]
    failed = [f"{step['id']}: {step['message']}" for step in told if step["state"] == "failed"]
    why = "; ".join(failed) if failed else ("a setting failed" if recap["failed"] else "")
    return gates.evidence("settings", not recap["failed"], {"recap": recap, "steps": told}, why)


def _cache(files: Any, call: Call) -> dict[str, Any]:
    call.phase("cache", "dropping the page cache")
    dropped = pagecache.drop_cache({"files": files}, call)
    why = dropped.pop("why")
    return gates.evidence("cache", dropped["state"] == "cold", dropped, why)


def _logger(
    value: Any, run: Run, call: Call, manager: services.ServiceManager
) -> tuple[dict[str, Any], look_load.Mark]:
    """Starts and proves it. Others can be watched from the moment on when the manager has done its own work."""
    argv, period_s = parse_logger(value)
    call.phase("logger", "starting the thermal logger")
    program = run_units.Program(
        argv=(*argv, "--out", run.folder, "--period-s", repr(period_s)), env={}, cwd=run.folder, replace=True
    )
    manager.write_transient(run.logger_unit, run_units.write(run, "logger", program))
    try:
        manager.start(run.logger_unit)
        mark = look_load.begin(call.places)
        return _prove_logger(run, manager, period_s), mark
    except Failure as failure:
        state = manager.state(run.logger_unit)
        manager.stop(run.logger_unit)
        manager.remove_transient(run.logger_unit)
        ended = f" (it ended{f', exit code {state.exit_code}' if state.exit_code is not None else ''})"
        raise Failure(
            RIG,
            f"the logger does not sample: {failure.what}{'' if state.active else ended}; {run.log_tail('logger.log')}",
            run.logger_unit,
            "run it by hand on the board",
        ) from None


def parse_logger(value: Any) -> tuple[list[str], float]:
    """The `logger` argument of `prepare`: argv and the period in seconds."""
    argv = value.get("argv") if isinstance(value, dict) else None
    period_s = value.get("period_s") if isinstance(value, dict) else None
    if not isinstance(argv, list) or not argv or not str(argv[0]).startswith("/"):
        raise Failure(BAD_INPUT, f"logger.argv is {argv!r:.80}", "prepare", "a list that begins with an absolute path")
    if isinstance(period_s, bool) or not isinstance(period_s, (int, float)) or not 0 < period_s <= 3600:
        raise Failure(BAD_INPUT, f"logger.period_s is {period_s!r:.80}", "prepare", "seconds above 0")
    return [str(part) for part in argv], float(period_s)


def _prove_logger(run: Run, manager: services.ServiceManager, period_s: float) -> dict[str, Any]:
    """Three rows that go on in time, one of them with a temperature. Failure `rig` when they do not come."""
    started = asked = time.monotonic()
    until = started + max(FIRST_ROW_S, 5 * period_s)
    first_row_s = None
    while True:
        rows = gates.thermal_rows(run.thermal_csv)
        now = time.monotonic()
        if rows and first_row_s is None:
            first_row_s = now - started
            until = now + max(5 * period_s, MIN_PROVE_S)
        advancing = all(late.monotonic_s > early.monotonic_s for early, late in zip(rows, rows[1:]))
        temperatures = sum(row.temperatures for row in rows)
        if len(rows) >= PROVE_ROWS and advancing and temperatures:
            saw = {"rows": len(rows), "first_row_s": first_row_s, "temperatures": temperatures, "period_s": period_s}
            return gates.evidence("logger", True, saw)
        if now >= until:
            if len(rows) < PROVE_ROWS:
                raise Failure(RIG, f"{len(rows)} rows in {now - started:.1f} s, {PROVE_ROWS} expected")
            raise Failure(RIG, "its clock does not go on" if not advancing else "all its temperatures are missing")
        if now - asked >= ALIVE_EVERY_S:
            asked = now
            if not manager.state(run.logger_unit).active:
                raise Failure(RIG, f"it ended after {now - started:.1f} s")
        time.sleep(min(max(period_s / 2, 0.02), 0.5))
