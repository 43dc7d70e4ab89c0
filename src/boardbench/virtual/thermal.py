"""Thermal models of the boards, by kind: `make`. The physics is in `thermal_model`, the constants beside this file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from ..errors import InputError
from .thermal_jetson import JetsonModel
from .thermal_model import TICK_S, BoardModel, Controls, Load, Mode, interpolate

__all__ = ["TICK_S", "BoardModel", "Controls", "JetsonModel", "Load", "NanoPiModel", "constants", "make"]


@cache
def constants() -> dict[str, Any]:
    """The fitted constants, as they lie beside this module."""
    data: dict[str, Any] = json.loads(Path(__file__).with_name("thermal_constants.json").read_text("utf-8"))
    return data


class NanoPiModel(BoardModel):
    """NanoPi R76S (RK3576). The NPU is never throttled; the CPU's clock yields instead."""

    def __init__(self, spec: Mapping[str, Any], board: str, air_celsius: float | None) -> None:
        own = spec["boards"].get(board, spec["boards"]["default"])
        modes = []
        for mode, scale in zip(spec["modes"], own["resistance_scale"], strict=True):
            # The first mode is the chip itself, which no fan reaches.
            fan = mode["fan_scale"] if mode["fan_scale"] == 1.0 else mode["fan_scale"] * own["fan_scale"]
            fan_line = [[0.0, 1.0], [1.0, fan]]
            resistance, rest_tau_s = mode["resistance"] * scale, mode.get("rest_tau_s")
            modes.append(Mode(resistance, mode["tau_s"], mode["soc"], mode["board"], fan_line, rest_tau_s))
        super().__init__(spec, modes, spec["air_celsius"] if air_celsius is None else air_celsius)
        self._heat_spec = spec["heat"]
        self._throttle_spec = spec["throttle"]
        self._zones: dict[str, list[float]] = own["zones"]
        self._lattice = spec["sensor"]
        self._npu_hz = spec["npu_hz"]
        self._volts_spec = spec["input_volts"]
        self._every = max(1, round(spec["throttle"]["poll_s"] / TICK_S))
        self._steps = 0
        self._busy = 0.0
        self._big = max(self._policies, key=lambda policy: policy.ladder[-1])
        self.settle(Load(), Controls())

    @property
    def zones_celsius(self) -> dict[str, float]:
        """What each of the six sensors says, by type."""
        base, busy = self.celsius, self._busy
        step, anchor = self._lattice["step_millicelsius"], self._lattice["anchor_millicelsius"]
        out = {}
        for zone, (idle_offset, busy_offset) in self._zones.items():
            true = 1000 * (base + idle_offset + (busy_offset - idle_offset) * busy)
            out[zone] = (anchor + round((true - anchor) / step) * step) / 1000
        return out

    @property
    def input_volts(self) -> float:
        """The 5 V input, which sags with the load; on the converter's lattice."""
        spec = self._volts_spec
        volts = spec["idle"] - spec["sag"] * self._busy
        return float(round(round(volts / spec["step"]) * spec["step"], 3))

    def _settle_clocks(self, load: Load, controls: Controls) -> None:
        for policy in self._policies:
            policy.settle(controls, load.cpu_activity)
        high = min(self._npu_hz["max"], controls.npu_max_hz or self._npu_hz["max"])
        self.npu_cur_hz = max(self._npu_hz["min"], high)

    def _heat_in(self, load: Load) -> tuple[float, float]:
        spec = self._heat_spec
        # A CPU with no time to spare feeds the NPU no faster than the rig's throttled boards did.
        npu_activity = min(load.npu_activity, interpolate(spec["npu_fed_by_cpu"], load.cpu_activity))
        npu = spec["npu"] * npu_activity * (self.npu_cur_hz or 0) / self._npu_hz["max"]
        # A core that waits still pays for its clock and its voltage: that is why `performance` idles warmer.
        busy_cpu = load.cpu_activity + spec["cpu_idle_share"] * (1.0 - load.cpu_activity)
        cpu = spec["cpu"] * busy_cpu * self._big.relative_power
        # Away from the chip, regulators and memory heat when CPU and NPU work together; NICs heat the most.
        memory = spec["memory"] * load.cpu_activity * (1.0 - spec["memory_by_npu"] * (1.0 - load.npu_activity))
        board = memory + (1.0 - memory) * load.network_activity
        self._busy = min(1.0, (npu + spec["cpu"] * load.cpu_activity * self._big.relative_power) / spec["busy_heat"])
        return npu + cpu, board

    def _throttle(self) -> bool:
        """The vendor kernel's way, as the logs show it.

        The cap follows the temperature within a narrow band, one step of the ladder per poll, and is lifted
        at once when the chip is well below (as in the pauses between two loads).
        """
        if self._ticks % self._every:
            return False
        spec, before = self._throttle_spec, self._steps
        celsius, steps = self.celsius, spec["step_celsius"]
        if celsius < spec["lift_below_celsius"]:
            self._steps = 0
        elif self._steps < len(steps) and celsius > steps[self._steps]:
            self._steps += 1
        elif self._steps and celsius < steps[self._steps - 1]:
            self._steps -= 1
        if self._steps == before:
            return False
        cap = self._big.ladder[-1 - self._steps]
        for policy in self._policies:
            policy.thermal_max_khz = policy.floor(cap)
        return True


def make(kind: str, board: str, *, air_celsius: float | None = None) -> BoardModel:
    """A board of `kind`, at rest. Boards of a kind that the constants do not name get its default.

    Raises InputError for a kind without a model.
    """
    kinds = constants()["kinds"]
    if kind == "nanopi-r76s":
        return NanoPiModel(kinds[kind], board, air_celsius)
    if kind == "jetson-orin-nano":
        return JetsonModel(kinds[kind], air_celsius)
    raise InputError(
        f"there is no thermal model for boards of kind {kind!r}", advice=f"use one of {', '.join(sorted(kinds))}"
    )
