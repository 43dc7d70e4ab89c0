"""Traps in what a run leaves behind: the files are made, everything that reads and judges them is the product.

The runs come from the real run loop on fake boards, so that the files pass collect, judge, verdict and validate.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from boardbench.results import raw, store
from boardbench.results.judge import Rules
from boardbench.results.problems import Problem

from .harness import Off, Trap
from .scene import Files, Scene

CSV, BURN = "thermal.csv", "workload/burn.jsonl"
WALL, MONOTONIC, CELSIUS, CLOCK, MISSING = 0, 1, 4, 5, 6
Row = list[str]


def gate_off(*gates: str) -> Off:
    """The run is judged as if the plan did not name these gates."""
    real = Rules.of_plan

    def without(plan: Any, *run: Any) -> Rules:
        return real({**plan, "gates": [gate for gate in plan["gates"] if gate not in gates]}, *run)

    return Off("boardbench.results.judge:Rules.of_plan", staticmethod(without))


def gives(value: Any) -> Callable[..., Any]:
    """A check that says this, whatever it is shown."""
    return lambda *_, **__: value


none = gives(())


# ---- the thermal log ----


def window(files: Files) -> tuple[float, float]:
    """Start and end of the load, from the workload's own file."""
    events = [json.loads(line) for line in files[BURN].splitlines()]
    intervals = [event for event in events if event["event"] == "interval"]
    return intervals[0]["start_monotonic_s"], intervals[-1]["end_monotonic_s"]


def rewrite(files: Files, change: Callable[[int, Row], Row | None]) -> None:
    """Rewrites the log row by row; None drops the row."""
    header, *lines = files[CSV].decode().splitlines()
    rows = [row for index, line in enumerate(lines) if (row := change(index, line.split(",")))]
    files[CSV] = ("\n".join([header, *(",".join(row) for row in rows)]) + "\n").encode()


def read_after_the_run(files: Files) -> None:
    """Temperatures only from after the load's end, when the board cools: 79.5 where it was 86.8."""
    _, end = window(files)

    def change(_: int, row: Row) -> Row:
        if float(row[MONOTONIC]) > end:
            row[CELSIUS] = "79.5"
        else:
            row[CELSIUS] = ""
            row[MISSING] = ";".join([*filter(None, [row[MISSING]]), "soc-thermal_celsius=not sampled"])
        return row

    rewrite(files, change)


def zero_everywhere(files: Files) -> None:
    """The read failed each time, and somebody's script wrote 0.0."""
    rewrite(files, lambda _, row: [*row[:CELSIUS], "0.0", *row[CLOCK:]])


def zero_once(files: Files) -> None:
    """One read of many failed, and is 0.0 between two readings of 86.8."""
    rewrite(files, lambda index, row: [*row[:CELSIUS], "0.0" if index == 60 else row[CELSIUS], *row[CLOCK:]])


def blank(files: Files) -> None:
    """One read failed, and its field is blank without a word why."""
    rewrite(files, lambda index, row: [*row[:CELSIUS], "" if index == 60 else row[CELSIUS], *row[CLOCK:]])


def set_back_by_ntp(files: Files) -> None:
    """In the middle of the load the wall clock jumps back by half a minute."""
    middle = sum(window(files)) / 2
    rewrite(files, lambda _, row: [f"{float(row[WALL]) - 30.0 * (float(row[MONOTONIC]) > middle):.6f}", *row[1:]])


def logger_died(files: Files) -> None:
    """The log ends in the middle of the load."""
    middle = sum(window(files)) / 2
    stretch(files)
    rewrite(files, lambda _, row: row if float(row[MONOTONIC]) < middle else None)


def logger_paused(files: Files) -> None:
    """The log has a hole in the middle of the load, and goes on after it."""
    start, end = window(files)
    stretch(files)
    rewrite(files, lambda _, row: None if start + 0.1 < float(row[MONOTONIC]) < end + 10.0 - 0.1 else row)


