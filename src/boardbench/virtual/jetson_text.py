"""The words of a virtual Jetson: identity, release, power modes, and the programs that come with it."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files

MODEL = "NVIDIA Jetson Orin Nano Engineering Reference Developer Kit Super"
COMPATIBLE = ("nvidia,p3768-0000+p3767-0005-super", "nvidia,p3767-0005", "nvidia,tegra234")
RAILS = ("VDD_IN", "VDD_CPU_GPU_CV", "VDD_SOC")
TEGRA_RELEASE = (
    "# R36 (release), REVISION: 4.4, GCID: 41062509, BOARD: generic, EABI: aarch64, "
    "DATE: Mon Jun 16 16:07:13 UTC 2025\n"
    "# KERNEL_VARIANT: oot\n"
    "TARGET_USERSPACE_LIB_DIR=nvidia\n"
    "TARGET_USERSPACE_LIB_DIR_PATH=usr/lib/aarch64-linux-gnu/nvidia\n"
)


@dataclass(frozen=True)
class PowerMode:
    """One nvpmodel mode; -1 means no cap."""

    number: int
    name: str
    cores: int
    cpu_max_khz: int
    gpu_max_hz: int
    emc_max_hz: int


POWER_MODES = (
    PowerMode(0, "15W", 6, 1497600, 612000000, 2133000000),
    PowerMode(1, "25W", 6, 1344000, 918000000, 3199000000),
    PowerMode(2, "MAXN_SUPER", 6, -1, -1, -1),
    PowerMode(3, "7W", 4, 960000, 408000000, 2133000000),
)

_HEAD = """\
< PARAM TYPE=FILE NAME=CPU_ONLINE >
{online}
< PARAM TYPE=FILE NAME=GPU_POWER_CONTROL_ENABLE >
GPU_PWR_CNTL_EN /sys/class/devfreq/17000000.gpu/device/power/control

< PARAM TYPE=FILE NAME=GPU_POWER_CONTROL_DISABLE >
GPU_PWR_CNTL_DIS /sys/class/devfreq/17000000.gpu/device/power/control

< PARAM TYPE=CLOCK NAME=CPU_A78_0 >
FREQ_TABLE /sys/devices/system/cpu/cpufreq/policy0/scaling_available_frequencies
MAX_FREQ /sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq
MIN_FREQ /sys/devices/system/cpu/cpufreq/policy0/scaling_min_freq

< PARAM TYPE=CLOCK NAME=CPU_A78_1 >
FREQ_TABLE /sys/devices/system/cpu/cpufreq/policy4/scaling_available_frequencies
MAX_FREQ /sys/devices/system/cpu/cpufreq/policy4/scaling_max_freq
MIN_FREQ /sys/devices/system/cpu/cpufreq/policy4/scaling_min_freq

< PARAM TYPE=CLOCK NAME=GPU >
FREQ_TABLE /sys/class/devfreq/17000000.gpu/available_frequencies
MAX_FREQ /sys/class/devfreq/17000000.gpu/max_freq
MIN_FREQ /sys/class/devfreq/17000000.gpu/min_freq

< PARAM TYPE=CLOCK NAME=EMC >
MAX_FREQ /sys/kernel/nvpmodel_clk_cap/emc

"""


def _mode_block(mode: PowerMode) -> str:
    lines = [f"< POWER_MODEL ID={mode.number} NAME={mode.name} >"]
    lines += [f"CPU_ONLINE CORE_{cpu} {int(cpu < mode.cores)}" for cpu in range(6)]
    lines.append("GPU_POWER_CONTROL_ENABLE GPU_PWR_CNTL_EN on")
    for cluster in ("CPU_A78_0", "CPU_A78_1"):
        lines += [f"{cluster} MIN_FREQ 729600", f"{cluster} MAX_FREQ {mode.cpu_max_khz}"]
    lines += ["GPU MIN_FREQ 0", f"GPU MAX_FREQ {mode.gpu_max_hz}"]
    lines.append("GPU_POWER_CONTROL_DISABLE GPU_PWR_CNTL_DIS auto")
    lines.append(f"EMC MAX_FREQ {mode.emc_max_hz}")
    return "\n".join(lines) + "\n\n"


def _conf() -> str:
    online = "".join(f"CORE_{cpu} /sys/devices/system/cpu/cpu{cpu}/online\n" for cpu in range(6))
    blocks = "".join(_mode_block(mode) for mode in POWER_MODES)
    return _HEAD.format(online=online) + blocks + "< PM_CONFIG DEFAULT=1 >\n"


NVPMODEL_CONF = _conf()


def program(name: str) -> str:
    """The text of a program that runs on the board: Python, standard library only."""
    return (files("boardbench.virtual") / "programs" / f"{name}.py").read_text(encoding="utf-8")
