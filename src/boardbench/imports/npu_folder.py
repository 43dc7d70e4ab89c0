"""A result folder of the NPU rig as one whole: tables, bench reports and logs held against each other."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import median

from boardbench.imports import load_stamps
from boardbench.imports.model import Fact, Fault, Missing, Parsed, Reading, Run, Samples, joined
from boardbench.imports.npu_csv import RigTable, without_temperature
from boardbench.imports.npu_thermal import JUMP_S

SOC, NPU = "soc-thermal_celsius", "npu-thermal_celsius"
INSTRUMENT_CELSIUS = 2.0
"""Two instruments may differ by this much: two steps of the boards' sensor."""
EDGE_S = 3.0
"""Stamps and log rows are whole seconds about 1.1 s apart: so much may lack at an end of a load window."""


@dataclass(frozen=True)
class Bench:
    """One bench report: its run and its stamp."""

    name: str
    run: Run
    stamp_unix_s: float | None


@dataclass
class Folder:
    """What was read from the folder's files, before it is put together."""

    tables: list[RigTable] = field(default_factory=list)
    benches: list[Bench] = field(default_factory=list)
    logs: list[Samples] = field(default_factory=list)
    others: list[Parsed] = field(default_factory=list)


def nodes_of(folder: Folder) -> tuple[str, ...]:
    """Every node that a table or a bench report names."""
    named = [node for table in folder.tables for node in table.nodes]
    named += [node for bench in folder.benches for node in bench.run.boards]
    return tuple(sorted(set(named)))


def board_of(stem: str, nodes: Sequence[str]) -> str:
    """The board of a log by its file's name: a node's name, or the only node that begins with it; else the name."""
    fits = [node for node in nodes if node.startswith(stem)]
    return stem if stem in nodes or len(fits) != 1 else fits[0]


def put_together(folder: Folder) -> Parsed:
    """All runs with what the other files say of them, and the faults that show only between files."""
    logs = [replace(log, board=board_of(str(log.board), nodes_of(folder))) for log in folder.logs]
    parts = _stamps_once(folder.others)
    used: set[str] = set()
    for table in folder.tables:
        parts.append(_table(table, folder.benches, logs, used))
    parts.append(_alone([bench for bench in folder.benches if bench.name not in used], logs))
    repeated = _repeated_ids(folder.benches)
    return joined([*parts, Parsed(samples=tuple(logs), faults=repeated)])


def _stamps_once(parts: Sequence[Parsed]) -> list[Parsed]:
    """What every report of a folder has (a stamp at its end) is said once, of the first."""
    told = [fault for part in parts for fault in part.faults if fault.code == "end-stamped-start"]
    if len(told) < 2:
        return list(parts)
    kept = [replace(part, faults=tuple(fault for fault in part.faults if fault not in told)) for part in parts]
    first = replace(told[0], detail=f"{told[0].detail}; so in {len(told)} reports")
    return [*kept, Parsed(faults=(first,))]


def _alone(benches: Sequence[Bench], logs: Sequence[Samples]) -> Parsed:
    """Reports without a table: their windows are held against the logs, then the logs' temperatures are added."""
    stamps = sorted(bench.stamp_unix_s for bench in benches if bench.stamp_unix_s is not None)
    seconds = _duration(benches)
    runs = [bench.run for bench in benches]
    faults: tuple[Fault, ...] = ()
    if seconds is not None and stamps:
        found = load_stamps.meaning(logs, SOC, stamps, seconds)
        if found.word == load_stamps.START:
            what = f"the logs show the load behind the stamps, not before them: {found.why}"
            faults = (Fault("window-not-of-load", benches[0].name, what),)
            runs = [replace(run, reasons=(*run.reasons, ("window-not-of-load", what))) for run in runs]
    return Parsed(runs=tuple(_with_log(run, logs) for run in runs), faults=faults)


