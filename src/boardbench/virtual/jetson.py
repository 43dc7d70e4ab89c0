"""A virtual Jetson Orin Nano developer kit (JetPack 6.2, Super): which files its kernel shows, and how they act."""

from __future__ import annotations

import errno
import math
from collections.abc import Callable

from boardbench.virtual import jetson_text
from boardbench.virtual.clocks import CpuPolicy, Devfreq
from boardbench.virtual.jetson_fan import JetsonFan
from boardbench.virtual.live import LiveBoard, Model
from boardbench.virtual.parts import (
    Trip,
    ZonePolicy,
    add_cooling,
    add_cpu_cooling,
    add_disk,
    add_empty_classes,
    add_identity,
    add_zone,
    steps_below,
)
from boardbench.virtual.tree import Tree, refuse, whole_number

KIND = "jetson-orin-nano"
CPU_KHZ = tuple(range(115200, 1728000 + 1, 76800))
GPU_HZ = tuple(mega * 1_000_000 for mega in (306, 408, 510, 612, 714, 816, 918, 1020))
EMC_HZ = (204000000, 665600000, 2133000000, 3199000000)
_OFF_ZONES = {2: "cv0-thermal", 3: "cv1-thermal", 4: "cv2-thermal"}
_ON_ZONES = {
    0: "cpu-thermal",
    1: "gpu-thermal",
    5: "soc0-thermal",
    6: "soc1-thermal",
    7: "soc2-thermal",
}
_TRIPS = (Trip(99000, "passive"), Trip(104500, "critical"), Trip(70000, "passive", 8000))
_TJ_TRIPS = (*(Trip(temp, "active", 4000) for temp in (35000, 74000, 95000)), Trip(104500, "critical"))
_ALERTS = ("cpu", "gpu", "cv0", "cv1", "cv2", "soc0", "soc1", "soc2")
_ALERT_AT_CELSIUS = 99.0
# The stock fan daemon looks every 2 s; at a high time scale that would be most of this board's cost.
_FAN_LOOKS_EVERY_S = 3.0
_HOT_ON_CELSIUS, _HOT_OFF_CELSIUS = 70.0, 62.0


class _Jetson:
    """The state that only a Jetson has, beside its LiveBoard."""

    def __init__(self, board: LiveBoard) -> None:
        self.board = board
        self.fan = JetsonFan()
        self.hot_surface = False
        self.emc_cap_hz = EMC_HZ[-1]
        self.railgate = 1
        self.power_control = "auto"

    def junction_celsius(self) -> float:
        return self.board.model.zones_celsius["tj-thermal"]

    def after_step(self) -> None:
        junction = self.junction_celsius()
        self.fan.follow(junction)
        hot: int | None = getattr(self.board.model, "gpu_thermal_max_hz", None)
        self.board.gpu.thermal_max_hz = hot if hot is not None and hot < GPU_HZ[-1] else None
        # The alert has a hysteresis, so it depends on the way that the temperature came.
        self.hot_surface = junction >= (_HOT_OFF_CELSIUS if self.hot_surface else _HOT_ON_CELSIUS)

    def reset(self) -> None:
        self.fan.reset()
        self.emc_cap_hz, self.railgate, self.power_control = EMC_HZ[-1], 1, "auto"

    def gpu_hz(self) -> int:
        gpu = self.board.gpu
        if gpu.governor == "performance":
            return gpu.max_hz
        seen = self.board.model.gpu_cur_hz
        return gpu.clamp_hz(seen if seen is not None else gpu.min_hz)

    def emc_hz(self) -> int:
        load = self.board.load
        wanted = EMC_HZ[-1] if max(load.cpu_activity, load.gpu_activity) > 0.1 else EMC_HZ[0]
        return min(wanted, self.emc_cap_hz)

    def write_emc_cap(self, text: str) -> None:
        value = whole_number(text)
        self.emc_cap_hz = min(value, EMC_HZ[-1]) if value else EMC_HZ[-1]

    def write_railgate(self, text: str) -> None:
        if text not in ("0", "1"):
            raise refuse(errno.EINVAL)
        self.railgate = int(text)

    def write_power_control(self, text: str) -> None:
        if text not in ("on", "auto"):
            raise refuse(errno.EINVAL)
        self.power_control = text


