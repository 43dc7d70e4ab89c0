"""How a board heats, cools and throttles: a small model without clock or I/O; time is passed in.

Each board is a sum of thermal modes (a resistance and a time constant each): a mode goes exponentially to
resistance x heat. That is the step response of any RC ladder, costs one multiplication a mode and tick, and
does not depend on how a caller cuts time. A fan scales resistance and time constant of a mode alike, because
the heat capacity stays. The constants of each kind of board are in `thermal_constants.json`, with their origin.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field
from itertools import pairwise
from typing import Any

TICK_S = 0.25
"""Board seconds of one step of the model."""

REST_ACTIVITY = 0.05
"""A board whose CPU and NPU are busier than this is not at rest."""


@dataclass(frozen=True)
class Load:
    """What keeps the board busy: shares 0..1 of all cores of each kind. Values outside are cut to 0..1.

    `network_activity` is the share of the traffic that the rig's boards saw when they served over 2.5 GbE.
    """

    cpu_activity: float = 0.0
    npu_activity: float = 0.0
    gpu_activity: float = 0.0
    network_activity: float = 0.0


@dataclass(frozen=True)
class Controls:
    """What a user or the kernel has set. A policy that is not named has no bound and the governor `performance`.

    `fan_duty` 0..1; `None` as a frequency bound means the bound of the hardware.
    """

    fan_duty: float = 0.0
    cpu_max_khz: Mapping[str, int] = field(default_factory=dict)
    cpu_min_khz: Mapping[str, int] = field(default_factory=dict)
    governor: Mapping[str, str] = field(default_factory=dict)
    gpu_min_hz: int | None = None
    gpu_max_hz: int | None = None
    npu_min_hz: int | None = None
    npu_max_hz: int | None = None


def interpolate(points: Sequence[Sequence[float]], x: float) -> float:
    """The value at `x` of the line through `points` (ascending), held flat outside."""
    if x <= points[0][0]:
        return points[0][1]
    for (x0, y0), (x1, y1) in pairwise(points):
        if x <= x1:
            return y0 + (y1 - y0) * (x - x0) / (x1 - x0)
    return points[-1][1]


def _unit(value: float) -> float:
    return min(1.0, max(0.0, value))


class Policy:
    """One CPU frequency policy: its ladder, what the governor asks for, and what heat leaves of it."""

    def __init__(self, name: str, spec: Mapping[str, Any]) -> None:
        self.name = name
        self.ladder: list[int] = list(spec["ladder_khz"])
        self.volts: list[list[float]] = spec["volts"]
        self.weight = float(spec["weight"])
        self.thermal_max_khz = self.ladder[-1]
        self.cur_khz = self.ladder[-1]
        top = self._power(self.ladder[-1])
        self._relative_power = {khz: self._power(khz) / top for khz in self.ladder}

    def _power(self, khz: int) -> float:
        volts = interpolate(self.volts, khz)
        return khz * volts * volts

    @property
    def relative_power(self) -> float:
        """f*V^2 of the current clock, relative to the highest."""
        return self._relative_power[self.cur_khz]

    @property
    def relative_clock(self) -> float:
        """The current clock relative to the highest."""
        return self.cur_khz / self.ladder[-1]

    def floor(self, khz: int) -> int:
        """The highest step of the ladder that is not above `khz` (the lowest step if none)."""
        return next((step for step in reversed(self.ladder) if step <= khz), self.ladder[0])

    def settle(self, controls: Controls, activity: float) -> None:
        """Set the current clock from the governor, the user's bounds and the thermal cap."""
        high = min(self.floor(controls.cpu_max_khz.get(self.name, self.ladder[-1])), self.thermal_max_khz)
        low = min(self.floor(controls.cpu_min_khz.get(self.name, self.ladder[0])), high)
        governor = controls.governor.get(self.name, "performance")
        if governor == "powersave":
            wanted = low
        elif governor in ("ondemand", "schedutil", "conservative", "interactive"):
            # The kernel's own rule of thumb: keep a quarter of the clock in reserve.
            need = 1.25 * activity * self.ladder[-1]
            wanted = next((step for step in self.ladder if step >= need), self.ladder[-1])
        else:
            wanted = high
        self.cur_khz = min(max(wanted, low), high)


@dataclass
class Mode:
    """One thermal mode. `soc` and `board`: how much of each heat drives it; `fan_scale` at full fan."""

    resistance: float
    tau_s: float
    soc: float
    board: float
    fan_scale: Sequence[Sequence[float]]
    rest_tau_s: float | None = None
    """The time constant once the board has rested for a while; short pauses keep `tau_s`."""
    rise: float = 0.0