def _repeated_ids(benches: Sequence[Bench]) -> tuple[Fault, ...]:
    by_id: dict[str, list[str]] = {}
    for bench in benches:
        by_id.setdefault(bench.run.extra["run_id"], []).append(bench.name)
    return tuple(
        Fault("repeated-run-id", names[0], f"run_id {run_id!r} is that of {len(names)} reports: it tells none apart")
        for run_id, names in by_id.items()
        if len(names) > 1
    )


def _table(table: RigTable, benches: Sequence[Bench], logs: Sequence[Samples], used: set[str]) -> Parsed:
    stamps = [stamp for stamp in table.stamps_unix_s if stamp is not None]
    if not stamps:
        return replace(table.parsed, runs=without_temperature(table, measured=False).runs)
    faults, not_known = list(table.parsed.faults), list(table.parsed.not_known)
    faults += _elsewhere(table.name, stamps, logs)
    if any(after <= before for before, after in pairwise(stamps)):
        faults.append(Fault("clock-jump", table.name, "the runs' stamps do not go forward"))
    mine = {bench.stamp_unix_s: bench for bench in benches if bench.stamp_unix_s in stamps}
    seconds = _duration(list(mine.values()))
    ends = load_stamps.Meaning(load_stamps.UNDECIDED, "no bench report says how long a run was")
    if seconds is not None:
        ends = load_stamps.meaning(logs, SOC, stamps, seconds)
        if len(mine) < len(stamps):
            not_known.append(
                f"{table.name}: how long each run was: {seconds:g} s in {len(mine)} of {len(stamps)} reports that are"
                " there, taken for all"
            )
    if ends.word == load_stamps.END:
        faults.append(
            Fault("end-stamped-start", table.name, f"epoch is the end of each run, not its start: {ends.why}")
        )
    elif ends.word == load_stamps.UNDECIDED:
        not_known.append(f"{table.name}: whether epoch is the start or the end of a run: {ends.why}")
    covered = False
    runs = []
    for run, stamp in zip(table.runs, table.stamps_unix_s, strict=True):
        bench = mine.get(stamp) if stamp is not None else None
        placed = _placed(run, stamp, seconds, ends.word)
        if bench is not None:
            used.add(bench.name)
            placed = _merged(placed, bench)
        placed = _with_log(placed, logs)
        covered = covered or any(name.endswith("_soc_max_celsius") for name in placed.metrics)
        runs.append(_told_against_log(placed))
    done = without_temperature(replace(table, runs=tuple(runs)), measured=covered)
    if covered:
        faults += _instead(table)
    return replace(table.parsed, runs=done.runs, faults=tuple(faults), not_known=tuple(not_known))


def _instead(table: RigTable) -> list[Fault]:
    names = [column for column in table.failed_columns if column.endswith("_c")]
    why = "the logs of those minutes have the temperatures; the table's column is not used"
    return [Fault("instruments-disagree", table.name, f"{', '.join(names)}: {why}")] if names else []


def _elsewhere(name: str, stamps: Sequence[float], logs: Sequence[Samples]) -> list[Fault]:
    """Logs of another time than the table: one of the two clocks was wrong, or they do not belong together."""
    return [
        Fault("window-not-of-load", log.name, f"no row lies in the time of {name}: another time, or a wrong clock")
        for log in logs
        if log.time_s[-1] < min(stamps) - JUMP_S or log.time_s[0] > max(stamps) + JUMP_S
    ]


def _duration(benches: Sequence[Bench]) -> float | None:
    found = []
    for bench in benches:
        value = bench.run.extra.get("conditions.duration_s", "")
        try:
            found.append(float(value))
        except ValueError:
            continue
    good = [value for value in found if 0 < value < 1e6]
    return median(good) if good else None


def _placed(run: Run, stamp: float | None, seconds: float | None, word: str) -> Run:
    if stamp is None:
        return run
    if seconds is None or word == load_stamps.UNDECIDED:
        return replace(run, window_unix_s=Missing(f"stamp {stamp:.0f}: start or end of the run is not known"))
    window = (stamp - seconds, stamp) if word == load_stamps.END else (stamp, stamp + seconds)
    return replace(run, window_unix_s=window)


