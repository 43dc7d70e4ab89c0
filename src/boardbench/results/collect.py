"""From a run that has started to an attempt on disk: wait for its end, fetch, verify, judge, record, forget.

The run loop does it right after the load; `collect` does it later for runs that a lost link or a killed controller
left on the boards. Which those are stands in each campaign's journal.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from boardbench.errors import BenchError, RigError
from boardbench.inventory import Board
from boardbench.results import fanproof, manifest, quantities, record, store, verdict
from boardbench.results.fetch import DoorLike, announced, fetch
from boardbench.results.judge import Facts, Rules, judge
from boardbench.results.problems import Reason
from boardbench.results.record import Attempt, RawRead

__all__ = ["Collected", "DoorLike", "Late", "collect", "evidence_of", "finish_attempt", "unfetched"]

CALL_S = 60.0
FETCH_S = 300.0
ReadRaw = Callable[[str, Path], RawRead]
"""(name of the workload, its raw folder) -> what it says. Given by the caller: results know no workload."""


def evidence_of(value: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    """The evidence of a verb's result: a list of entries, or a mapping gate -> entry."""
    found = value.get("evidence", [])
    if isinstance(found, Mapping):
        found = [{"gate": gate, **entry} for gate, entry in found.items() if isinstance(entry, Mapping)]
    if not isinstance(found, list) or not all(isinstance(entry, Mapping) and "gate" in entry for entry in found):
        raise RigError("the board's evidence is not a list of gates")
    return tuple(
        {
            "gate": str(entry["gate"]),
            "ok": entry.get("ok") is True,
            "saw": entry.get("saw") if isinstance(entry.get("saw"), Mapping) else {"value": entry.get("saw")},
            "why": str(entry.get("why") or ""),
        }
        for entry in found
    )


def finish_attempt(
    door: DoorLike,
    attempt: Attempt,
    campaign: Path,
    rules: Rules,
    read_raw: ReadRaw,
    *,
    watch_s: float,
    look: Callable[[], tuple[Mapping[str, Any], ...]] = tuple,
    lease: Mapping[str, object] | None = None,
) -> dict[str, Any]:
    """Bring a started run home and return its run.json. May be called again after a lost link.

    `watch_s`: how long the load may still take, in wall seconds. `look`: evidence that is taken right after the load's
    end, while all is still set as it was for the run. `lease`: a heartbeat that goes along.

    Raises the door's errors and RigError; then nothing but a `.partial` folder is left behind, and the run stays on
    the board.
    """
    final = attempt.folder(campaign)
    done = verdict.whole_run(final)
    if done is not None:
        # An earlier try came as far as the rename; only the board was not told.
        if not _has(done, "hash-mismatch"):
            door.call("forget", {"run": attempt.run}, deadline_s=CALL_S)
        return done
    held = {} if lease is None else {"lease": lease}
    watched = door.call("watch", {"run": attempt.run, **held}, deadline_s=watch_s)
    controller_ended_unix_s = round(time.time(), 3)
    attempt = replace(attempt, evidence=(*attempt.evidence, *look()))
    finished = door.call("finish", {"run": attempt.run}, deadline_s=CALL_S)
    files = announced(finished.get("files"), attempt.board)
    partial = final.with_name(f"{final.name}.partial")
    wrong = fetch(door, attempt.run, files, partial, board=attempt.board, deadline_s=FETCH_S)
    if wrong:
        wrong = fetch(door, attempt.run, files, partial, board=attempt.board, deadline_s=FETCH_S)
    raw = read_raw(str(attempt.workload["name"]), partial / "workload")
    facts = _facts(attempt, watched, finished, raw)
    declared = quantities.evidence_in(partial / "workload", rules.workload, joined=not rules.chained)
    facts = replace(facts, evidence=facts.evidence + declared + fanproof.heating_of(partial, facts, rules.fan))
    reasons = list(judge(partial, facts, rules))
    reasons += [Reason("hash-mismatch", name) for name in wrong]
    if raw.fault is not None:
        reasons.append(Reason("malformed-file", raw.fault))
    reasons += _cut_off(raw, facts)
    run = record.make(attempt, facts, raw, record.list_files(partial), sorted(set(reasons)), controller_ended_unix_s)
    store.write_json(partial / record.NAME, run)
    _publish(partial, final)
    if not wrong:  # what did not come whole stays on the board
        door.call("forget", {"run": attempt.run}, deadline_s=CALL_S)
    return run


def _cut_off(raw: RawRead, facts: Facts) -> list[Reason]:
    """A full disk can end a file in mid-line and its program with code 0: only what is not there tells."""
    if raw.fault is not None or raw.ended is not None or facts.exit_code != 0:
        return []
    return [Reason("malformed-file", "the workload ended with code 0, but its raw file has no end: it was cut off")]


