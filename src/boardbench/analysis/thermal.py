"""What a sustained run says about heat: throughput over time, temperature and clocks inside the load window.

All functions are pure. Times are seconds of the board's monotonic clock. On a virtual board whose physics run
`time_scale` times faster, durations are multiplied by it ("board seconds"); rates are left per wall second.
A value that cannot be known is `None`, and `notes` says why; it is never 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from boardbench.analysis.estimates import Unknown
from boardbench.analysis.loss import best_level, loss_percent
from boardbench.analysis.rig_definition import rig_figures


@dataclass(frozen=True)
class ThermalSample:
    """One row of the thermal log, reduced to what this analysis needs. `None` is a missing reading."""

    monotonic_s: float
    soc_celsius: float | None
    big_core_cur_khz: float | None
    big_core_max_khz: float | None
    npu_cur_hz: float | None
    input_watts: float | None = None


@dataclass(frozen=True)
class RateInterval:
    """What the workload did in one interval of its own choice."""

    start_monotonic_s: float
    end_monotonic_s: float
    per_s: float


@dataclass(frozen=True)
class Throughput:
    """Rates per wall second. Steady = mean of the last third of the intervals, peak = best interval.

    `degradation_percent`: the loss, how far steady is below the best level (`analysis.loss`), not below the peak; None
    where no rate is above 0.
    """

    intervals: int
    first_per_s: float
    peak_per_s: float
    steady_per_s: float
    steady_stdev_per_s: float | None
    degradation_percent: float | None


@dataclass(frozen=True)
class Heat:
    """Readings inside the load window only. Clocks in MHz, onset in board seconds after the load's start."""

    samples: int
    soc_start_celsius: float | None
    soc_max_celsius: float | None
    cpu_median_mhz: float | None
    cpu_min_mhz: float | None
    npu_median_mhz: float | None
    npu_min_mhz: float | None
    throttled: bool | None
    throttle_onset_s: float | None
    notes: tuple[str, ...]
    power_max_watts: float | None = None


def throughput(intervals: Sequence[RateInterval]) -> Throughput | None:
    """First, peak and steady rate of a run, and the loss from its best level to steady in percent.

    Steady is the mean of the last third (n // 3, at least one) of the intervals: the definition that the published
    figures of this kind of rig use. It does not prove that the rate has stopped falling. No intervals: `None`.
    """
    rates = [interval.per_s for interval in intervals]
    found = rig_figures(rates)
    if isinstance(found, Unknown):
        return None
    return Throughput(
        intervals=found.runs,
        first_per_s=rates[0],
        peak_per_s=found.peak,
        steady_per_s=found.steady,
        steady_stdev_per_s=found.steady_stdev,
        degradation_percent=loss_percent(found.steady, best_level(rates)),
    )


def load_window(intervals: Sequence[RateInterval]) -> tuple[float, float] | None:
    """The load's own start and end (monotonic seconds): every statistic is cut by it. No intervals: `None`."""
    if not intervals:
        return None
    return intervals[0].start_monotonic_s, intervals[-1].end_monotonic_s


def _throttle_onset(inside: Sequence[ThermalSample], top_khz: float | None) -> tuple[bool | None, float | None]:
    """Whether, and at which monotonic second, the allowed clock first fell below the highest one in the log.

    The allowed clock (`scaling_max_freq`) is what the kernel lowers; the current clock also dips when a governor
    idles, so it is used only where the allowed one was not logged.
    """
    limits = [
        (
            sample.monotonic_s,
            sample.big_core_max_khz if sample.big_core_max_khz is not None else sample.big_core_cur_khz,
        )
        for sample in inside
    ]
    known = [(at, khz) for at, khz in limits if khz is not None]
    if not known or top_khz is None:
        return None, None
    first = next((at for at, khz in known if khz < top_khz), None)
    return first is not None, first


def heat(samples: Sequence[ThermalSample], window: tuple[float, float], time_scale: float = 1.0) -> Heat:
    """Temperatures, clocks and throttling inside `window` (monotonic start and end of the load)."""
    start, end = window
    inside = [sample for sample in samples if start <= sample.monotonic_s <= end]
    soc = [s.soc_celsius for s in inside if s.soc_celsius is not None]
    cpu = [s.big_core_cur_khz / 1000.0 for s in inside if s.big_core_cur_khz is not None]
    npu = [s.npu_cur_hz / 1e6 for s in inside if s.npu_cur_hz is not None]
    watts = [s.input_watts for s in inside if s.input_watts is not None]
    limits = [s.big_core_max_khz for s in samples if s.big_core_max_khz is not None]
    currents = [s.big_core_cur_khz for s in samples if s.big_core_cur_khz is not None]
    top_khz = max(limits or currents, default=None)
    throttled, onset = _throttle_onset(inside, top_khz)
    notes = [
        f"no {what} inside the load window"
        for what, values in (("SoC temperature", soc), ("CPU clock", cpu), ("NPU clock", npu))
        if not values
    ]
    return Heat(
        samples=len(inside),
        soc_start_celsius=soc[0] if soc else None,
        soc_max_celsius=max(soc, default=None),
        cpu_median_mhz=median(cpu) if cpu else None,
        cpu_min_mhz=min(cpu, default=None),
        npu_median_mhz=median(npu) if npu else None,
        npu_min_mhz=min(npu, default=None),
        throttled=throttled,
        throttle_onset_s=None if onset is None else (onset - start) * time_scale,
        notes=tuple(notes),
        power_max_watts=max(watts, default=None),
    )


def spread(values: Sequence[float]) -> float | None:
    """Largest over smallest: 1.0 means that the boards are alike. Fewer than two values, or one not above 0: `None`."""
    if len(values) < 2 or min(values) <= 0:
        return None
    return max(values) / min(values)