class BoardModel(ABC):
    """A board at a time. `advance` moves it; everything else reads it.

    Temperatures are on the lattice of the board's sensor. `air_celsius` may be set at any time.
    """

    def __init__(self, spec: Mapping[str, Any], modes: list[Mode], air_celsius: float) -> None:
        self.air_celsius = air_celsius
        self._policies = [Policy(name, policy) for name, policy in spec["policies"].items()]
        self._modes = modes
        self._pending_s = 0.0
        self._ticks = 0
        self._gains_duty: float | None = None
        self._gains: list[tuple[float, float, float]] = []
        self._heat = (0.0, 0.0)
        self._rest_s = 0.0
        self._rest_after_s = float(spec.get("rest_after_s", math.inf))
        self.npu_cur_hz: int | None = None
        self.gpu_cur_hz: int | None = None
        self.fan_rpm: float | None = None
        self.rails: dict[str, tuple[float, float]] = {}

    def advance(self, seconds: float, load: Load, controls: Controls) -> None:
        """Let `seconds` of board time pass under `load`. Time below one tick is kept for the next call."""
        if not (seconds >= 0 and math.isfinite(seconds)):
            raise ValueError(f"seconds must be a finite number >= 0, not {seconds}")
        self._pending_s += seconds
        # The small term keeps 60 x 1.0 s and 1 x 60.0 s on the same number of ticks in spite of rounding.
        ticks = int(self._pending_s / TICK_S + 1e-9)
        self._pending_s -= ticks * TICK_S
        duty = _unit(controls.fan_duty)
        load = Load(*(_unit(activity) for activity in astuple(load)))
        self._settle_clocks(load, controls)
        self._heat = self._heat_in(load)
        at_rest = max(load.cpu_activity, load.npu_activity, load.gpu_activity) < REST_ACTIVITY
        for _ in range(ticks):
            self._flow(duty)
            self._ticks += 1
            self._rest_s = self._rest_s + TICK_S if at_rest else 0.0
            if self._throttle():
                self._settle_clocks(load, controls)
                self._heat = self._heat_in(load)
            self._slow_parts(duty)

    def settle(self, load: Load, controls: Controls) -> None:
        """Put the board where it would be after a very long time under `load` (without throttling)."""
        self._settle_clocks(load, controls)
        self._heat = self._heat_in(load)
        duty = _unit(controls.fan_duty)
        for mode in self._modes:
            heat = mode.soc * self._heat[0] + mode.board * self._heat[1]
            mode.rise = mode.resistance * interpolate(mode.fan_scale, duty) * heat
        self._slow_parts(duty)

    @property
    def rises(self) -> tuple[float, ...]:
        """How far each thermal mode lies above the air: the whole heat state."""
        return tuple(mode.rise for mode in self._modes)

    def restore_rises(self, rises: Sequence[float]) -> None:
        """Take over the heat state of another model of this kind of board."""
        for mode, rise in zip(self._modes, rises, strict=True):
            mode.rise = rise

    @property
    def celsius(self) -> float:
        """The hottest point's true temperature, off the sensor's lattice."""
        return self.air_celsius + sum(mode.rise for mode in self._modes)

    @property
    def cpu_cur_khz(self) -> dict[str, int]:
        """The clock of each CPU policy."""
        return {policy.name: policy.cur_khz for policy in self._policies}

    @property
    def cpu_thermal_max_khz(self) -> dict[str, int]:
        """What throttling leaves of each policy; the top of the ladder when it does not act."""
        return {policy.name: policy.thermal_max_khz for policy in self._policies}

    @property
    def clock_factor(self) -> float:
        """Speed of all cores together, relative to all at their highest clock."""
        total = sum(policy.weight for policy in self._policies)
        return sum(policy.weight * policy.relative_clock for policy in self._policies) / total

    @property
    @abstractmethod
    def zones_celsius(self) -> dict[str, float]:
        """What each thermal zone's sensor says, by type."""

    @property
    @abstractmethod
    def input_volts(self) -> float:
        """The voltage at the input."""

    def _flow(self, duty: float) -> None:
        soc, board = self._heat
        if duty != self._gains_duty:
            scales = [interpolate(mode.fan_scale, duty) for mode in self._modes]
            self._gains = [
                (
                    mode.resistance * scale,
                    1.0 - math.exp(-TICK_S / (mode.tau_s * scale)),
                    1.0 - math.exp(-TICK_S / (min(mode.rest_tau_s or mode.tau_s, mode.tau_s * scale))),
                )
                for mode, scale in zip(self._modes, scales, strict=True)
            ]
            self._gains_duty = duty
        resting = self._rest_s >= self._rest_after_s
        for mode, (resistance, share, rest_share) in zip(self._modes, self._gains, strict=True):
            target = resistance * (mode.soc * soc + mode.board * board)
            mode.rise += (target - mode.rise) * (rest_share if resting and target < mode.rise else share)

    @abstractmethod
    def _settle_clocks(self, load: Load, controls: Controls) -> None: ...

    @abstractmethod
    def _heat_in(self, load: Load) -> tuple[float, float]:
        """Heat of the chip and of the rest of the board, in the units of the constants."""

    @abstractmethod
    def _throttle(self) -> bool:
        """Move the thermal caps, if this tick is a poll. Whether a cap has changed."""

    def _slow_parts(self, duty: float) -> None:  # noqa: B027 (most boards have none)
        """What else changes with time (a fan's speed)."""