def stretch(files: Files) -> None:
    """The load of some milliseconds becomes one of ten seconds more: holes are measured against the log's period."""
    _, end = window(files)
    lines = [json.loads(line) for line in files[BURN].splitlines()]
    intervals = [line for line in lines if line["event"] == "interval"]
    intervals[-1]["end_monotonic_s"] += 10.0
    more = 10.0 * intervals[-1]["operations_per_s"]
    for line in (intervals[-1], lines[-1]):
        if "operations" in line:
            line["operations"] += more
    files[BURN] = "".join(json.dumps(line) + "\n" for line in lines).encode()
    header, *rows = files[CSV].decode().splitlines()
    late = [row.split(",") for row in rows if float(row.split(",")[MONOTONIC]) > end]
    later = []
    for step in range(1, 104):
        base = late[-1]
        clocks = [f"{float(value) + 0.1 * step:.6f}" for value in base[:3]]
        later.append(",".join([*clocks, *base[3:]]))
    files[CSV] = ("\n".join([header, *rows, *later]) + "\n").encode()


def fan_switched(files: Files) -> None:
    """Somebody switches the fan on for the second half of a fanless run; the log of this board shows the fan."""
    middle = sum(window(files)) / 2
    header, *lines = files[CSV].decode().splitlines()
    rows = []
    for line in lines:
        row = line.split(",")
        rows.append(",".join([*row[:MISSING], "255" if float(row[MONOTONIC]) > middle else "0", *row[MISSING:]]))
    files[CSV] = ("\n".join([header.replace(",missing", ",fan_pwm,missing"), *rows]) + "\n").encode()
    meta = json.loads(files["thermal.meta.json"])
    meta["columns"]["fan_pwm"] = "/sys/class/hwmon/hwmon0/pwm1"
    files["thermal.meta.json"] = json.dumps(meta).encode()


# ---- damaged files ----


def truncated_log(files: Files) -> None:
    """The copy stopped in the middle of a row after the load's end."""
    files[CSV] = files[CSV][:-9]


def truncated_output(files: Files) -> None:
    """The disk was full in the middle of the workload's last line."""
    files[BURN] = files[BURN][:-20]


def nul_filled(files: Files) -> None:
    """Power failed: the file has its length, and its last block is zeros."""
    files[CSV] = files[CSV][:-64] + b"\0" * 64


def nan_in_log(files: Files) -> None:
    """A temperature that is no number."""
    rewrite(files, lambda index, row: [*row[:CELSIUS], "nan" if index == 60 else row[CELSIUS], *row[CLOCK:]])


def nan_in_output(files: Files) -> None:
    """A rate that is no number: Python's JSON reads and writes it without a word."""
    lines = [json.loads(line) for line in files[BURN].splitlines()]
    lines[1]["operations_per_s"] = float("nan")
    files[BURN] = "".join(json.dumps(line) + "\n" for line in lines).encode()


def careless_log(path: Path) -> tuple[raw.ThermalLog, list[Problem]]:
    """The log as a reader without scruples takes it: what it cannot read it leaves out, and says nothing."""
    text = path.read_text(errors="replace").replace("\0", "")
    header, *lines = [line.split(",") for line in text.splitlines()]
    full = [row[:-1] for row in lines if len(row) == len(header)]
    rows = [[float(cell) if raw._NUMBER.fullmatch(cell) else None for cell in row] for row in full]
    whole = [tuple(row) for row in rows if None not in row[: len(raw.CLOCKS)]]
    return raw.ThermalLog(tuple(header[:-1]), tuple(whole), ("",) * len(whole), tuple(range(2, len(whole) + 2))), []


CARELESS = (
    Off("boardbench.results.judge:read_thermal", careless_log),
    Off("boardbench.results.raw:read_thermal", careless_log),
)


def careless_number(event: dict[str, Any], key: str, _where: str) -> float:
    """Whatever stands there."""
    return float(event[key])


def careless_lines(path: Path) -> list[tuple[int, object]]:
    """JSON lines as a reader without scruples takes them: half a line is none, NaN is a number."""
    found: list[tuple[int, object]] = []
    for number, line in enumerate(path.read_text().split("\n"), 1):
        try:
            found.append((number, json.loads(line)))
        except ValueError:
            continue
    return found


# ---- one path for two runs ----


def same_day(scene: Scene) -> list[str]:
    """Two campaigns of one second, and a random part that is not random: the second must not get the first's place."""
    folder = scene.fresh()
    said: list[str] = []
    for lines in (15, 4):
        try:
            made = store.new_campaign_folder(folder, "small", now_unix_s=1_000_000.0)
            store.write_json(made / "run.json", {"lines": lines})
        except Exception as error:
            said.append(f"{type(error).__name__}: {error}")
    if not said and len(list(folder.rglob("run.json"))) == 2:
        said.append("two folders")
    return said


