"""Hold the thermal model against a recorded run of the rig: same load in, curves compared.

Reads `LOGDIR/raw/throughput.csv` (30 windows or so; `epoch` is the end of each) and
`LOGDIR/raw/thermal/{k,q,j}.log`. A zero or a blank in them is a reading that failed, never a value.
"""

from __future__ import annotations

import csv
import math
import statistics
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import InputError
from .thermal import TICK_S, BoardModel, Controls, Load, constants, make

BOARDS = {"k": "king", "q": "queen", "j": "jack"}
LOG_HEADER = ["epoch", "soc_c", "npu_c", "ddr_c", "bigcore_c", "cpu_mhz", "npu_mhz", "volt_v"]
TOP_MHZ = 2208
PLATEAU_FROM_S = 300.0
LATEST_START_S = 10.0
"""A log that begins later than this after the first load does not show where the board came from."""
LONGEST_GAP_S = 3600.0


@dataclass(frozen=True)
class Sample:
    """One row of a thermal log; `None` where the logger failed to read."""

    epoch_s: float
    soc_celsius: float | None
    big_core_mhz: float | None


@dataclass(frozen=True)
class Window:
    """A time under load, in the log's own seconds, and what one board did in it."""

    start_s: float
    end_s: float
    inferences_per_s: float


@dataclass(frozen=True)
class _Track:
    """What the model did at the times of the log's samples."""

    celsius: list[float]
    big_core_mhz: list[float]


def compare(logdir: Path, cooling: str) -> dict[str, object]:
    """Drive the model by the log's own load and compare, board by board.

    `cooling` is `fanless` or `active`. The result's `boards` holds per board: `rms_celsius`, `first_throttle_s`,
    `max_celsius`, `median_big_core_mhz`, `min_big_core_mhz`, `plateau_celsius` and `regulation_celsius`, each of
    the last six as `{"model", "log"}`; what is absent is null, and `reasons` says why. Seconds count from the
    first load. Raises InputError (file:line) for files that are missing or not in the rig's format.
    """
    if cooling not in ("active", "fanless"):
        raise InputError(f"cooling {cooling!r} is not known", advice="use 'active' or 'fanless'")
    windows = read_windows(logdir / "raw" / "throughput.csv")
    boards: dict[str, object] = {}
    for letter, name in BOARDS.items():
        samples = read_log(logdir / "raw" / "thermal" / f"{letter}.log")
        boards[name] = _compare_board(name, samples, windows, 1.0 if cooling == "active" else 0.0)
    return {"cooling": cooling, "logdir": str(logdir), "boards": boards}


def read_windows(path: Path) -> list[Window]:
    """The times under load, and the rate of one board in each. Raises InputError."""
    rig = constants()["kinds"]["nanopi-r76s"]["rig"]
    lines = _lines(path)
    reader = csv.DictReader(lines)
    for column in ("epoch", "throughput"):
        if column not in (reader.fieldnames or []):
            raise InputError(f"there is no column {column!r}", where=f"{path}:1", advice="give a sustained run's CSV")
    windows: list[Window] = []
    previous_s, rate = -math.inf, None
    for row in reader:
        where = f"{path}:{reader.line_num}"
        if None in row or None in row.values():
            raise InputError("the row has a wrong number of fields", where=where, advice="restore the file")
        epoch_s = _number(row["epoch"], where, "epoch")
        if epoch_s is None or epoch_s <= previous_s:
            raise InputError("epoch is missing or does not rise", where=where, advice="restore the file")
        throughput = _number(row["throughput"], where, "throughput")
        nodes = _number(row.get("observed_nodes") or "", where, "observed_nodes") or float(len(BOARDS))
        rate = rate if throughput is None else throughput / nodes
        if rate is None:
            raise InputError("the first throughput is missing", where=where, advice="the load is not known without it")
        start_s = max(epoch_s - rig["window_s"], previous_s + rig["gap_s"])
        elapsed_s = _number(row.get("elapsed_s") or "", where, "elapsed_s")
        if not windows and elapsed_s is not None:
            start_s = max(start_s, epoch_s - elapsed_s + rig["start_after_s"])
        windows.append(Window(start_s, epoch_s - rig["end_before_epoch_s"], rate))
        previous_s = epoch_s
    if not windows:
        raise InputError("there is no row", where=str(path), advice="give a sustained run's CSV")
    return windows