def make_board(name: str, serial: str, model: Model, time_scale: float) -> LiveBoard:
    """The board at power-on, in mode MAXN_SUPER with the fan under the quiet curve."""
    governors = ("nvhost_podgov", "performance", "userspace", "simple_ondemand")
    return LiveBoard(
        name=name,
        kind=KIND,
        serial=f"142{int(serial[:12], 16) % 10**10:010d}",
        model=model,
        time_scale=time_scale,
        policies=(
            CpuPolicy(0, (0, 1, 2, 3), CPU_KHZ, "tegra194", "schedutil", 729600),
            CpuPolicy(4, (4, 5), CPU_KHZ, "tegra194", "schedutil", 729600),
        ),
        npu=None,
        gpu=Devfreq("17000000.gpu", GPU_HZ, "nvhost_podgov", governors),
    )


def add_files(board: LiveBoard, tree: Tree) -> None:
    """All files that only this kind of board has; also makes the fan's owner part of the board."""
    own = _Jetson(board)
    own.fan.follow(own.junction_celsius())
    board.after_step = own.after_step
    board.step_board_s = _FAN_LOOKS_EVERY_S
    board.fan_duty = lambda: own.fan.pwm / 255
    board.on_reset.append(own.reset)
    add_empty_classes(tree)
    _add_zones(own, tree)
    _add_cooling(own, tree)
    _add_gpu(own, tree)
    _add_hwmon(own, tree)
    _add_memory_clock(own, tree)
    add_identity(tree, jetson_text.MODEL, jetson_text.COMPATIBLE, board.serial)
    add_disk(tree, "nvme0n1", 976773168)
    tree.fixed("etc/nv_tegra_release", jetson_text.TEGRA_RELEASE, mode=0o644)
    tree.fixed("etc/nvpmodel.conf", jetson_text.NVPMODEL_CONF, mode=0o644)
    for program in ("tegrastats", "nvpmodel", "bpftrace"):
        tree.fixed(f"usr/local/bin/{program}", jetson_text.program(program), mode=0o755)


def _add_zones(own: _Jetson, tree: Tree) -> None:
    def powered_off() -> int:
        raise refuse(errno.EAGAIN)

    for number, zone in _ON_ZONES.items():
        add_zone(own.board, tree, number, zone, ZonePolicy("step_wise", own.fan.policy.available), _TRIPS)
    for number, zone in _OFF_ZONES.items():
        policy = ZonePolicy("step_wise", own.fan.policy.available)
        add_zone(own.board, tree, number, zone, policy, _TRIPS, read=powered_off)
    # The tj zone's policy also says who owns the fan.
    at = "sys/class/thermal/thermal_zone8"
    tree.live(f"{at}/policy", lambda: own.fan.policy.value, own.fan.write_policy)
    tree.line(f"{at}/type", "tj-thermal")
    tree.live(f"{at}/temp", lambda: own.board.zone_millicelsius("tj-thermal"))
    tree.line(f"{at}/mode", "enabled")
    tree.line(f"{at}/available_policies", " ".join(own.fan.policy.available))
    for index, trip in enumerate(_TJ_TRIPS):
        tree.line(f"{at}/trip_point_{index}_temp", trip.temp)
        tree.line(f"{at}/trip_point_{index}_hyst", trip.hysteresis)
        tree.line(f"{at}/trip_point_{index}_type", trip.kind)


def _add_cooling(own: _Jetson, tree: Tree) -> None:
    board = own.board
    number = add_cpu_cooling(board, tree)
    add_cooling(
        tree,
        number,
        "devfreq-17000000.gpu",
        len(GPU_HZ) - 1,
        lambda: steps_below(GPU_HZ, own.board.gpu.thermal_max_hz or GPU_HZ[-1]),
    )
    add_cooling(tree, number + 1, "pwm-fan", 3, lambda: own.fan.cooling_state if board.fan_connected else 0)
    add_cooling(tree, number + 2, "hot-surface-alert", 2, lambda: int(own.hot_surface))
    for offset, name in enumerate(_ALERTS):
        add_cooling(tree, number + 3 + offset, f"{name}-throttle-alert", 2, _alert(board, f"{name}-thermal"))


def _alert(board: LiveBoard, zone: str) -> Callable[[], int]:
    # A zone that is off has no value, and gives no alert.
    return lambda: int(board.model.zones_celsius.get(zone, 0.0) >= _ALERT_AT_CELSIUS)


