"""The clock files of a board: cpufreq policies and devfreq devices, with the kernel's write rules.

The bound that reads back is the effective one. A devfreq bound is a PM-QoS *request*: any number is taken, and a
minimum above the maximum reads back as the maximum. A cpufreq minimum above the maximum is refused, as the kernels do
that check the pair; newer ones clamp it like devfreq. The strict rule is the one to test against: who writes in the
wrong order is told at once.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass, field

from boardbench.virtual.tree import Tree, one_of, refuse, whole_number

CPU_GOVERNORS = ("conservative", "ondemand", "userspace", "powersave", "performance", "schedutil")
_NO_LIMIT_KHZ = 2**31 - 1


@dataclass
class CpuPolicy:
    """One cpufreq policy: what the user asked for, and the bounds that follow. All clocks in kHz."""

    number: int
    cpus: tuple[int, ...]
    ladder_khz: tuple[int, ...]
    driver: str
    default_governor: str
    default_min_khz: int
    governors: tuple[str, ...] = CPU_GOVERNORS
    governor: str = field(init=False)
    asked_min_khz: int = field(init=False)
    asked_max_khz: int = field(init=False)

    def __post_init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Back to what a boot gives."""
        self.governor = self.default_governor
        self.asked_min_khz = self.default_min_khz
        self.asked_max_khz = _NO_LIMIT_KHZ

    @property
    def name(self) -> str:
        """The name of its folder."""
        return f"policy{self.number}"

    @property
    def user_max_khz(self) -> int:
        """The user's bound alone, as a point of the ladder (the highest one not above it)."""
        fitting = [khz for khz in self.ladder_khz if khz <= self.asked_max_khz]
        return fitting[-1] if fitting else self.ladder_khz[0]

    def max_khz(self, thermal_max_khz: int) -> int:
        """The effective bound: the user's, or the thermal one when that is lower."""
        return max(self.ladder_khz[0], min(self.user_max_khz, thermal_max_khz))

    def min_khz(self, thermal_max_khz: int) -> int:
        """The effective lower bound: a point of the ladder, never above the upper bound."""
        fitting = [khz for khz in self.ladder_khz if khz >= self.asked_min_khz]
        return min(fitting[0] if fitting else self.ladder_khz[-1], self.max_khz(thermal_max_khz))

    def add_to(self, tree: Tree, thermal_max_khz: Callable[[], int], cur_khz: Callable[[], int]) -> None:
        """Put the policy's folder into the tree."""
        at = f"sys/devices/system/cpu/cpufreq/{self.name}"
        cpus = " ".join(map(str, self.cpus))
        tree.line(f"{at}/related_cpus", cpus)
        tree.line(f"{at}/affected_cpus", cpus)
        tree.line(f"{at}/scaling_driver", self.driver)
        tree.line(f"{at}/cpuinfo_min_freq", self.ladder_khz[0])
        tree.line(f"{at}/cpuinfo_max_freq", self.ladder_khz[-1])
        tree.line(f"{at}/cpuinfo_transition_latency", 40000)
        tree.line(f"{at}/scaling_available_frequencies", " ".join(map(str, self.ladder_khz)) + " ")
        tree.line(f"{at}/scaling_available_governors", " ".join(self.governors) + " ")
        tree.live(f"{at}/scaling_governor", lambda: self.governor, self._write_governor)
        tree.live(f"{at}/scaling_min_freq", lambda: self.min_khz(thermal_max_khz()), self._write_min)
        tree.live(f"{at}/scaling_max_freq", lambda: self.max_khz(thermal_max_khz()), self._write_max)
        tree.live(f"{at}/scaling_cur_freq", cur_khz)
        tree.live(f"{at}/cpuinfo_cur_freq", cur_khz, mode=0o400)
        tree.line(f"{at}/scaling_setspeed", "<unsupported>")
        for cpu in self.cpus:
            tree.link(f"sys/devices/system/cpu/cpu{cpu}/cpufreq", f"../cpufreq/policy{self.number}")

    def _write_governor(self, text: str) -> None:
        self.governor = one_of(text, self.governors)

    def _write_min(self, text: str) -> None:
        asked = _khz(text)
        if asked > self.user_max_khz:
            raise refuse(errno.EINVAL)
        self.asked_min_khz = asked

    def _write_max(self, text: str) -> None:
        asked = _khz(text)
        if max(asked, self.ladder_khz[0]) < self.asked_min_khz:
            raise refuse(errno.EINVAL)
        self.asked_max_khz = asked


def _khz(text: str) -> int:
    value = whole_number(text)
    if value > _NO_LIMIT_KHZ:
        raise refuse(errno.EINVAL)
    return value


@dataclass
class Devfreq:
    """One devfreq device. All clocks in Hz; the kernel keeps requests in kHz (min rounded down, max rounded up)."""

    name: str
    table_hz: tuple[int, ...]
    default_governor: str
    governors: tuple[str, ...]
    governor: str = field(init=False)
    asked_min_khz: int = field(init=False, default=0)
    asked_max_khz: int = field(init=False, default=0)
    table_end_hz: int | None = field(init=False, default=None)
    thermal_max_hz: int | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Back to what a boot gives."""
        self.governor = self.default_governor
        self.asked_min_khz = 0
        self.asked_max_khz = 0

    @property
    def available_hz(self) -> tuple[int, ...]:
        """The table; cut at `table_end_hz` (which then is its last point) by the short-table fault."""
        end = self.table_end_hz
        if end is None:
            return self.table_hz
        return (*(hz for hz in self.table_hz if hz < end), end)

    @property
    def max_hz(self) -> int:
        """The effective upper bound; 0 asked means none, and neither the table's end nor heat lets it go higher."""
        top = self.available_hz[-1]
        if self.thermal_max_hz is not None:
            top = max(self.available_hz[0], min(top, self.thermal_max_hz))
        return min(top, self.asked_max_khz * 1000) if self.asked_max_khz else top

    @property
    def min_hz(self) -> int:
        """The effective lower bound: never below the table, and `max_hz` when it would be above that."""
        return min(max(self.available_hz[0], self.asked_min_khz * 1000), self.max_hz)

    def clamp_hz(self, hz: int) -> int:
        """A clock as the driver would set it within the bounds now: the highest table point not above."""
        inside = min(max(hz, self.min_hz), self.max_hz)
        fitting = [point for point in self.available_hz if point <= inside]
        return fitting[-1] if fitting else self.available_hz[0]

    def add_to(self, tree: Tree, at: str, cur_hz: Callable[[], int]) -> None:
        """Put the device's devfreq files into the folder `at`."""
        tree.line(f"{at}/name", self.name)
        tree.live(f"{at}/available_frequencies", lambda: " ".join(map(str, self.available_hz)))
        tree.line(f"{at}/available_governors", " ".join(self.governors))
        tree.live(f"{at}/governor", lambda: self.governor, self._write_governor)
        tree.live(f"{at}/min_freq", lambda: self.min_hz, self._write_min)
        tree.live(f"{at}/max_freq", lambda: self.max_hz, self._write_max)
        tree.live(f"{at}/cur_freq", cur_hz)
        tree.live(f"{at}/target_freq", cur_hz)
        tree.line(f"{at}/polling_interval", 50)

    def _write_governor(self, text: str) -> None:
        self.governor = one_of(text, self.governors)

    def _write_min(self, text: str) -> None:
        self.asked_min_khz = min(whole_number(text) // 1000, _NO_LIMIT_KHZ)

    def _write_max(self, text: str) -> None:
        self.asked_max_khz = min(-(-whole_number(text) // 1000), _NO_LIMIT_KHZ)