def read_log(path: Path) -> list[Sample]:
    """A board's thermal log. Raises InputError."""
    lines = _lines(path)
    if not lines or lines[0].split() != LOG_HEADER:
        raise InputError(f"the header is not '{' '.join(LOG_HEADER)}'", where=f"{path}:1", advice="give a thermal log")
    samples: list[Sample] = []
    for number, line in enumerate(lines[1:], start=2):
        where, fields = f"{path}:{number}", line.split()
        if not fields:
            continue
        if len(fields) != len(LOG_HEADER):
            fields = line.split(" ")  # a field left blank between single spaces is a reading that failed
        if len(fields) != len(LOG_HEADER):
            raise InputError(
                f"{len(line.split())} fields, {len(LOG_HEADER)} are due", where=where, advice="restore the file"
            )
        values = [_number(text, where, name) for text, name in zip(fields, LOG_HEADER, strict=True)]
        if values[0] is None or (samples and values[0] < samples[-1].epoch_s):
            raise InputError("epoch is missing or runs back", where=where, advice="restore the file")
        if samples and values[0] - samples[-1].epoch_s > LONGEST_GAP_S:
            raise InputError(f"a gap of more than {LONGEST_GAP_S:.0f} s", where=where, advice="give the log of one run")
        samples.append(Sample(values[0], values[1], values[5]))
    if not samples:
        raise InputError("there is no sample", where=str(path), advice="give a thermal log")
    return samples


def rig_load(inferences_per_s: float, relative_clock: float) -> Load:
    """The load of a board of the rig that serves at this rate: the work per inference is constant."""
    rig = constants()["kinds"]["nanopi-r76s"]["rig"]
    npu, net = inferences_per_s / rig["npu_inferences_per_s"], inferences_per_s / rig["network_inferences_per_s"]
    return Load(min(1.0, rig["cpu_activity"] * net / relative_clock), min(1.0, npu), 0.0, min(1.0, net))


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text("utf-8").splitlines()
    except FileNotFoundError:
        raise InputError("there is no such file", where=str(path), advice="give the folder that holds raw/") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"the file cannot be read ({error})", where=str(path), advice="check the file") from error


def _number(text: str, where: str, name: str) -> float | None:
    if not text.strip():
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0:
        raise InputError(f"{name} is {text!r}, not a number >= 0", where=where, advice="restore the file")
    return value or None


def _compare_board(name: str, samples: Sequence[Sample], windows: Sequence[Window], fan: float) -> dict[str, object]:
    start_s, end_s = windows[0].start_s, windows[-1].end_s
    if not any(start_s <= sample.epoch_s <= end_s and sample.soc_celsius for sample in samples):
        raise InputError(f"no sample of {name} lies within the load", advice="give logs and throughput of one run")
    if samples[0].epoch_s > start_s + LATEST_START_S:
        late_s = samples[0].epoch_s - start_s
        raise InputError(f"the log of {name} begins {late_s:.0f} s after the load", advice="give the whole log")
    reasons: dict[str, str] = {}
    model, idle_celsius = _model_at_start(name, samples, start_s, fan, reasons)
    track = _drive(model, samples, windows, fan)
    logged = [sample.soc_celsius for sample in samples]
    squares = [(m - c) ** 2 for m, c in zip(track.celsius, logged, strict=True) if c is not None]
    log_mhz = [sample.big_core_mhz for sample in samples]
    times = [sample.epoch_s - start_s for sample in samples]
    span = (0.0, end_s - start_s)

    def both(key: str, measure: Callable[[_Series], float | list[float] | None], why: str) -> dict[str, object]:
        values = {
            "model": measure(_Series(times, list(track.celsius), list(track.big_core_mhz), span)),
            "log": measure(_Series(times, logged, log_mhz, span)),
        }
        for side, value in values.items():
            if value is None:
                reasons[f"{key}.{side}"] = why
        return dict(values)

    return {
        "rms_celsius": round(math.sqrt(statistics.fmean(squares)), 3),
        "samples": len(squares),
        "idle_celsius": round(idle_celsius, 2),
        "first_throttle_s": both("first_throttle_s", _first_throttle, f"no sample below {TOP_MHZ} MHz under load"),
        "max_celsius": both("max_celsius", lambda s: max(s.celsius_in(), default=None), "no temperature"),
        "median_big_core_mhz": both("median_big_core_mhz", lambda s: _median(s.mhz_in()), "no clock"),
        "min_big_core_mhz": both("min_big_core_mhz", lambda s: min(s.mhz_in(), default=None), "no clock"),
        "plateau_celsius": both("plateau_celsius", _plateau, f"the load ends before {PLATEAU_FROM_S:.0f} s"),
        "regulation_celsius": both("regulation_celsius", _band, "fewer than 20 samples below the top clock"),
        "reasons": reasons,
    }