def _add_gpu(own: _Jetson, tree: Tree) -> None:
    board = own.board
    at = "sys/class/devfreq/17000000.gpu"
    board.gpu.add_to(tree, at, own.gpu_hz)
    device = f"{at}/device"
    tree.fixed(f"{device}/of_node/name", b"gpu\0")
    tree.fixed(f"{device}/of_node/compatible", b"nvidia,ga10b\0")
    tree.live(f"{device}/load", lambda: min(990, round(board.load.gpu_activity * 1000)))
    tree.live(f"{device}/railgate_enable", lambda: own.railgate, own.write_railgate)
    tree.line(f"{device}/railgate_delay", 500)
    tree.live(f"{device}/is_railgated", lambda: "no")
    tree.live(f"{device}/power/control", lambda: own.power_control, own.write_power_control)
    tree.line(f"{device}/tpc_pg_mask", 240)
    tree.fixed(f"{device}/fbp_pg_mask", "2")
    # The kernel's paths, as links to the one copy: only /sys/class can be shown in every sandbox.
    tree.link(f"{device}/devfreq/17000000.gpu", "../..")
    tree.link(f"{device}/devfreq_dev", "..")
    tree.link("sys/devices/platform/bus@0/17000000.gpu", "../../../class/devfreq/17000000.gpu/device")
    tree.link("sys/devices/platform/17000000.gpu", "../../class/devfreq/17000000.gpu/device")
    tree.link("sys/devices/platform/gpu.0", "../../class/devfreq/17000000.gpu/device")


def _add_hwmon(own: _Jetson, tree: Tree) -> None:
    board = own.board
    tree.line("sys/class/hwmon/hwmon0/name", "pwmfan")
    tree.live("sys/class/hwmon/hwmon0/pwm1", lambda: own.fan.pwm if board.fan_connected else 0, own.fan.write_pwm)
    tree.line("sys/class/hwmon/hwmon2/name", "pwm_tach")
    tree.live("sys/class/hwmon/hwmon2/rpm", lambda: round(board.model.fan_rpm or 0.0))
    _add_power_rails(board, tree)
    tree.line("sys/class/hwmon/hwmon3/name", "soctherm_oc")
    for number in (1, 2, 3):
        tree.line(f"sys/class/hwmon/hwmon3/oc{number}_event_cnt", 0)
        tree.line(f"sys/class/hwmon/hwmon3/oc{number}_throt_en", 1)


def _add_power_rails(board: LiveBoard, tree: Tree) -> None:
    at = "sys/class/hwmon/hwmon1"
    tree.line(f"{at}/name", "ina3221")

    def reader(rail: str, which: int) -> Callable[[], int]:
        def read() -> int:
            value = board.model.rails[rail][which]
            if not math.isfinite(value):
                raise refuse(errno.ENODATA)
            return round(value * 1000)

        return read

    for number, rail in enumerate(jetson_text.RAILS, start=1):
        tree.line(f"{at}/in{number}_label", rail)
        tree.live(f"{at}/in{number}_input", reader(rail, 0))
        tree.live(f"{at}/curr{number}_input", reader(rail, 1))
        tree.line(f"{at}/curr{number}_max", 4984 if number == 1 else 32760, mode=0o644)
        tree.line(f"{at}/curr{number}_crit", 4984 if number == 1 else 32760, mode=0o644)
        tree.line(f"{at}/curr{number}_max_alarm", 0)
        tree.line(f"{at}/curr{number}_crit_alarm", 0)
    tree.line(f"{at}/in7_label", "sum of shunt voltages")
    tree.line(f"{at}/samples", 512)
    tree.line(f"{at}/update_interval", 430)


def _add_memory_clock(own: _Jetson, tree: Tree) -> None:
    tree.live("sys/kernel/nvpmodel_clk_cap/emc", lambda: own.emc_cap_hz, own.write_emc_cap)
    emc = "sys/kernel/debug/bpmp/debug/clk/emc"
    tree.line(f"{emc}/min_rate", EMC_HZ[0], mode=0o400)
    tree.line(f"{emc}/max_rate", EMC_HZ[-1], mode=0o400)
    tree.live(f"{emc}/rate", own.emc_hz, mode=0o400)
    tree.line(f"{emc}/mrq_rate_locked", 0, mode=0o400)
