"""Where a metric's number comes from: a closed list of figures of one run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from boardbench.analysis.thermal import Heat, Throughput


@dataclass(frozen=True)
class Source:
    """One figure of a run. `units`: what each unit multiplies the figure by; empty: a rate, in the workload's unit."""

    of: str
    units: Mapping[str, float]
    read: Callable[[Throughput | None, Heat | None], float | None]


def _rate(pick: Callable[[Throughput], float | None]) -> Callable[[Throughput | None, Heat | None], float | None]:
    return lambda rate, _: None if rate is None else pick(rate)


def _heat(pick: Callable[[Heat], float | None]) -> Callable[[Throughput | None, Heat | None], float | None]:
    return lambda _, hot: None if hot is None else pick(hot)


_MHZ = {"MHz": 1.0, "kHz": 1000.0}
SOURCES: Mapping[str, Source] = {
    "first": Source("rate of the first interval", {}, _rate(lambda rate: rate.first_per_s)),
    "peak": Source("rate of the best interval", {}, _rate(lambda rate: rate.peak_per_s)),
    "steady": Source("mean rate of the last third of the intervals", {}, _rate(lambda rate: rate.steady_per_s)),
    "loss": Source("loss from best level to steady", {"percent": 1.0}, _rate(lambda rate: rate.degradation_percent)),
    "max-temperature": Source(
        "highest chip temperature inside the load window", {"degC": 1.0}, _heat(lambda hot: hot.soc_max_celsius)
    ),
    "max-power": Source(
        "highest power of the board's input inside the load window", {"W": 1.0}, _heat(lambda hot: hot.power_max_watts)
    ),
    "median-clock": Source("median clock of the big cores", _MHZ, _heat(lambda hot: hot.cpu_median_mhz)),
    "min-clock": Source("lowest clock of the big cores", _MHZ, _heat(lambda hot: hot.cpu_min_mhz)),
    "throttle-onset": Source(
        "board seconds until the allowed clock first fell", {"s": 1.0}, _heat(lambda hot: hot.throttle_onset_s)
    ),
}


def unit_fits(source: str, unit: str) -> bool:
    """Whether a metric from this source can be given in `unit`; a rate is anything per second."""
    units = SOURCES[source].units
    return unit in units if units else unit.endswith("/s") and len(unit) > len("/s")


def value_of(source: str, unit: str, rate: Throughput | None, hot: Heat | None) -> tuple[float | None, str]:
    """The figure in `unit`, or None and why there is none."""
    found = SOURCES[source].read(rate, hot)
    if found is not None:
        return found * SOURCES[source].units.get(unit, 1.0), ""
    if source == "throttle-onset" and hot is not None and hot.throttled is False:
        return None, "it never throttled"
    return None, "it was not measured"