def _merged(run: Run, bench: Bench) -> Run:
    """The run of a table's row with what its own bench report says beside; both must tell the same rate."""
    metrics: dict[str, Reading] = {**bench.run.metrics, **run.metrics}
    reasons = [*run.reasons, *bench.run.reasons]
    told, measured = run.metrics.get("inferences_per_s"), bench.run.metrics.get("inferences_per_s")
    if isinstance(told, float) and isinstance(measured, float) and abs(told - measured) > 0.051:
        what = f"the table has {told:g} inferences/s, {bench.name} has {measured:.2f}"
        reasons.append(("instruments-disagree", what))
    return replace(
        run,
        metrics=metrics,
        boards=run.boards or bench.run.boards,
        extra={**bench.run.extra, **run.extra},
        window_unix_s=_window(run, bench),
        notes=(*run.notes, f"bench report {bench.name}"),
        reasons=tuple(dict.fromkeys(reasons)),
    )


def _window(run: Run, bench: Bench) -> tuple[float, float] | Missing:
    """The report's own window (it knows its length exactly), unless the logs placed the run elsewhere."""
    placed, told = run.window_unix_s, bench.run.window_unix_s
    if isinstance(told, Missing) or (isinstance(placed, tuple) and placed[0] == bench.stamp_unix_s):
        return placed
    return told


def _with_log(run: Run, logs: Sequence[Samples]) -> Run:
    """The run with the greatest temperatures inside its own window, and what the logs lack of it."""
    if isinstance(run.window_unix_s, Missing) or not logs:
        return run
    start, end = run.window_unix_s
    metrics, reasons = dict(run.metrics), list(run.reasons)
    boards = set(run.boards)
    for log in logs:
        rows = range(bisect_left(log.time_s, start), bisect_right(log.time_s, end))
        if not rows:
            continue
        boards.add(str(log.board))
        if log.time_s[rows[0]] > start + EDGE_S or log.time_s[rows[-1]] < end - EDGE_S:
            reasons.append(("logger-short", f"{log.name} does not cover the whole run"))
        if any(start < at < end for at in log.breaks):
            reasons.append(("logger-gap", f"{log.name} has a hole or a clock that was set while the run was on"))
        for column, short in ((SOC, "soc"), (NPU, "npu")):
            known = [log.values[column][index] for index in rows] if column in log.values else []
            known = [value for value in known if value == value]
            name = f"{log.board}_{short}_max_celsius"
            metrics[name] = max(known) if known else Missing(f"{log.name}: no reading of {column} in the run")
    return replace(run, metrics=metrics, boards=tuple(sorted(boards)), reasons=tuple(dict.fromkeys(reasons)))


def _told_against_log(run: Run) -> Run:
    """A column that is named max and is none: the log's greatest reading inside the run is another."""
    reasons = list(run.reasons)
    for short in ("soc", "npu"):
        told = run.metrics.get(f"told_{short}_max_celsius")
        seen = [
            value
            for name, value in run.metrics.items()
            if name.endswith(f"_{short}_max_celsius") and not name.startswith("told_") and isinstance(value, float)
        ]
        if isinstance(told, float) and seen and abs(told - max(seen)) > INSTRUMENT_CELSIUS:
            what = f"the table's max of {short} is {told:.1f} degC, the logs have {max(seen):.1f} in the run"
            reasons.append(("instruments-disagree", what))
    return replace(run, reasons=tuple(dict.fromkeys(reasons)))


def meta_facts(pairs: Mapping[str, str], name: str) -> tuple[Fact, ...]:
    """The facts of a `meta.txt` (`key=value` lines)."""
    return tuple(Fact(key, value if value else Missing("blank in the source"), name) for key, value in pairs.items())
