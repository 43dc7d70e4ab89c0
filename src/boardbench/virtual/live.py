"""One living virtual board: its thermal model, what the user set, what loads it, and the faults that are on.

The model is advanced lazily, to the moment at which somebody reads. All of it is used under `lock`.
"""

from __future__ import annotations

import errno
import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from boardbench.virtual.clocks import CpuPolicy, Devfreq
from boardbench.virtual.faults import Faults
from boardbench.virtual.loads import LoadSum
from boardbench.virtual.thermal import Controls, Load
from boardbench.virtual.tree import Tree, refuse

# Reads within this time of each other see the same moment: a sweep over all files costs one step of the model.
_SAME_MOMENT_S = 0.002
_MAX_STEPS = 300
# At rest: the temperature moves less than this. Even with a time constant of 1000 s the rest is then below 0.02 K.
_REST_KELVIN_PER_S, _REST_MIN_S = 2e-5, 1.0


class Model(Protocol):
    """What `boardbench.virtual.thermal.make` gives."""

    npu_cur_hz: int | None
    gpu_cur_hz: int | None
    fan_rpm: float | None
    rails: dict[str, tuple[float, float]]

    @property
    def zones_celsius(self) -> Mapping[str, float]: ...
    @property
    def cpu_cur_khz(self) -> Mapping[str, int]: ...
    @property
    def cpu_thermal_max_khz(self) -> Mapping[str, int]: ...
    @property
    def input_volts(self) -> float: ...
    @property
    def celsius(self) -> float: ...
    @property
    def clock_factor(self) -> float: ...
    def advance(self, seconds: float, load: Load, controls: Controls) -> None: ...


@dataclass
class LiveBoard:
    """The state behind one board's files.

    `after_step` runs each `step_board_s` of board time, for what follows the temperature (a fan's curve).
    """

    name: str
    kind: str
    serial: str
    model: Model
    policies: tuple[CpuPolicy, ...]
    npu: Devfreq | None
    gpu: Devfreq
    time_scale: float = 1.0
    clock: Callable[[], float] = time.monotonic
    fan_connected: bool = True
    fan_duty: Callable[[], float] = field(default=lambda: 1.0)
    after_step: Callable[[], None] = field(default=lambda: None)
    step_board_s: float = math.inf
    on_reset: list[Callable[[], None]] = field(default_factory=list)
    faults: Faults = field(default_factory=Faults)
    load: LoadSum = field(default_factory=LoadSum)
    offline_cpus: set[int] = field(default_factory=set)
    swappiness: int = 60
    lock: threading.RLock = field(default_factory=threading.RLock)
    _at: float = field(init=False)
    _at_rest_under: Controls | None = field(init=False, default=None)
    _frozen: dict[str, int] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._at = self.clock()

    @property
    def cores_online(self) -> int:
        """How many cores can take load now."""
        return sum(len(policy.cpus) for policy in self.policies) - len(self.offline_cpus)

    def advance(self) -> None:
        """Bring the model to now."""
        now = self.clock()
        if now - self._at < _SAME_MOMENT_S:
            return
        left = (now - self._at) * self.time_scale
        self._at = now
        load = Load(self.load.cpu_activity, self.load.npu_activity, self.load.gpu_activity, self.load.network_activity)
        before, controls = self.model.celsius, self._controls()
        if load == Load() and controls == self._at_rest_under:
            return
        step, start = max(self.step_board_s, left / _MAX_STEPS), left
        while left > 0:
            self.model.advance(min(step, left), load, controls)
            self.after_step()
            controls = self._controls()
            left -= step
        # An idle board that has come to rest stays there: computing it on would be most of the daemon's cost.
        at_rest = start >= _REST_MIN_S and abs(self.model.celsius - before) < _REST_KELVIN_PER_S * start
        self._at_rest_under = controls if at_rest else None

    @property
    def at_rest(self) -> bool:
        """Whether nothing changes by itself now."""
        return self._at_rest_under is not None

    def stir(self) -> None:
        """Something was set: look again before the board counts as being at rest."""
        self._at_rest_under = None

    def _controls(self) -> Controls:
        return Controls(
            fan_duty=self.fan_duty() if self.fan_connected else 0.0,
            cpu_max_khz={policy.name: policy.user_max_khz for policy in self.policies},
            cpu_min_khz={policy.name: policy.min_khz(policy.ladder_khz[-1]) for policy in self.policies},
            governor={policy.name: policy.governor for policy in self.policies},
            gpu_min_hz=self.gpu.min_hz,
            gpu_max_hz=self.gpu.max_hz,
            npu_min_hz=self.npu.min_hz if self.npu else None,
            npu_max_hz=self.npu.max_hz if self.npu else None,
        )

    def set_load(self, load: LoadSum) -> None:
        """From now on this loads the board; what was before counts up to now."""
        if load != self.load:
            self.advance()
            self.load = load
            self.stir()

    def set_faults(self, faults: Faults) -> None:
        """Switch faults. A zone freezes at what it reads when the fault comes on."""
        self.faults = faults
        self.stir()
        self._frozen = {zone: at for zone, at in self._frozen.items() if zone in faults.frozen_zones}
        self.gpu.table_end_hz = 624750000 if faults.jetson_short_table and self.kind == "jetson-orin-nano" else None

    def reset(self) -> None:
        """What a reboot does to the settings: all back to power-on values (the silicon stays as warm as it is)."""
        for policy in self.policies:
            policy.reset()
        for device in (self.gpu, self.npu):
            if device is not None:
                device.reset()
        self.offline_cpus.clear()
        self.swappiness = 60
        self.stir()
        for hook in self.on_reset:
            hook()

    def zone_millicelsius(self, zone: str) -> int:
        """A zone's reading now; OSError while a fault or the board itself makes it fail."""
        if zone in self.faults.zone_errors:
            raise refuse(self.faults.zone_errors[zone])
        # Kernel drivers cut the fraction off; the small term keeps 84.999 from becoming 84998.
        now = math.floor(self.model.zones_celsius[zone] * 1000 + 1e-6)
        if zone in self.faults.frozen_zones:
            return self._frozen.setdefault(zone, now)
        return now

    def status(self, sandbox: str, sysfs: str) -> dict[str, object]:
        """What `status.json` says, without the time stamp; `kind` is the sandbox's, as in a board's facts."""
        return {
            "board": self.name,
            "kind": sandbox,
            "board_kind": self.kind,
            "time_scale": self.time_scale,
            "sysfs": sysfs,
            "cpu_share": round(self.load.cpu_share, 4),
            "clock_factor": round(self.model.clock_factor, 4),
        }


