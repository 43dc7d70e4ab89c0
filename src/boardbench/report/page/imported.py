"""The page of a campaign that was imported: figures, what is wrong with the source, what it cannot say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from boardbench.analysis.estimates import Unknown
from boardbench.analysis.rig_definition import rig_figures
from boardbench.analysis.sketch import Sketch
from boardbench.analysis.steady import steady_state
from boardbench.errors import InputError
from boardbench.imports import stored as imports
from boardbench.imports.stored import StoredImport, StoredRun, StoredSamples
from boardbench.report import import_figures as figures
from boardbench.report.page.heat_chart import IMPORTED, heat_chart
from boardbench.report.page.model import Cell, Chart, Page, Part, Section, Table
from boardbench.report.page.other_charts import decode_chart, latency_chart, residency_chart
from boardbench.report.page.rate_chart import rate_chart
from boardbench.report.page.run_view import RunView, clock_of, tracks_of
from boardbench.results import columns

BUCKETS = 900
MOST_RUNS = 500
MOST_FAULTS = 200


def imported_page(folder: Path) -> Page:
    """The page of an imported campaign's folder. Raises InputError when it cannot be read."""
    stored = imports.load(folder)
    said = stored.provenance
    valid = sum(1 for run in stored.measured if run.valid)
    told = [*figures.over_time(stored), *figures.operating_points(stored)]
    return Page(
        title=str(stored.campaign["matrix"]),
        name=folder.name,
        question=str(stored.campaign["question"]),
        banner="Imported: not run by this bench. No gate was asked, no plan was locked; "
        "the figures are as good as their source.",
        answer=f"{valid} of {len(stored.measured)} runs count; {len(stored.faults)} faults were found in the source. "
        "No rule was set beforehand: figures, no verdict.",
        prediction=None,
        verdicts=(),
        domain="what the source measured, and only if its conditions were what it says they were",
        marks=(("format", str(said["format"])), ("source", str(said["source"])), ("how chosen", str(said["chosen"]))),
        sections=tuple(_sections(stored, [Part({}, {"name": [one.name], "text": [one.text]}) for one in told])),
    )


def _sections(stored: StoredImport, told: Sequence[Part]) -> list[Section]:
    rows: list[tuple[Cell, ...]] = [(part.columns["name"][0], part.columns["text"][0]) for part in told]
    arms = figures.by_arm(stored)
    tables = [Table(("figure", "value"), tuple(rows))] if rows else []
    if arms:
        tables.append(Table(
            ("arm", "metric", "value", "valid", "runs", "remark"),
            tuple((one.arm, one.metric, one.text, one.valid, one.runs, one.remark or None) for one in arms),
            frozenset({3, 4}), ("Mean ± sample deviation over runs, not pooled over requests.",), caption="By arm",
        ))  # fmt: skip
    boards = figures.boards(stored)
    if boards:
        tables.append(_boards(boards))
    if stored.facts:
        tables.append(_facts(stored.facts, folded=bool(tables)))
    found = [Section("figures", "Figures", tables=tuple(tables))]
    for key, title, drawn in (
        ("throughput-over-time", "Throughput over time", [_rates(stored)]),
        ("heat", "Temperature, clocks and power", _heat(stored)),
        ("residency-bars", "Clock residency", [_residency(stored)]),
        ("latencies", "Latency", [_latency(stored)]),
        ("tokens", "Cost of a token", [_decode(stored)]),
    ):
        charts = tuple(chart for chart in drawn if chart is not None)
        if charts:
            found.append(Section(key, title, charts=charts))
    return [*found, _validity(stored), _unknown(stored), _again(stored)]


def _boards(boards: Sequence[figures.Board]) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (one.name, one.readings, one.soc_max_celsius, one.cpu_median_mhz, one.cpu_min_mhz, one.npu_median_mhz,
         one.throttled_at_s, one.mean_input_watts, one.lowest_volts)
        for one in boards
    ]  # fmt: skip
    return Table(
        ("board", "readings", "SoC max °C", "CPU median MHz", "CPU min MHz", "NPU or GPU median MHz", "below top at s",
         "mean input W", "least input V"),
        tuple(rows), frozenset(range(1, 9)), caption="From the logs, inside the load",
    )  # fmt: skip


def _facts(facts: Sequence[Mapping[str, Any]], *, folded: bool) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for fact in facts[:MOST_RUNS]:
        value = fact["value"]
        text = f"not known: {value['missing']}" if isinstance(value, Mapping) and "missing" in value else str(value)
        rows.append((str(fact["name"]), text, str(fact["source"])))
    return Table(("fact", "value", "source"), tuple(rows), caption=f"{len(facts)} facts", folded=folded)


def _window(run: StoredRun) -> tuple[float, float] | None:
    return run.window_unix_s if isinstance(run.window_unix_s, tuple) else None


def _rates(stored: StoredImport) -> Chart | None:
    """Rates of a load in pieces, each at its place in time. Sources of single runs have no course over time."""
    if not figures.is_series(stored):
        return None
    used, _ = figures.counted(stored.measured)
    name = figures.metric_of(used)
    placed = [
        (window, rate) for run in used if (window := _window(run)) and name and (rate := run.number(name)) is not None
    ]
    placed.sort()
    if len(placed) < 2 or name is None:
        return None
    rates = tuple((start, end, rate) for (start, end), rate in placed)
    unit = name.removesuffix("_per_s").replace("_", " ")
    first = rates[0][0]
    try:
        settled = steady_state([end - first for _, end, _ in rates], [rate for _, _, rate in rates], f"{unit}/s")
    except ValueError:
        settled = None  # the import has told that its stamps are of no use
    boards = sorted({board for run in used for board in run.boards})
    arm = figures.label(list(used[0].arm.items())) or "all runs"
    view = _view("+".join(boards) or "all boards", arm, used[0].phase, (first, rates[-1][1]), unit=unit, rates=rates,
                 settled=settled)  # fmt: skip
    return rate_chart([view], [arm])