def _publish(partial: Path, final: Path) -> None:
    """Give a whole attempt its name. After a power loss it is there with all that is in it, or it is not there."""
    for folder in [path for path in partial.rglob("*") if path.is_dir()]:
        store.sync_folder(folder)
    partial.rename(final)
    # The cell's folder may be new, and the one of the cells too.
    for folder in (final.parent, final.parent.parent, final.parent.parent.parent):
        store.sync_folder(folder)


def _has(run: Mapping[str, Any], code: str) -> bool:
    return any(reason["code"] == code for reason in run["invalid_reasons"])


def _facts(attempt: Attempt, watched: Mapping[str, Any], finished: Mapping[str, Any], raw: RawRead) -> Facts:
    ended = watched.get("exit")
    ended = ended if isinstance(ended, Mapping) else {}
    code, signal = ended.get("code"), ended.get("signal")
    boot_after = watched.get("boot_id")
    return Facts(
        evidence=(*attempt.evidence, *evidence_of(finished), *raw.evidence),
        boot_before=attempt.boot_id,
        boot_after=boot_after if isinstance(boot_after, str) and boot_after else None,
        exit_code=code if isinstance(code, int) else None,
        exit_signal=signal if isinstance(signal, int) else None,
        window_monotonic_s=raw.window_monotonic_s,
    )


@dataclass(frozen=True)
class Late:
    """A run that was started and is not in its campaign's folder."""

    campaign: Path
    attempt: Attempt


@dataclass(frozen=True)
class Collected:
    """What a late collect brought home, and what it could not (`LOST`: board and why)."""

    fetched: tuple[Late, ...]
    failed: tuple[tuple[Late, BenchError], ...]


def unfetched(results_dir: Path) -> list[Late]:
    """Every started run below `results_dir` that no attempt holds, oldest campaign first. Raises InputError."""
    found: list[Late] = []
    for journal in sorted(results_dir.glob("*/*/journal.jsonl")):
        closed: set[str] = set()
        started: dict[str, Attempt] = {}
        for event, fields in store.journal_events(journal.parent):
            if event == "started":
                attempt = Attempt.from_dict(cast("Mapping[str, Any]", fields["attempt"]))
                started[attempt.run] = attempt
            elif event in ("collected", "abandoned"):
                closed.add(str(fields["run"]))
        found += [
            Late(journal.parent, attempt)
            for run, attempt in started.items()
            if run not in closed and verdict.whole_run(attempt.folder(journal.parent)) is None
        ]
    return found


def collect(
    results_dir: Path,
    boards: Sequence[Board],
    *,
    open_door: Callable[[Board], DoorLike],
    read_raw: ReadRaw,
    campaign: Path | None = None,
) -> Collected:
    """Fetch what is still on `boards` of `campaign` (default: of all below `results_dir`) and close those campaigns.

    The campaign's verdict and manifest are made again; nothing else in it changes. A board in use by another campaign
    is left alone, and said. Raises InputError for folders that cannot be read.
    """
    by_name = {board.name: board for board in boards}
    fetched: list[Late] = []
    failed: list[tuple[Late, BenchError]] = []
    for late in unfetched(results_dir):
        if late.attempt.board not in by_name or (campaign is not None and late.campaign != campaign):
            continue
        try:
            with store.locked(late.campaign), open_door(by_name[late.attempt.board]) as door:
                _refuse_busy(door, late)
                plan = store.read_object(late.campaign / "plan.json")
                rules = Rules.of_plan(plan, late.attempt.board, late.attempt.phase, late.attempt.raw_files)
                watch_s = rules.duration_s + CALL_S
                finish_attempt(door, late.attempt, late.campaign, rules, read_raw, watch_s=watch_s)
        except BenchError as error:
            failed.append((late, error))
        else:
            fetched.append(late)
    for folder in sorted({late.campaign for late in fetched}):
        close(folder)
    return Collected(tuple(fetched), tuple(failed))


def _refuse_busy(door: DoorLike, late: Late) -> None:
    answer = door.call("lease", {"action": "show"}, deadline_s=CALL_S)
    lease = answer.get("lease")
    if isinstance(lease, Mapping) and lease.get("campaign") != late.attempt.campaign:
        raise RigError(
            f"the board is in use by campaign {lease.get('campaign')}",
            where=late.attempt.board,
            advice="collect when it is free",
        )


def close(campaign: Path, ending: verdict.Ending | None = None) -> dict[str, Any]:
    """Write verdict and manifest of a campaign as it lies on disk, and return the verdict."""
    plan = store.read_object(campaign / "plan.json")
    if ending is None:
        path = campaign / verdict.NAME
        old = store.read_object(path) if path.exists() else None
        ending = verdict.ending_of(old) if old is not None else verdict.Ending({}, True, {})
    made = verdict.make(campaign, plan, ending)
    (campaign / "progress.json").unlink(missing_ok=True)  # where it stands is of interest only while it runs
    store.write_json(campaign / verdict.NAME, made, replace=True)
    manifest.write(campaign)
    return made
