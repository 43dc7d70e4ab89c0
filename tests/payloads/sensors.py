"""Sensor trees for the payload tests, in the shape of the kernel's sysfs, and ways to run a payload."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOGGER = ROOT / "payloads/thermal-logger/thermal_logger.py"
BURN = ROOT / "payloads/burn/burn.py"


def plant(root: Path, files: Mapping[str, object]) -> Path:
    """Writes files, each with a line end as the kernel does."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{content}\n")
    return root


def rk3576(root: Path, zones: tuple[str, ...] = ("soc-thermal", "bigcore-thermal", "npu-thermal")) -> Path:
    """A board with two CPU policies, NPU, GPU and a supply that tells its voltage."""
    files: dict[str, object] = {}
    for number, zone in enumerate(zones):
        files[f"class/thermal/thermal_zone{number}/type"] = zone
        files[f"class/thermal/thermal_zone{number}/temp"] = 40000 + 1000 * number
    for policy, cur, top in (("policy0", 1008000, 2016000), ("policy4", 1200000, 2208000)):
        files[f"devices/system/cpu/cpufreq/{policy}/scaling_cur_freq"] = cur
        files[f"devices/system/cpu/cpufreq/{policy}/scaling_max_freq"] = top
    files["class/devfreq/27700000.npu/cur_freq"] = 950000000
    files["class/devfreq/27800000.gpu/cur_freq"] = 300000000
    files["class/devfreq/dmc/cur_freq"] = 2112000000
    files["class/power_supply/simple-vin/type"] = "Mains"
    files["class/power_supply/simple-vin/voltage_now"] = 5046500
    return plant(root, files)


def orin(root: Path) -> Path:
    """A board with rails, a fan whose speed another device counts, and a GPU that only its node names."""
    return plant(
        root,
        {
            "class/thermal/thermal_zone0/type": "tj-thermal",
            "class/thermal/thermal_zone0/temp": 51250,
            "devices/system/cpu/cpufreq/policy0/scaling_cur_freq": 1510400,
            "devices/system/cpu/cpufreq/policy0/scaling_max_freq": 1510400,
            "class/devfreq/17000000.gpu/cur_freq": 612000000,
            "class/devfreq/17000000.gpu/device/of_node/name": "ga10b\0",
            "class/hwmon/hwmon0/name": "pwmfan",
            "class/hwmon/hwmon0/pwm1": 77,
            "class/hwmon/hwmon1/name": "ina3221",
            "class/hwmon/hwmon1/in1_label": "VDD_IN",
            "class/hwmon/hwmon1/in1_input": 5040,
            "class/hwmon/hwmon1/curr1_input": 1500,
            "class/hwmon/hwmon1/in2_label": "VDD_CPU_GPU_CV",
            "class/hwmon/hwmon1/in2_input": 5032,
            "class/hwmon/hwmon1/curr2_input": 400,
            "class/hwmon/hwmon1/in7_label": "sum of shunt voltages",
            "class/hwmon/hwmon2/name": "pwm_tach",
            "class/hwmon/hwmon2/rpm": 1720,
        },
    )


def start(script: Path, *arguments: object, command_prefix: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    """Runs a payload as a board does: the plain interpreter, isolated."""
    return subprocess.Popen(
        [*command_prefix, sys.executable, "-IS", str(script), *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def until(condition: Callable[[], bool], timeout_s: float = 10.0) -> None:
    """Waits for a condition, and fails when it does not come true."""
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


def whole_lines(path: Path) -> list[str]:
    """The lines that are complete by now."""
    return path.read_text().split("\n")[:-1] if path.exists() else []


def running(pid: int) -> bool:
    """Whether the process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def children(parent: int) -> list[int]:
    """The pids of the direct children."""
    return [int(pid) for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]