def _view(
    board: str, arm: str, phase: str | None, window: tuple[float, float] | None, *, unit: str = "", rates: Any = (),
    settled: Any = None, tracks: Any = (), clock: Any = None,
) -> RunView:  # fmt: skip
    held, residency, times = clock or (Unknown("no clock was logged"), Unknown("no clock was logged"), ())
    run: Mapping[str, Any] = {"valid": True, "phase": phase, "evidence": [], "boot_ids": {"before": IMPORTED}}
    return RunView(
        cell=arm, board=board, arm=arm, repetition=1, run=run, scale=1.0, unit=unit, window=window, rates=rates,
        tracks=tracks, throughput=None, heat=None, rig=rig_figures([rate for _, _, rate in rates]), steady=settled,
        held=held, held_times=times, residency=residency, requests=None, decode=(), notes=(),
    )  # fmt: skip


def _logs(stored: StoredImport) -> list[StoredSamples]:
    """Logs with a clock in seconds, readable."""
    return [log for log in stored.logs if log.what == "log" and log.clock != "index" and log.rows > 1]


def _log_view(stored: StoredImport, log: StoredSamples, at: int) -> RunView:
    times = stored.column(log, log.columns[0])[0]
    loaded = figures.load_window(stored) if log.clock == "wall" else None
    window = loaded or (times[0], times[-1])

    def column(name: str) -> list[float | None]:
        return stored.column(log, name)[1]

    names = log.columns
    phases = {run.phase for run in stored.measured}
    phase = phases.pop() if len(phases) == 1 else None
    return _view(
        log.board or f"log {at + 1}", "load" if loaded else "whole log", phase, window,
        tracks=tracks_of(times, names, column, BUCKETS), clock=clock_of(times, names, column, window, 1.0),
    )  # fmt: skip


def _heat(stored: StoredImport) -> list[Chart | None]:
    return [heat_chart([_log_view(stored, log, at)], f"heat-{at + 1}") for at, log in enumerate(_logs(stored)[:24])]


def _residency(stored: StoredImport) -> Chart | None:
    shares = {}
    for at, log in enumerate(_logs(stored)):
        view = _log_view(stored, log, at)
        if not isinstance(view.residency, Unknown):
            shares[(view.board, view.arm)] = {clock / 1000: share for clock, share in view.residency.by_time.items()}
    return residency_chart(shares)


def _latency(stored: StoredImport) -> Chart | None:
    by_board: dict[str, dict[str, Sketch]] = {}
    whole: dict[str, Sketch] = {}
    for samples in stored.logs:
        if samples.what != "requests":
            continue
        try:
            sketch = columns.sketch_of([samples.path])
        except InputError:
            continue  # `validate` names the file; a chart is not the place for it
        board = samples.board or "all boards"
        by_board.setdefault(board, {}).setdefault("requests", Sketch()).merge(sketch)
        whole.setdefault("requests", Sketch()).merge(sketch)
    return latency_chart(whole, by_board)


def _decode(stored: StoredImport) -> Chart | None:
    files = [samples.path for samples in stored.logs if samples.what == "decode"]
    return decode_chart({"all requests": columns.points_of(files)}) if files else None


def _validity(stored: StoredImport) -> Section:
    runs: list[tuple[Cell, ...]] = []
    marks: dict[int, str] = {}
    for run in stored.measured[:MOST_RUNS]:
        marks[len(runs)] = "good" if run.valid else "bad"
        why = "; ".join(f"{code}: {detail}" for code, detail in run.reasons)
        runs.append(
            (run.run, figures.label(list(run.arm.items())), "yes" if run.valid else "no", why or None, run.source)
        )
    faults = tuple((str(one["code"]), str(one["where"]), str(one["detail"])) for one in stored.faults[:MOST_FAULTS])
    tables = []
    if faults:
        tables.append(Table(("code", "where", "what"), faults, caption="Wrong with the source; nothing was repaired",
                            marks=dict.fromkeys(range(len(faults)), "bad")))  # fmt: skip
    if runs:
        tables.append(Table(("run", "arm", "counts", "why not", "source"), tuple(runs), marks=marks,
                            caption=f"All {len(stored.measured)} runs", folded=len(runs) > 20))  # fmt: skip
    lines = () if faults else ("Nothing was found wrong with the source.",)
    return Section("validity", "Validity and evidence", lines, tuple(tables))


def _unknown(stored: StoredImport) -> Section:
    lines = tuple(f"Not known: {text}" for text in stored.provenance["not_known"])
    return Section("domain", "Domain of the claim", ("No condition was proved by this bench.", *lines))


def _again(stored: StoredImport) -> Section:
    said = stored.provenance
    rows = tuple((str(one["name"]), int(one["size"]), str(one["sha256"])) for one in said["files"][:MOST_RUNS])
    table = Table(("file", "bytes", "sha256"), rows, frozenset({1}), caption="Source files", folded=len(rows) > 12)
    return Section(
        "again",
        "How to reproduce",
        (f"Imported from {said['source']} as {said['format']} ({said['chosen']}).",),
        (table,),
        commands=(
            f"./inv import --format {said['format']} {said['source']}",
            f"./inv report {stored.folder.name} --html",
        ),
    )
