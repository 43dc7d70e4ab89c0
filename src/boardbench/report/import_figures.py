"""Figures of an imported campaign: what its runs and logs come to, by the definitions of the analysis.

Runs that count are used; where none of a group counts, all of it is, and the figure says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from boardbench.analysis.clocks import CURRENT, Throttling, throttling
from boardbench.analysis.estimates import Unknown, known
from boardbench.analysis.operating_point import LoadPoint, Regime, regimes
from boardbench.analysis.series import Summary
from boardbench.imports.stored import StoredImport, StoredRun, StoredSamples

RATES = (
    "inferences_per_s",
    "prefill_tokens_per_s",
    "warm_prefill_tokens_per_s",
    "decode_tokens_per_s",
    "mixed_tokens_per_s",
    "perplexity",
)
INPUT_RAILS = ("VDD_IN_watts", "POM_5V_IN_watts", "VIN_SYS_5V0_watts")
CHIP = ("soc-thermal_celsius", "tj_celsius", "tj-thermal_celsius")
_RUN_LEVEL = (("p95", "latency_p95_ms"), ("p99", "latency_p99_ms"))


@dataclass(frozen=True)
class Named:
    """A figure in words: what of, and what it is."""

    name: str
    text: str


@dataclass(frozen=True)
class Board:
    """What the log of a board says of the whole load; None where it says nothing. MHz, degC, V; `readings` inside.

    `clock_steps`: each CPU clock below the top (MHz) with the second of the load in which it was first seen.
    """

    name: str
    readings: int
    soc_max_celsius: float | None
    cpu_median_mhz: float | None
    cpu_min_mhz: float | None
    npu_median_mhz: float | None
    throttled_at_s: float | None
    clock_steps: tuple[tuple[float, float], ...]
    mean_input_watts: float | None
    lowest_volts: float | None


def counted(runs: Sequence[StoredRun]) -> tuple[list[StoredRun], str]:
    """The runs of a group that count, else all of them, with a remark that says so."""
    good = [run for run in runs if run.valid]
    if good or not runs:
        return good, ""
    codes = sorted({code for run in runs for code, _ in run.reasons})
    return list(runs), f" [not valid: {', '.join(codes)}]"


def groups(stored: StoredImport) -> dict[tuple[tuple[str, str], ...], list[StoredRun]]:
    """Runs by arm, arms in the order in which they first ran."""
    found: dict[tuple[tuple[str, str], ...], list[StoredRun]] = {}
    for run in stored.measured:
        found.setdefault(tuple(run.arm.items()), []).append(run)
    return found


def label(arm: Sequence[tuple[str, str]]) -> str:
    """An arm for people: `connections 2, concurrency 12`; a single factor by its level alone."""
    if len(arm) == 1 and arm[0][0] in ("test", "policy", "load", "measure"):
        return arm[0][1]
    return ", ".join(f"{factor} {level}" for factor, level in arm)


def metric_of(runs: Sequence[StoredRun]) -> str | None:
    """The figure that these runs are about: the first of `RATES` that any of them has."""
    return next((name for name in RATES if any(run.number(name) is not None for run in runs)), None)


def is_series(stored: StoredImport) -> bool:
    """Whether the runs are one load in pieces: one arm, each with its place in time."""
    arms = groups(stored)
    return (
        len(arms) == 1 and len(stored.measured) > 2 and all(isinstance(r.window_unix_s, tuple) for r in stored.measured)
    )


def load_window(stored: StoredImport) -> tuple[float, float] | None:
    """From the first run's start to the last run's end (Unix s); None when no run has its place in time."""
    windows = [run.window_unix_s for run in stored.measured if isinstance(run.window_unix_s, tuple)]
    return (min(start for start, _ in windows), max(end for _, end in windows)) if windows else None


def over_time(stored: StoredImport) -> list[Named]:
    """Peak, steady and loss of a load in pieces: as the field rig defines them, and by ours."""
    if not is_series(stored):
        return []
    from boardbench.analysis.rig_definition import rig_figures
    from boardbench.analysis.steady import steady_state

    used, remark = counted(stored.measured)
    name = metric_of(used)
    if name is None:
        return []
    rates = [run.number(name) for run in used]
    rig = rig_figures(rates)
    ends = [run.window_unix_s[1] for run in used if isinstance(run.window_unix_s, tuple)]
    try:
        ours = steady_state(ends, rates, "1/s")
    except ValueError as error:
        return [Named("by the rig's definition", rig.text + remark), Named("by ours", f"not determinable: {error}")]
    texts = [Named("by the rig's definition", rig.text + remark), Named("by ours", f"{ours.verdict}: {ours.why}")]
    if known(ours.steady):
        texts.append(Named("steady by ours", ours.steady.text))
    loss = ours.degradation
    if known(loss):
        texts.append(Named("loss by ours", ("at least " if ours.at_least else "") + loss.text))
    return texts


def _configuration(run: StoredRun) -> str | None:
    """What a run's load curve is of: its arm without the concurrency; None for a run without one."""
    if not run.arm.get("concurrency", "").isdigit():
        return None
    rest = [(factor, level) for factor, level in run.arm.items() if factor != "concurrency"]
    return ", ".join(f"{factor} {level}" for factor, level in rest) or "all"