def thermal_cap(board: LiveBoard, policy: CpuPolicy) -> Callable[[], int]:
    """Reads the thermal bound of a policy, in kHz."""
    return lambda: board.model.cpu_thermal_max_khz[policy.name]


def cpu_clock(board: LiveBoard, policy: CpuPolicy) -> Callable[[], int]:
    """Reads the clock of a policy, in kHz: the model's, held within the bounds as they are at this moment."""

    def read() -> int:
        cap = board.model.cpu_thermal_max_khz[policy.name]
        low, high = policy.min_khz(cap), policy.max_khz(cap)
        if policy.governor == "performance":
            return high
        if policy.governor == "powersave":
            return low
        return min(max(board.model.cpu_cur_khz[policy.name], low), high)

    return read


def add_cpus(board: LiveBoard, tree: Tree) -> None:
    """The files of `sys/devices/system/cpu`."""
    at = "sys/devices/system/cpu"
    cpus = [cpu for policy in board.policies for cpu in policy.cpus]
    everything = _ranges(cpus)
    for name in ("possible", "present"):
        tree.line(f"{at}/{name}", everything)
    tree.line(f"{at}/kernel_max", 255)
    tree.line(f"{at}/isolated", "")
    tree.live(f"{at}/online", lambda: _ranges([cpu for cpu in cpus if cpu not in board.offline_cpus]))
    tree.live(f"{at}/offline", lambda: _ranges(sorted(board.offline_cpus)))
    for policy in board.policies:
        policy.add_to(tree, thermal_cap(board, policy), cpu_clock(board, policy))
        for cpu in policy.cpus:
            tree.line(f"{at}/cpu{cpu}/topology/core_id", cpu)
            tree.line(f"{at}/cpu{cpu}/topology/physical_package_id", 0)
            tree.live(f"{at}/cpu{cpu}/online", _online_reader(board, cpu), _online_writer(board, cpu))


def _online_reader(board: LiveBoard, cpu: int) -> Callable[[], int]:
    return lambda: int(cpu not in board.offline_cpus)


def _online_writer(board: LiveBoard, cpu: int) -> Callable[[str], None]:
    def write(text: str) -> None:
        if text not in ("0", "1"):
            raise refuse(errno.EINVAL)
        if text == "1":
            board.offline_cpus.discard(cpu)
        elif board.cores_online > 1 or cpu in board.offline_cpus:
            board.offline_cpus.add(cpu)
        else:
            raise refuse(errno.EBUSY)  # the kernel keeps its last core

    return write


def _ranges(numbers: list[int]) -> str:
    """Kernel list format: 0-3,5."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and parts[-1][-1] == number - 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ",".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)
