#!/usr/bin/env python3
"""tegrastats of a virtual Jetson: one line of the board's own readings per interval, in the JetPack 6 format."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import sys
import time

SYS = os.environ.get("TEGRASTATS_SYS", "/sys")
PROC = os.environ.get("TEGRASTATS_PROC", "/proc")
LOADS = os.environ.get("TEGRASTATS_LOADS", "/run/boardbench-virtual/load")
GPU = SYS + "/class/devfreq/17000000.gpu"
EMC = SYS + "/kernel/debug/bpmp/debug/clk/emc"
PID_FILE = "/run/tegrastats.pid"
CORES = 6
# The order in which JetPack 6 prints the zones; the cv zones are off and left out.
ZONES = ("cpu", "soc2", "soc0", "gpu", "tj", "soc1")


def read(path: str) -> str | None:
    """The file's text, or None when it cannot be read now."""
    try:
        handle = os.open(path, os.O_RDONLY)
        try:
            return os.read(handle, 65536).decode("ascii", "replace").strip()
        finally:
            os.close(handle)
    except OSError:
        return None


def number(path: str) -> int | None:
    """The number in a file, or None."""
    try:
        return int(read(path) or "")
    except ValueError:
        return None


def names(folder: str) -> list[str]:
    """What is in a folder; nothing when there is none."""
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def memory_group() -> str:
    """RAM and SWAP in MB, as the kernel says."""
    seen: dict[str, int] = {}
    for line in (read(PROC + "/meminfo") or "").splitlines():
        words = line.split()
        if len(words) >= 2 and words[1].isdigit():
            seen[words[0].rstrip(":")] = int(words[1]) // 1024
    total, swap = seen.get("MemTotal", 0), seen.get("SwapTotal", 0)
    used, swapped = total - seen.get("MemAvailable", 0), swap - seen.get("SwapFree", 0)
    free_blocks = seen.get("MemFree", 0) // 8
    cached = seen.get("SwapCached", 0)
    return f"RAM {used}/{total}MB (lfb {free_blocks}x4MB) SWAP {swapped}/{swap}MB (cached {cached}MB)"


def busy_cores() -> float:
    """How many cores the payloads of this virtual board keep busy."""
    busy = 0.0
    for name in names(LOADS):
        if name.endswith(".json"):
            try:
                value = json.loads(read(os.path.join(LOADS, name)) or "{}")
                busy += float(value.get("cpu_threads", 0)) * float(value.get("cpu_activity", 0.0))
            except (ValueError, TypeError, AttributeError):
                continue
    return busy


def cpu_group() -> str:
    """Load and clock (MHz) of each core, or off."""
    busy, cores = busy_cores(), []
    on = [cpu for cpu in range(CORES) if number(f"{SYS}/devices/system/cpu/cpu{cpu}/online") != 0]
    percent = round(100 * min(1.0, busy / len(on))) if on else 0
    for cpu in range(CORES):
        khz = number(f"{SYS}/devices/system/cpu/cpu{cpu}/cpufreq/scaling_cur_freq")
        cores.append("off" if cpu not in on or khz is None else f"{percent}%@{khz // 1000}")
    return f"CPU [{','.join(cores)}]"


def engine_groups() -> list[str]:
    """Memory clock, GPU and the other engines. Without root there is no EMC_FREQ and no clock after GR3D_FREQ."""
    load = number(GPU + "/device/load")
    gpu = f"GR3D_FREQ {(load or 0) // 10}%"
    if os.geteuid() != 0:
        return [gpu]
    groups = []
    rate, hertz = number(EMC + "/rate"), number(GPU + "/cur_freq")
    if rate is not None:
        groups.append(f"EMC_FREQ {min(99, (load or 0) // 16)}%@{rate // 1000000}")
    groups.append(gpu if hertz is None else f"{gpu}@[{hertz // 1000000}]")
    return [*groups, "NVDEC off NVJPG off VIC off OFA off APE 200"]


def zone_groups() -> list[str]:
    """Temperature of each zone that has one."""
    base = SYS + "/class/thermal"
    found = {}
    for name in names(base):
        kind = read(f"{base}/{name}/type") if name.startswith("thermal_zone") else None
        value = number(f"{base}/{name}/temp") if kind else None
        if kind and value is not None:
            found[kind.replace("-thermal", "")] = f"{value / 1000:.3f}".rstrip("0").rstrip(".")
    return [f"{zone}@{found[zone]}C" for zone in ZONES if zone in found]


def rails() -> list[tuple[str, int]]:
    """Label and milliwatts of each rail of the power monitor."""
    base = SYS + "/class/hwmon"
    found = []
    for name in names(base):
        at = f"{base}/{name}"
        if read(at + "/name") != "ina3221":
            continue
        for index in (1, 2, 3):
            label = read(f"{at}/in{index}_label")
            millivolts, milliamperes = number(f"{at}/in{index}_input"), number(f"{at}/curr{index}_input")
            if label and millivolts is not None and milliamperes is not None:
                found.append((label, millivolts * milliamperes // 1000))
    return found


class Lines:
    """Makes the lines; the second number of a rail is its mean since the start."""

    def __init__(self) -> None:
        self.count = 0
        self.sums: dict[str, int] = {}

    def next(self) -> str:
        """One line of now."""
        self.count += 1
        groups = [datetime.datetime.now().strftime("%m-%d-%Y %H:%M:%S"), memory_group(), cpu_group()]
        groups += engine_groups() + zone_groups()
        for label, milliwatts in rails():
            self.sums[label] = self.sums.get(label, 0) + milliwatts
            groups.append(f"{label} {milliwatts}mW/{self.sums[label] // self.count}mW")
        return " ".join(groups)


def stop() -> int:
    """End the one that --start left; it need not run any more."""
    pid = number(PID_FILE)
    if pid is None:
        return 0
    with contextlib.suppress(OSError):
        with open(f"{PROC}/{pid}/cmdline", "rb") as file:
            ours = b"tegrastats" in file.read()
        if ours:
            os.kill(pid, 15)
    os.unlink(PID_FILE)
    return 0


def go_to_background() -> None:
    """Leave the terminal."""
    if os.fork():
        os._exit(0)
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    with open(PID_FILE, "w", encoding="ascii") as file:
        file.write(f"{os.getpid()}\n")


def run(interval_s: float) -> None:
    """Print lines for ever."""
    lines = Lines()
    due = time.monotonic()
    while True:
        print(lines.next(), flush=True)
        due += interval_s
        time.sleep(max(0.0, due - time.monotonic()))


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="tegrastats")
    parser.add_argument("--interval", type=int, default=1000, metavar="MS")
    parser.add_argument("--logfile", metavar="FILE")
    parser.add_argument("--start", action="store_true")
    parser.add_argument("--stop", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    if options.stop:
        return stop()
    if options.interval < 1:
        parser.error("--interval must be at least 1")
    log = os.open(options.logfile, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644) if options.logfile else None
    if options.start:
        go_to_background()
    if log is not None:
        os.dup2(log, 1)
    try:
        run(options.interval / 1000)
    except (KeyboardInterrupt, BrokenPipeError):
        # What is still in the buffer has no reader.
        os._exit(0)
    return 0


if __name__ == "__main__":
    sys.exit(main())
