"""A virtual NanoPi R76S (Rockchip RK3576): which files its kernel shows, and how they act."""

from __future__ import annotations

import errno
import math

from boardbench.virtual.clocks import CpuPolicy, Devfreq
from boardbench.virtual.live import LiveBoard, Model
from boardbench.virtual.parts import (
    ZonePolicy,
    add_cpu_cooling,
    add_disk,
    add_empty_classes,
    add_identity,
    add_zone,
)
from boardbench.virtual.tree import Tree, refuse

KIND = "nanopi-r76s"
ZONES = ("soc-thermal", "bigcore-thermal", "little-core-thermal", "ddr-thermal", "npu-thermal", "gpu-thermal")
LITTLE_KHZ = (408000, 600000, 816000, 1008000, 1200000, 1416000, 1608000, 1800000, 2016000)
BIG_KHZ = (*LITTLE_KHZ, 2208000)
NPU_HZ = tuple(mega * 1_000_000 for mega in (300, 400, 500, 600, 700, 800, 900, 950))
GPU_HZ = tuple(mega * 1_000_000 for mega in (300, 400, 500, 600, 700, 800, 900))
_ZONE_POLICIES = ("power_allocator", "user_space", "step_wise")


def make_board(name: str, serial: str, model: Model, time_scale: float) -> LiveBoard:
    """The board at power-on."""
    return LiveBoard(
        name=name,
        kind=KIND,
        serial=serial[:16],
        model=model,
        time_scale=time_scale,
        policies=(
            CpuPolicy(0, (0, 1, 2, 3), LITTLE_KHZ, "cpufreq-dt", "ondemand", LITTLE_KHZ[0]),
            CpuPolicy(4, (4, 5, 6, 7), BIG_KHZ, "cpufreq-dt", "ondemand", BIG_KHZ[0]),
        ),
        npu=Devfreq(
            "27700000.npu",
            NPU_HZ,
            "rknpu_ondemand",
            ("rknpu_ondemand", "userspace", "powersave", "performance", "simple_ondemand"),
        ),
        gpu=Devfreq(
            "27800000.gpu", GPU_HZ, "simple_ondemand", ("userspace", "powersave", "performance", "simple_ondemand")
        ),
    )


def npu_hz(board: LiveBoard) -> int:
    """The NPU's clock now: the model's, within the bounds."""
    assert board.npu is not None
    return _device_hz(board.npu, board.model.npu_cur_hz)


def _device_hz(device: Devfreq, model_hz: int | None) -> int:
    if device.governor == "performance":
        return device.max_hz
    if device.governor == "powersave":
        return device.min_hz
    return device.clamp_hz(model_hz if model_hz is not None else device.min_hz)


def add_files(board: LiveBoard, tree: Tree) -> None:
    """All files that only this kind of board has."""
    assert board.npu is not None
    add_empty_classes(tree)
    for number, zone in enumerate(ZONES):
        add_zone(
            board, tree, number, zone, ZonePolicy("power_allocator" if number == 0 else "step_wise", _ZONE_POLICIES)
        )
    add_cpu_cooling(board, tree)
    board.npu.add_to(tree, "sys/class/devfreq/27700000.npu", lambda: npu_hz(board))
    board.gpu.add_to(tree, "sys/class/devfreq/27800000.gpu", lambda: _device_hz(board.gpu, board.model.gpu_cur_hz))
    tree.live("sys/class/devfreq/27700000.npu/load", lambda: f"{_percent(board.load.npu_activity)}@{npu_hz(board)}Hz")
    _add_supply(board, tree)
    _add_npu_debug(board, tree)
    add_identity(tree, "FriendlyElec NanoPi R76S", ("friendlyelec,nanopi-r76s", "rockchip,rk3576"), board.serial)
    add_disk(tree, "mmcblk2", 122142720)
    tree.line("etc/rom-version", "20260721", mode=0o644)


def _percent(activity: float) -> int:
    return round(activity * 100)


def _add_supply(board: LiveBoard, tree: Tree) -> None:
    at = "sys/class/power_supply/simple-vin"
    tree.line(f"{at}/type", "Mains")
    tree.line(f"{at}/online", 1)

    def microvolts() -> int:
        volts = board.model.input_volts
        if not math.isfinite(volts):
            raise refuse(errno.ENODATA)
        return round(volts * 1_000_000)

    tree.live(f"{at}/voltage_now", microvolts)


def _add_npu_debug(board: LiveBoard, tree: Tree) -> None:
    """The vendor driver's debugfs, for root only."""
    at = "sys/kernel/debug/rknpu"

    def load() -> str:
        busy = _percent(board.load.npu_activity)
        return f"NPU load:  Core0: {busy:2d}%, Core1: {busy:2d}%,"

    tree.line(f"{at}/version", "RKNPU driver: v0.9.8", mode=0o400)
    tree.live(f"{at}/load", load, mode=0o400)
    tree.live(f"{at}/freq", lambda: npu_hz(board), mode=0o400)
    tree.line(f"{at}/delayms", 3000, mode=0o400)