def _load_curves(stored: StoredImport) -> dict[str, tuple[list[StoredRun], str, list[LoadPoint]]]:
    """By configuration that was run at several concurrencies: its runs that are used, a remark, and its points."""
    series: dict[str, list[StoredRun]] = {}
    for run in stored.measured:
        name = _configuration(run)
        if name is not None and run.number("inferences_per_s") is not None:
            series.setdefault(name, []).append(run)
    curves = {}
    for name, runs in series.items():
        used, remark = counted(runs)
        points = [
            LoadPoint(name, int(run.arm["concurrency"]), rate)
            for run in used
            if (rate := run.number("inferences_per_s")) is not None
        ]
        if len({point.concurrency for point in points}) > 1:
            curves[name] = (used, remark, points)
    return curves


def operating_points(stored: StoredImport) -> list[Named]:
    """The operating point of each configuration that was run at several concurrencies."""
    from boardbench.analysis.load_curve import find_operating_point

    texts = []
    for configuration, (used, remark, points) in _load_curves(stored).items():
        found = find_operating_point(points, configuration)
        if isinstance(found, Unknown):
            texts.append(Named(f"operating point, {configuration}", found.text))
            continue
        here = [run for run in used if run.arm["concurrency"] == str(found.concurrency)]
        tail = "".join(f", {text}" for text in _tails(here))
        texts.append(Named(f"operating point, {configuration}", f"{found.text}{tail}{remark}"))
    return texts


def _tails(runs: Sequence[StoredRun]) -> list[str]:
    from boardbench.analysis.percentiles import run_level

    texts = []
    for percentile, metric in _RUN_LEVEL:
        level = run_level([run.number(metric) for run in runs], float(percentile[1:]))
        if not isinstance(level, Unknown):
            texts.append(f"{level.name} {level.mean:.1f} ms")
    return texts


@dataclass(frozen=True)
class ArmFigures:
    """One arm: its metric, mean and spread over runs, how many runs, how many count, and a remark."""

    arm: str
    metric: str
    text: str
    runs: int
    valid: int
    mean: float | None
    remark: str


def by_arm(stored: StoredImport) -> list[ArmFigures]:
    """Mean +- sample deviation of each arm's metric over its runs (not pooled over requests)."""
    from boardbench.analysis.series import summarise

    found = []
    where = regimes([point for _, _, points in _load_curves(stored).values() for point in points])
    for arm, runs in groups(stored).items():
        used, remark = counted(runs)
        configuration = _configuration(runs[0])
        if configuration is not None and (regime := where.get((configuration, int(runs[0].arm["concurrency"])))):
            remark += f" {regime.value}: not for decisions" * (regime is Regime.OVERLOAD)
        for metric in RATES:
            values = [run.number(metric) for run in used]
            if not any(value is not None for value in values):
                continue
            whole = summarise(values)
            mean = None if isinstance(whole, Unknown) else whole.mean
            good = sum(1 for run in runs if run.valid)
            found.append(ArmFigures(label(arm), metric, whole.text, len(runs), good, mean, remark.strip()))
    return found


