"""The thermal model of a Jetson Orin Nano: power rails, a fan with tachometer, throttling of CPU and GPU."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from .thermal_model import TICK_S, BoardModel, Controls, Load, Mode, interpolate


class JetsonModel(BoardModel):
    """Jetson Orin Nano 8 GB in MAXN_SUPER: rails, fan with tachometer, throttling of CPU and GPU at 99 degC."""

    def __init__(self, spec: Mapping[str, Any], air_celsius: float | None) -> None:
        modes = [Mode(m["kelvin_per_watt"], m["tau_s"], 1.0, 1.0, m["fan_scale"]) for m in spec["modes"]]
        super().__init__(spec, modes, spec["air_celsius"] if air_celsius is None else air_celsius)
        self._spec = spec
        self._gpu_ladder: list[int] = spec["gpu"]["ladder_hz"]
        self._gpu_thermal_max_hz: int = self._gpu_ladder[-1]
        self._every = max(1, round(spec["throttle"]["poll_s"] / TICK_S))
        self._last_celsius = self.air_celsius
        self._watts = (0.0, 0.0, 0.0)
        self.fan_rpm = 0.0
        self.settle(Load(), Controls(fan_duty=spec["start_fan_duty"]))
        self.fan_rpm = interpolate(spec["fan_rpm"], spec["start_fan_duty"])

    @property
    def gpu_thermal_max_hz(self) -> int:
        """What throttling leaves of the GPU's clock."""
        return self._gpu_thermal_max_hz

    @property
    def zones_celsius(self) -> dict[str, float]:
        """Each zone that has a value, on the lattice of 1/32 degC; the cv zones are off and thus not there."""
        return {zone: round((self.celsius + offset) * 32) / 32 for zone, offset in self._spec["zone_offsets"].items()}

    @property
    def input_volts(self) -> float:
        """The module's 5 V input (rail VDD_IN)."""
        return self.rails["VDD_IN"][0]

    def _settle_clocks(self, load: Load, controls: Controls) -> None:
        for policy in self._policies:
            policy.settle(controls, load.cpu_activity)
        spec, ladder = self._spec["gpu"], self._gpu_ladder
        high = min(controls.gpu_max_hz or ladder[-1], self._gpu_thermal_max_hz)
        high = next((hz for hz in reversed(ladder) if hz <= high), ladder[0])
        low = min(next((hz for hz in ladder if hz >= (controls.gpu_min_hz or 0)), ladder[-1]), high)
        wanted = ladder[0]
        if load.gpu_activity > spec["starve_below"]:
            need = load.gpu_activity * ladder[-1]
            wanted = next((hz for hz in ladder if hz >= need), ladder[-1])
        self.gpu_cur_hz = min(max(wanted, low), high)

    def _heat_in(self, load: Load) -> tuple[float, float]:
        watts = self._spec["watts"]
        total = sum(policy.weight for policy in self._policies)
        cpu = sum(policy.weight * policy.relative_power for policy in self._policies) / total
        top = self._gpu_ladder[-1]
        gpu_clock = (self.gpu_cur_hz or 0) / top
        volts = interpolate(self._spec["gpu"]["volts"], self.gpu_cur_hz or 0) / self._spec["gpu"]["volts"][-1][1]
        compute = watts["compute_idle"] + watts["cpu"] * load.cpu_activity * cpu
        compute += watts["gpu"] * load.gpu_activity * gpu_clock * volts * volts
        busy = max(load.cpu_activity * cpu, load.gpu_activity * gpu_clock)
        soc = watts["soc_idle"] + watts["soc"] * busy
        rest = watts["rest_idle"] + watts["rest"] * busy
        self._watts = (compute + soc + rest, compute, soc)
        volts_in = self._spec["rail_volts"]["idle"] - self._spec["rail_volts"]["sag_per_watt"] * self._watts[0]
        self.rails = {
            label: (round(volts_in, 3), round(power / volts_in, 3))
            for label, power in zip(("VDD_IN", "VDD_CPU_GPU_CV", "VDD_SOC"), self._watts, strict=True)
        }
        return compute + soc, rest

    def _throttle(self) -> bool:
        """The kernel's step-wise governor: a step down while at the trip and rising, a step up below it and falling."""
        if self._ticks % self._every:
            return False
        celsius, trip = self.celsius, self._spec["throttle"]["trip_celsius"]
        move = -1 if celsius >= trip and celsius >= self._last_celsius else 0
        if celsius < trip and celsius <= self._last_celsius:
            move = 1
        self._last_celsius = celsius
        if move:
            for policy in self._policies:
                policy.thermal_max_khz = _step(policy.ladder, policy.thermal_max_khz, move)
            self._gpu_thermal_max_hz = _step(self._gpu_ladder, self._gpu_thermal_max_hz, move)
        return bool(move)

    def _slow_parts(self, duty: float) -> None:
        target = interpolate(self._spec["fan_rpm"], duty)
        now = self.fan_rpm or 0.0
        now += (target - now) * (1.0 - math.exp(-TICK_S / self._spec["fan_lag_s"]))
        self.fan_rpm = 0.0 if target == 0.0 and now < self._spec["fan_stall_rpm"] else now


def _step(ladder: Sequence[int], now: int, move: int) -> int:
    return ladder[min(len(ladder) - 1, max(0, ladder.index(now) + move))]
