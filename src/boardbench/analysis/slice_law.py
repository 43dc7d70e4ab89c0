"""What fewer, larger reads should gain: the slice-size law and its share of the whole, with an interval.

Source: the layout report's law g = 1 + saved x t_op / (slice_bytes / BW) and speed-up = 1 / ((1 - s) + s / g). A ratio
is worth nothing without what it is against, so all here refuse without a named baseline.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

from boardbench.analysis.estimates import Estimate, Figure, Interval, Unknown

Range = tuple[float, float, float]
"""(low, value, high) of an input: its own interval, or what a device curve spans."""


@dataclass(frozen=True)
class ReadBaseline:
    """What a gain is against: engine and model, and the read pattern, for example "9 scattered reads an expert"."""

    engine: str
    pattern: str
    reads_per_unit: float

    @property
    def named(self) -> bool:
        """Whether both are said."""
        return bool(self.engine.strip() and self.pattern.strip())


@dataclass(frozen=True)
class Device:
    """What was measured on the board: seconds lost per read operation, and bytes per second at the queue depth in use.

    `loaded_latency_s`: of one unit's read at that depth; needed where the queue depth is above 1, because reads that
    overlap do not take bytes / bandwidth each.
    """

    operation_s: Range
    bytes_per_s: Range
    queue_depth: float
    loaded_latency_s: Range | None = None


def exact(value: float) -> Range:
    """An input that is taken as known."""
    return (value, value, value)


def io_gain(baseline: ReadBaseline, reads_after: float, unit_bytes: float, device: Device) -> Figure:
    """g: how many times faster the same units are read (ratio of read times, no unit).

    `unit_bytes`: bytes over which the operations are saved (all slices of an expert, where they become one read). The
    interval spans the corners of the inputs' ranges; it is only as good as these. The law ignores page faults,
    locality of neighbouring reads, and consumers that wait for a first slice. Not determinable: no named baseline, no
    saved read, inputs not above 0, or a queue depth above 1 without the latency measured at it.
    """
    if not baseline.named:
        return Unknown("a gain without a named baseline (engine and read pattern) says nothing")
    saved = baseline.reads_per_unit - reads_after
    if saved < 0 or reads_after <= 0 or unit_bytes <= 0:
        return Unknown(f"{baseline.reads_per_unit:g} reads of {unit_bytes:g} bytes become {reads_after:g}: no saving")
    if device.queue_depth > 1 and device.loaded_latency_s is None:
        return Unknown(
            f"at queue depth {device.queue_depth:g} reads overlap: the law needs the unit's latency at that depth"
        )
    wrong = _wrong(device.operation_s, device.bytes_per_s, device.loaded_latency_s or exact(1.0))
    if wrong:
        return Unknown(wrong)
    method = f"slice-size law, against {baseline.engine}, {baseline.pattern}"
    if device.loaded_latency_s is not None:
        return _spread(lambda op, wait: 1 + saved * op / wait, [device.operation_s, device.loaded_latency_s], method)
    return _spread(
        lambda op, speed: 1 + saved * op * speed / unit_bytes, [device.operation_s, device.bytes_per_s], method
    )


def speed_up(baseline: ReadBaseline, share: Range, gain: Figure) -> Figure:
    """End to end: 1 / ((1 - s) + s / g). `share`: exposed read time over token time of the *baseline*, 0 to 1.

    The interval spans the corners. Not determinable: no named baseline, no gain, a share outside 0 to 1.
    """
    if not baseline.named:
        return Unknown("a speed-up without a named baseline (engine and read pattern) says nothing")
    if isinstance(gain, Unknown):
        return gain
    if not 0 <= share[0] <= share[1] <= share[2] <= 1:
        return Unknown(f"a share of read time of {share} is not between 0 and 1, in order")
    inside = gain.interval or Interval(gain.value, gain.value, 1.0)
    method = f"two-term speed-up, against {baseline.engine}, {baseline.pattern}"
    return _spread(_two_terms, [share, (inside.low, gain.value, inside.high)], method)


def share_for(measured_speed_up: float, gain: float) -> Figure:
    """The share s that a measured speed-up implies with a known g. It calibrates the law; it cannot test it.

    Not determinable: a gain of 1 or less, or a speed-up that no share between 0 and 1 gives.
    """
    if gain <= 1 or measured_speed_up <= 0:
        return Unknown("no share follows from a gain of 1 or less")
    share = (1 - 1 / measured_speed_up) / (1 - 1 / gain)
    if not 0 <= share <= 1:
        return Unknown(f"no share between 0 and 1 turns a gain of {gain:.3g} into {measured_speed_up:.3g}")
    return Estimate(share, "", 1, "solved from the result: calibrates, does not test")


def _two_terms(share: float, gain: float) -> float:
    return 1 / ((1 - share) + share / gain)


def _spread(of: Callable[..., float], ranges: list[Range], method: str) -> Estimate:
    """Value and corners. Every function here is monotone in each input, so the corners hold the extremes."""
    corners = [of(*corner) for corner in product(*[(r[0], r[2]) for r in ranges])]
    inside = Interval(min(corners), max(corners), 1.0, "corners of the inputs' ranges")
    return Estimate(of(*[r[1] for r in ranges]), "", 1, method, inside)


def _wrong(*ranges: Range) -> str:
    for low, value, high in ranges:
        if not 0 < low <= value <= high:
            return f"an input of ({low:g}, {value:g}, {high:g}) is not above 0 and in order"
    return ""
