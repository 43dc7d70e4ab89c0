"""What the agent reports of its board. A value that cannot be read is None: missing, never 0."""

import glob
import os

ZONES = "/sys/class/thermal/thermal_zone*"
SOC_ZONE_TYPE = "soc-thermal"
BOOT_ID = "/proc/sys/kernel/random/boot_id"
INPUT_VOLTS = "/sys/class/power_supply/simple-vin/voltage_now"
NPU_LOAD = "/sys/kernel/debug/rknpu/load"


def read_text(path):
    """A small file's text without white space around it, None when it cannot be read."""
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return None


def read_number(path, divisor=1.0):
    """The number in a file over `divisor`, None when there is none."""
    try:
        return int(read_text(path) or "") / divisor
    except ValueError:
        return None


def find_soc_zone(root="/"):
    """The temperature file of the zone that the scheduler acts on, None on a board without one."""
    for zone in sorted(glob.glob(os.path.join(root, ZONES.lstrip("/")))):
        if read_text(os.path.join(zone, "type")) == SOC_ZONE_TYPE:
            return os.path.join(zone, "temp")
    return None


def memory_percent(path="/proc/meminfo"):
    """The share of memory that is not available, None when it cannot be read."""
    values = {}
    for line in (read_text(path) or "").splitlines():
        name, _, rest = line.partition(":")
        values[name] = rest.split()[0] if rest.split() else ""
    try:
        return 100.0 * (1.0 - int(values["MemAvailable"]) / int(values["MemTotal"]))
    except (KeyError, ValueError, ZeroDivisionError):
        return None


def memory_total_bytes(path="/proc/meminfo"):
    """The board's memory, 0 when it cannot be read (the wire knows no missing there)."""
    for line in (read_text(path) or "").splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    return 0


class CpuPercent:
    """How busy all cores were since the last reading."""

    def __init__(self, path="/proc/stat"):
        self._path = path
        self._before = self._read()

    def _read(self):
        line = (read_text(self._path) or "").splitlines()[:1]
        if not line or not line[0].startswith("cpu "):
            return None
        ticks = [int(part) for part in line[0].split()[1:9]]
        return sum(ticks), ticks[3] + ticks[4]

    def read(self):
        """In percent; None when it cannot be read or no time has passed."""
        before, self._before = self._before, self._read()
        if before is None or self._before is None or self._before[0] <= before[0]:
            return None
        total, idle = self._before[0] - before[0], self._before[1] - before[1]
        return 100.0 * (1.0 - idle / total)


def npu_percent(path=NPU_LOAD):
    """The mean load of the NPU's cores as its driver gives it (root only), None when it cannot be read."""
    text = read_text(path) or ""
    shares = [int(part.strip()) for part in text.replace("%", " % ").replace(",", " ").split() if part.isdigit()]
    return sum(shares) / len(shares) if shares else None