def boards(stored: StoredImport) -> list[Board]:
    """What each log says over the whole load; over the whole log where no run has its place in time."""
    window = load_window(stored)
    return [_board(stored, log, window) for log in stored.logs if log.what == "log"]


def _board(stored: StoredImport, log: StoredSamples, window: tuple[float, float] | None) -> Board:
    from boardbench.analysis.series import Series, over_window, summarise

    def series(name: str) -> Series:
        return Series.of(*stored.column(log, name))

    def figure(names: Sequence[str], read: Callable[[Summary], float], factor: float = 1.0) -> float | None:
        name = next((name for name in names if name in log.columns), None)
        if name is None:
            return None
        whole = series(name)
        found = summarise(whole.values) if window is None else over_window(whole, *window)
        if isinstance(found, Unknown):
            return None
        return read(found if isinstance(found, Summary) else found.summary) * factor

    cpu = [name for name in log.columns if name.endswith("_cur_khz")][-1:]
    npu = [name for name in log.columns if name in ("npu_cur_hz", "gpu_cur_hz")]
    onset: float | None = None
    steps: tuple[tuple[float, float], ...] = ()
    if cpu and window is not None:
        held = throttling(series(cpu[0]), *window, source=CURRENT)
        if not isinstance(held, Unknown):
            onset, steps = held.onset_s, _steps(held)
    times = stored.column(log, log.columns[0])[0]
    inside = sum(1 for at in times if window is None or window[0] <= at <= window[1])
    return Board(
        name=log.board or log.source,
        readings=inside,
        soc_max_celsius=figure(CHIP, lambda s: s.maximum),
        cpu_median_mhz=figure(cpu, lambda s: s.median, 1e-3),
        cpu_min_mhz=figure(cpu, lambda s: s.minimum, 1e-3),
        npu_median_mhz=figure(npu, lambda s: s.median, 1e-6),
        throttled_at_s=onset,
        clock_steps=steps,
        mean_input_watts=figure(INPUT_RAILS, lambda s: s.mean),
        lowest_volts=figure(["input_volts"], lambda s: s.minimum),
    )


def _steps(held: Throttling) -> tuple[tuple[float, float], ...]:
    return tuple((clock / 1e3, at) for clock, at in sorted(held.first_at.items(), reverse=True) if clock < held.top)


def steps_text(board: Board) -> str:
    """The steps of a board's clock: `2,016 at 179 s, 1,800 at 222 s`."""
    return ", ".join(f"{mhz:,.0f} at {at:,.0f} s" for mhz, at in board.clock_steps)


def import_figures(stored: StoredImport) -> dict[str, str | float]:
    """Every figure by name, for tables of others: texts with their unit, numbers with the unit in the name."""
    figures: dict[str, str | float] = {
        named.name: named.text for named in [*over_time(stored), *operating_points(stored)]
    }
    for arm in () if is_series(stored) else by_arm(stored):
        figures[f"{arm.arm}: {arm.metric}"] = " ".join(part for part in (arm.text, arm.remark) if part)
    for board in boards(stored):
        if board.clock_steps:
            figures[f"{board.name} CPU MHz first seen"] = steps_text(board)
        for name, value in _numbers(board).items():
            if value is not None:
                figures[f"{board.name} {name}"] = value
    return figures


def _numbers(board: Board) -> Mapping[str, float | None]:
    return {
        "soc_max_celsius": board.soc_max_celsius,
        "cpu_median_mhz": board.cpu_median_mhz,
        "cpu_min_mhz": board.cpu_min_mhz,
        "npu_median_mhz": board.npu_median_mhz,
        "throttled_at_s": board.throttled_at_s,
        "mean_of_samples_input_watts": board.mean_input_watts,
        "lowest_input_volts": board.lowest_volts,
    }