@dataclass(frozen=True)
class _Series:
    times: Sequence[float]
    celsius: Sequence[float | None]
    mhz: Sequence[float | None]
    span: tuple[float, float]

    def celsius_in(self, from_s: float = 0.0) -> list[float]:
        pairs = zip(self.times, self.celsius, strict=True)
        return [c for t, c in pairs if c is not None and from_s <= t <= self.span[1]]

    def mhz_in(self) -> list[float]:
        return [m for t, m in zip(self.times, self.mhz, strict=True) if m is not None and 0.0 <= t <= self.span[1]]


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


def _first_throttle(series: _Series) -> float | None:
    pairs = zip(series.times, series.mhz, strict=True)
    return next((t for t, mhz in pairs if mhz is not None and mhz < TOP_MHZ and 0.0 <= t <= series.span[1]), None)


def _plateau(series: _Series) -> float | None:
    values = series.celsius_in(PLATEAU_FROM_S)
    return round(statistics.fmean(values), 2) if values else None


def _band(series: _Series) -> list[float] | None:
    """The 5th and 95th percentile of the temperature while the clock is held down."""
    rows = zip(series.times, series.celsius, series.mhz, strict=True)
    held = sorted(c for t, c, m in rows if c and m and m < TOP_MHZ and 0.0 <= t <= series.span[1])
    return [held[len(held) // 20], held[len(held) * 19 // 20]] if len(held) >= 20 else None


def _model_at_start(
    name: str, samples: Sequence[Sample], start_s: float, fan: float, reasons: dict[str, str]
) -> tuple[BoardModel, float]:
    """The board at its first sample, and its idle level, from what the log shows before the load.

    A lead-in that falls is the tail of the harness's own probe (a short load just before the logger starts):
    the same probe is put into the model, and the idle level is what is left without its heat.
    """
    rig = constants()["kinds"]["nanopi-r76s"]["rig"]
    controls = Controls(fan_duty=fan)
    model = make("nanopi-r76s", name)
    model.settle(Load(), controls)
    lead = [s.soc_celsius for s in samples if s.epoch_s < start_s and s.soc_celsius is not None]
    if not lead:
        reasons["idle_celsius"] = "there is no sample before the load; the first one is taken as the idle level"
        first = next(s.soc_celsius for s in samples if s.soc_celsius is not None)
        model.air_celsius += first - model.celsius
        return model, first
    before_s = start_s - samples[0].epoch_s
    falling = statistics.fmean(lead[:2]) - statistics.fmean(lead[-2:]) >= rig["probe_fall_celsius"]
    level = statistics.fmean(lead[-2:] if falling else lead[-10:])
    idle = model.celsius
    if falling:
        model.advance(rig["probe_s"], rig_load(rig["probe_inferences_per_s"], 1.0), controls)
        model.advance(rig["probe_rest_s"], Load(), controls)
        reasons["idle_celsius"] = "the lead-in falls: taken as the tail of the harness's probe"
    ahead = make("nanopi-r76s", name)
    ahead.restore_rises(model.rises)
    ahead.advance(max(0.0, before_s - 1.5), Load(), controls)
    shift = level - ahead.celsius
    model.air_celsius += shift
    return model, idle + shift


def _drive(model: BoardModel, samples: Sequence[Sample], windows: Sequence[Window], fan: float) -> _Track:
    controls, ends = Controls(fan_duty=fan), [window.end_s for window in windows]
    top_khz = max(model.cpu_cur_khz.values())
    now_s, track = samples[0].epoch_s, _Track([], [])
    for sample in samples:
        for _ in range(round((sample.epoch_s - now_s) / TICK_S)):
            at = bisect_left(ends, now_s)
            load = Load()
            if at < len(windows) and windows[at].start_s <= now_s:
                load = rig_load(windows[at].inferences_per_s, model.cpu_cur_khz["policy4"] / top_khz)
            model.advance(TICK_S, load, controls)
            now_s += TICK_S
        track.celsius.append(model.zones_celsius["soc-thermal"])
        track.big_core_mhz.append(model.cpu_cur_khz["policy4"] / 1000)
    return track
