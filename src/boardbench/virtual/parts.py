"""Parts of the tree that all kinds of boards share: thermal zones, cooling devices, identity, `proc/sys/vm`."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass

from boardbench.virtual.clocks import CpuPolicy
from boardbench.virtual.live import LiveBoard, thermal_cap
from boardbench.virtual.tree import File, Tree, one_of, refuse, whole_number

# systemd and usual tools look into these; the real ones of the host must not show through.
_EMPTY_CLASSES = ("block", "drm", "hwmon", "input", "leds", "mem", "misc", "net", "power_supply", "tty")


def add_empty_classes(tree: Tree) -> None:
    """The class folders that a booting system expects, empty where the board has no such device."""
    for name in (*_EMPTY_CLASSES, "devfreq", "thermal"):
        tree.directory(f"sys/class/{name}")


@dataclass(frozen=True)
class Trip:
    """A trip point; temperatures in millidegrees Celsius."""

    temp: int
    kind: str
    hysteresis: int = 0


class ZonePolicy:
    """The thermal governor of one zone, as its `policy` file shows it."""

    def __init__(self, default: str, available: tuple[str, ...]) -> None:
        self.default = default
        self.available = available
        self.value = default

    def write(self, text: str) -> None:
        """Take one of the available governors; else EINVAL."""
        self.value = one_of(text, self.available)

    def reset(self) -> None:
        """Back to the default."""
        self.value = self.default


def add_zone(
    board: LiveBoard,
    tree: Tree,
    number: int,
    zone: str,
    policy: ZonePolicy,
    trips: tuple[Trip, ...] = (),
    read: Callable[[], int] | None = None,
) -> None:
    """One thermal zone; `read` overrides where its millidegrees come from."""
    at = f"sys/class/thermal/thermal_zone{number}"
    tree.line(f"{at}/type", zone)
    tree.live(f"{at}/temp", read or (lambda: board.zone_millicelsius(zone)))
    tree.line(f"{at}/mode", "enabled")
    tree.live(f"{at}/policy", lambda: policy.value, policy.write)
    tree.line(f"{at}/available_policies", " ".join(policy.available))
    for index, trip in enumerate(trips):
        tree.line(f"{at}/trip_point_{index}_temp", trip.temp)
        tree.line(f"{at}/trip_point_{index}_hyst", trip.hysteresis)
        tree.line(f"{at}/trip_point_{index}_type", trip.kind)
    board.on_reset.append(policy.reset)


def add_cooling(tree: Tree, number: int, kind: str, max_state: int, state: Callable[[], int]) -> None:
    """One cooling device."""
    at = f"sys/class/thermal/cooling_device{number}"
    tree.line(f"{at}/type", kind)
    tree.line(f"{at}/max_state", max_state)
    tree.live(f"{at}/cur_state", state)


def steps_below(ladder: tuple[int, ...], bound: int) -> int:
    """How many points of a ladder lie above the bound: the state of a clock's cooling device."""
    return sum(1 for point in ladder if point > bound)


def add_cpu_cooling(board: LiveBoard, tree: Tree) -> int:
    """The cooling device of each CPU policy; returns the number of the next device."""

    def reader(policy: CpuPolicy) -> Callable[[], int]:
        cap = thermal_cap(board, policy)
        return lambda: steps_below(policy.ladder_khz, cap())

    for number, policy in enumerate(board.policies):
        add_cooling(tree, number, f"cpufreq-cpu{policy.number}", len(policy.ladder_khz) - 1, reader(policy))
    return len(board.policies)


def add_identity(tree: Tree, model: str, compatible: tuple[str, ...], serial: str) -> None:
    """The device tree's words: NUL at the end of each, no newline."""
    at = "sys/firmware/devicetree/base"
    tree.fixed(f"{at}/model", model.encode() + b"\0")
    tree.fixed(f"{at}/compatible", b"".join(name.encode() + b"\0" for name in compatible))
    tree.fixed(f"{at}/serial-number", serial.encode() + b"\0")


def add_vm(board: LiveBoard, tree: Tree, drop: Callable[[int], None]) -> None:
    """`proc/sys/vm`: `drop` is called with 1, 2 or 3 and returns when the board's page cache is dropped."""
    last = {"value": 0}

    def check_mount() -> None:
        if board.faults.drop_caches == "read-only":
            raise refuse(errno.EROFS)

    def write(text: str) -> None:
        check_mount()
        value = whole_number(text)
        if not 1 <= value <= 4:
            raise refuse(errno.EINVAL)
        last["value"] = value
        if value & 3:
            drop(value)

    def write_swappiness(text: str) -> None:
        value = whole_number(text)
        if value > 200:
            raise refuse(errno.EINVAL)
        board.swappiness = value

    # Mode 0200, as kernels have it since 5.x: even root cannot read it.
    tree.add("proc/sys/vm/drop_caches", File(0o200, None, write, slow=True, open_for_write=check_mount))
    tree.live("proc/sys/vm/swappiness", lambda: board.swappiness, write_swappiness)


def add_disk(tree: Tree, name: str, sectors: int) -> None:
    """A disk of `sectors` of 512 bytes.

    Without `stat`: a virtual board has no device of its own whose work could be counted, and counters that stand still
    would say that nothing was read or written. To whoever reads them they are missing.
    """
    at = f"sys/block/{name}"
    tree.line(f"{at}/size", sectors)
    tree.line(f"{at}/queue/logical_block_size", 512)
    tree.line(f"{at}/queue/read_ahead_kb", 128)
    tree.line(f"{at}/queue/scheduler", "[none] mq-deadline kyber")
    tree.link(f"sys/class/block/{name}", f"../../block/{name}")