def one_path_a_day(results_dir: Path, matrix_name: str, **_: object) -> Path:
    """What the harness of that day did."""
    folder = results_dir / matrix_name / "1970-01-12"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def not_random(_: int) -> str:
    """A random part that comes again."""
    return "00000000"


def same_draw(scene: Scene) -> list[str]:
    """`same_day` with a random part that comes again: no place must be given twice."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("boardbench.results.store.secrets.token_hex", not_random)
        return same_day(scene)


def overwrite(path: Path, value: object, **_: object) -> None:
    """A writer that takes any path."""
    path.write_bytes(store.to_bytes(value))


def of_files(change: Callable[[Files], None]) -> Callable[[Scene], list[str]]:
    """A trap whose set-up is a change of a fanless run's files."""
    return lambda scene: scene.campaign_of(change)


_ROW = raw._row


def blank_is_fine(header: tuple[str, ...], cells: list[str]) -> Any:
    """A blank field needs no word."""
    values, faults = _ROW(header, cells)
    if not faults:
        return values, faults
    return tuple(float(cell) if cell else None for cell in cells[:-1]), []


FAILED, DAMAGED, LOGGER = "failed-read-stored-as-a-value", "damaged-result-file", "logger-died-or-too-short"
TRAPS = (
    Trap(
        "temperature-read-after-the-run", "", of_files(read_after_the_run), "no-temperature: no reading of soc-thermal",
        (Off("boardbench.results.judge:_temperature", none),),
    ),
    Trap(
        FAILED, "zero-everywhere", of_files(zero_everywhere), r"malformed-file: .*0\.0 in all rows",
        (Off("boardbench.results.raw:_table_faults", none),),
        # A board that reads 0 degC without its fan is colder than with it: the comparison of the phases sees it too.
        also=(".*a fanless run got no hotter",),
    ),
    Trap(
        FAILED, "zero-once", of_files(zero_once), r"malformed-file: .*0\.0 between",
        (Off("boardbench.results.raw:_table_faults", none),),
    ),
    Trap(
        FAILED, "blank", of_files(blank), r"malformed-file: .*empty fields are not the ones that 'missing' names",
        (Off("boardbench.results.raw:_row", blank_is_fine),),
    ),
    Trap(
        "clock-jump-in-mid-run", "", of_files(set_back_by_ntp), "clock-jump: the wall clock was set: -30",
        (Off("boardbench.results.judge:_jumps", none),),
    ),
    Trap(LOGGER, "died", of_files(logger_died), "logger-short: the log ends", (gate_off("logger"),)),
    Trap(LOGGER, "hole", of_files(logger_paused), "logger-gap: ", (gate_off("logger"),)),
    Trap(
        "fan-switched-in-a-fanless-run", "in-the-log", of_files(fan_switched), "cooling-not-as-planned: fan_pwm is 255",
        (Off("boardbench.results.fanproof:reasons", none),),
    ),
    Trap(DAMAGED, "truncated-log", of_files(truncated_log), "malformed-file: .*last row is cut off", CARELESS),
    Trap(
        DAMAGED, "truncated-output", of_files(truncated_output), "malformed-file: .* file has no end: it was cut off",
        (
            Off("boardbench.results.collect:_cut_off", none),
            Off("boardbench.results.store:read_lines", careless_lines),
        ),
    ),
    Trap(DAMAGED, "nul-filled", of_files(nul_filled), "malformed-file: .*bytes that a thermal log does not", CARELESS),
    Trap(DAMAGED, "nan-in-log", of_files(nan_in_log), "malformed-file: .*'nan', not a finite number", CARELESS),
    Trap(
        DAMAGED, "nan-in-output", of_files(nan_in_output), "malformed-file: .*operations_per_s is not a number",
        (
            Off("boardbench.workloads.burn:number", careless_number),
            Off("boardbench.results.store:read_lines", careless_lines),
        ),
    ),
    Trap(
        "same-day-result-path", "file", same_day, "two folders|FileExistsError",
        (
            Off("boardbench.results.store:new_campaign_folder", one_path_a_day),
            Off("boardbench.results.store:write_json", overwrite),
        ),
    ),
    Trap(
        "same-day-result-path", "folder", same_draw,
        "InputError: .*there is a campaign 19700112T134640Z-00000000 already",
        (
            Off("boardbench.results.store:new_campaign_folder", one_path_a_day),
            Off("boardbench.results.store:write_json", overwrite),
        ),
    ),
)  # fmt: skip
