#!/usr/bin/env python3
"""Writes what the board's sensors say, once a period, until it is told to stop.

    thermal_logger.py --out DIR --period-s 1.0 [--sys /sys]

makes DIR/thermal.csv (a row a sample) and DIR/thermal.meta.json (what the columns are). SIGTERM or SIGINT writes a
last row and ends with 0; a row that cannot be written (disk full) ends with 1 and a reason on standard error.

Sensors are found once at the start, by type and by name, never by number: numbers move between boots. A reading that
fails is an empty field and a reason in the last column, never 0. Samples lie on monotonic deadlines, so neither the
time that reading takes nor a jump of the wall clock moves them; a deadline that was missed is skipped, and the next
row's `lateness_s` and the gap in `monotonic_s` show it. Python >= 3.8, standard library only.
"""

import argparse
import errno
import hashlib
import json
import os
import re
import select
import signal
import socket
import sys
import time

GPU_NODES = ("gv11b", "gp10b", "ga10b", "gb10b", "gpu", "mali")
NPU_NODES = ("npu", "rknpu")
SHUNT_SUM = "sum of shunt voltages"  # an ina3221 channel that is no rail
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
# What no chip can have is how some drivers say "switched off".
COLDEST_CELSIUS, HOTTEST_CELSIUS = -60.0, 200.0


class Missing(Exception):
    """There is no value; the text says why, without `;` and line ends."""


class Source:
    """A number in a file of the kernel.

    The file stays open and is read again at 0, which is how sysfs gives a fresh value for one system call. A file
    whose size is that of its content is no such file (it may be replaced by another one), nor is one that cannot be
    read at an offset: those are opened for each reading.
    """

    def __init__(self, path):
        self.path = path
        self._fd = -1

    def text(self):
        """The text now, without white space around it; raises Missing."""
        try:
            raw = self._again() if self._fd >= 0 else self._first()
        except OSError as error:
            self._close()
            name = errno.errorcode.get(error.errno, f"errno {error.errno}")
            raise Missing(f"{error.strerror.lower()} ({name})") from None
        text = raw.decode("utf-8", "replace").strip()
        if not text:
            raise Missing("empty")
        return text

    def number(self):
        """The number now; raises Missing."""
        text = self.text()
        try:
            return int(text, 10)
        except ValueError:
            raise Missing("not a number: {}".format(re.sub(r"[^ -:<-~]", "?", text[:40]))) from None

    def _first(self):
        fd = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            raw = os.read(fd, 4096)
            if os.fstat(fd).st_size != len(raw):
                try:
                    os.pread(fd, 1, 0)
                except OSError:
                    return raw
                self._fd, fd = fd, -1
            return raw
        finally:
            if fd >= 0:
                os.close(fd)

    def _again(self):
        return os.pread(self._fd, 4096, 0)

    def _close(self):
        # A driver that was unbound or reset gives a new file: the next reading opens it.
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class Column:
    """A column of the table: its name, the files that it is read from, and how."""

    def __init__(self, name, paths, read):
        self.name = name
        self.source = " ".join(paths)
        self.read = read


def entries(folder):
    """The names in a folder, zone2 before zone10; none when there is no such folder."""

    def natural(name):
        return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]

    try:
        return sorted(os.listdir(folder), key=natural)
    except OSError:
        return []


def word(path):
    """The text of a file that only names something, or an empty text."""
    try:
        return Source(path).text()
    except Missing:
        return ""


def column_word(text):
    """A name from the kernel as it may stand in a column's name."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", text).lstrip("_.-") or "unknown"


def numbered(names):
    """Unique names: the second `x` becomes `x_2`."""
    seen = {}
    unique = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        unique.append(name if seen[name] == 1 else f"{name}_{seen[name]}")
    return unique


def thermal_columns(sys_root):
    """Every thermal zone; one bad zone costs only its own field."""
    base = os.path.join(sys_root, "class/thermal")
    zones = [os.path.join(base, name) for name in entries(base) if re.match(r"thermal_zone\d+\Z", name)]
    names = numbered([column_word(word(os.path.join(zone, "type"))) for zone in zones])
    return [_zone(name, zone) for name, zone in zip(names, zones)]


def _zone(name, zone):
    path = os.path.join(zone, "temp")
    source, mode = Source(path), Source(os.path.join(zone, "mode"))

    def disabled():
        try:
            return mode.text() == "disabled"
        except Missing:
            return False  # not every kernel has this file

    def read():
        if disabled():
            raise Missing("zone disabled")
        celsius = source.number() / 1000
        if not COLDEST_CELSIUS <= celsius <= HOTTEST_CELSIUS:
            raise Missing(f"sensor off or not a temperature: {celsius:g}")
        return celsius

    return Column(name + "_celsius", [path], read)


def clock_columns(sys_root):
    """The clocks now of all CPU policies and of the NPU and GPU, and the bound that the kernel puts on the CPU now."""
    found = []
    base = os.path.join(sys_root, "devices/system/cpu/cpufreq")
    for policy in entries(base):
        if policy.startswith("policy"):
            for short, file in (("cur", "scaling_cur_freq"), ("max", "scaling_max_freq")):
                path = os.path.join(base, policy, file)
                found.append(Column(f"{policy}_{short}_khz", [path], Source(path).number))
    base = os.path.join(sys_root, "class/devfreq")
    devices = [(devfreq_kind(os.path.join(base, name), name), name) for name in entries(base)]
    devices = [(kind, name) for kind, name in devices if kind]
    for kind, (_, name) in zip(numbered([kind for kind, _ in devices]), devices):
        path = os.path.join(base, name, "cur_freq")
        found.append(Column(kind + "_cur_hz", [path], Source(path).number))
    return found


def devfreq_kind(folder, name):
    """`gpu` or `npu`, by the device tree node's name or else the device's own; None for another device."""
    for text in (word(os.path.join(folder, "device/of_node/name")).strip("\0"), name):
        tail = text.lower().partition("@")[0].rpartition(".")[2]
        for kind, nodes in (("npu", NPU_NODES), ("gpu", GPU_NODES)):
            if any(tail == node or tail.startswith(node + "-") for node in nodes):
                return kind
    return None


def hwmons(sys_root):
    """(folder, name) of every hwmon."""
    base = os.path.join(sys_root, "class/hwmon")
    return [(os.path.join(base, entry), word(os.path.join(base, entry, "name"))) for entry in entries(base)]


def rail_columns(sys_root):
    """(label, volts file, amperes file) of every rail of an ina3221."""
    rails = []
    for folder, name in hwmons(sys_root):
        for channel in range(1, 8) if name == "ina3221" else ():
            label = word(os.path.join(folder, f"in{channel}_label"))
            volts = os.path.join(folder, f"in{channel}_input")
            amperes = os.path.join(folder, f"curr{channel}_input")
            if label and label != SHUNT_SUM and os.path.exists(amperes):
                rails.append((column_word(label), volts, amperes))
    return rails


def _watts(label, volts_path, amperes_path):
    volts, amperes = Source(volts_path), Source(amperes_path)
    # Millivolts times milliamperes.
    return Column(label + "_watts", [volts_path, amperes_path], lambda: volts.number() * amperes.number() / 1e6)


def power_columns(sys_root):
    """The input voltage, and the watts of every rail."""
    rails = rail_columns(sys_root)
    base = os.path.join(sys_root, "class/power_supply")
    supplies = sorted(entries(base), key=lambda name: (name != "simple-vin", name))
    paths = [
        (os.path.join(base, name, "voltage_now"), 1e6)
        for name in supplies
        if word(os.path.join(base, name, "type")) != "Battery"
    ]
    # A Jetson has no such supply, but a rail that is its input.
    paths += [(volts, 1e3) for label, volts, _ in rails if label == "VDD_IN"]
    labels = numbered([label for label, _, _ in rails])
    return [
        _first_that_exists("input_volts", paths, "no sensor for the input voltage"),
        *(_watts(label, volts, amperes) for label, (_, volts, amperes) in zip(labels, rails)),
    ]


def fan_columns(sys_root):
    """What the fan is told, and how fast it turns: often two different devices."""
    folders = [folder for folder, _ in hwmons(sys_root)]
    turns = [os.path.join(folder, file) for folder in folders for file in ("fan1_input", "rpm")]
    levels = [os.path.join(folder, "pwm1") for folder in folders]
    return [
        _first_that_exists("fan_pwm", [(path, 1) for path in levels], "no fan control"),
        _first_that_exists("fan_rpm", [(path, 1) for path in turns], "no tachometer"),
    ]


def _first_that_exists(name, paths, why_not):
    for path, divisor in paths:
        if os.path.exists(path):
            return Column(name, [path], _scaled(Source(path), divisor))

    def read():
        raise Missing(why_not)

    return Column(name, [], read)


def _scaled(source, divisor):
    return source.number if divisor == 1 else lambda: round(source.number() / divisor, 6)


def find_columns(sys_root):
    """All columns of this board, in the order of the table."""
    return [
        *thermal_columns(sys_root),
        *clock_columns(sys_root),
        *power_columns(sys_root),
        *fan_columns(sys_root),
    ]


def stamp():
    """Now, by three clocks."""
    return {
        "wall_unix_s": round(time.time(), 6),
        "monotonic_s": round(time.monotonic(), 6),
        "boottime_s": round(time.clock_gettime(time.CLOCK_BOOTTIME), 6),
    }


def field(text):
    """A field of the table as RFC 4180 wants it."""
    return '"{}"'.format(text.replace('"', '""')) if re.search(r'[",\n\r]', text) else text


def row(columns, due):
    """One line of the table: the clocks, every reading, and why some are missing."""
    now = stamp()
    fields = [f"{now[name]:.6f}" for name in ("wall_unix_s", "monotonic_s", "boottime_s")]
    fields.append("{:.6f}".format(max(0.0, now["monotonic_s"] - due)))
    missing = []
    for column in columns:
        try:
            value = column.read()
            fields.append(str(value) if isinstance(value, int) else f"{value:.6f}".rstrip("0").rstrip("."))
        except Missing as error:
            fields.append("")
            missing.append(f"{column.name}={error}")
    fields.append(field(";".join(missing)))
    return (",".join(fields) + "\n").encode()


class Table:
    """The growing file. A row is there as a whole or not at all."""

    def __init__(self, path):
        self.path = path
        # A log is never written over: the folder belongs to one run.
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        self._size = 0

    def append(self, line):
        """Adds a line; OSError when it does not fit, and then the file ends with the last whole line."""
        written = 0
        try:
            while written < len(line):
                written += os.write(self._fd, line[written:])
        except OSError:
            os.ftruncate(self._fd, self._size)
            raise
        self._size += written

    def close(self):
        """Brings all rows to the disk."""
        os.fsync(self._fd)
        os.close(self._fd)


def virtual_status(folder):
    """What a virtual board says about itself, or None on a real one."""
    if not os.path.isdir(folder):
        return None
    try:
        with open(os.path.join(folder, "status.json"), encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        return {}


def write_meta(path, columns, period_s, virtual):
    """thermal.meta.json: where each column comes from, on which boot of which board, and by which program."""
    with open(os.path.abspath(__file__), "rb") as file:
        program = hashlib.sha256(file.read()).hexdigest()
    meta = {
        "schema_version": 1,
        "boot_id": word("/proc/sys/kernel/random/boot_id") or None,
        "period_s": period_s,
        "columns": {column.name: column.source for column in columns},
        "started": stamp(),
        "program_sha256": program,
        "hostname": socket.gethostname(),
        "virtual": virtual is not None,
    }
    if virtual and isinstance(virtual.get("time_scale"), (int, float)):
        meta["time_scale"] = virtual["time_scale"]
    partial = path + ".partial"
    with open(partial, "w", encoding="utf-8") as file:
        json.dump(meta, file, sort_keys=True, indent=1)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    os.rename(partial, path)


class Stop:
    """The signals that end the program, as something to wait for: none is lost, whenever it comes.

    Not `signal.sigtimedwait`: when it is interrupted after its time (the process was stopped and continued) Python
    returns it as if a signal had come.
    """

    def __init__(self):
        self._read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        for number in STOP_SIGNALS:
            signal.signal(number, lambda *_: None)

    def wait(self, seconds):
        """The name of the signal that came within the time, or None."""
        if not select.select([self._read], [], [], max(0.0, seconds))[0]:
            return None
        return signal.Signals(os.read(self._read, 1)[0]).name


def be_punctual():
    """Runs before the load that is measured, where that is allowed: it needs far less than a hundredth of a core."""
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except OSError:
        try:
            os.setpriority(os.PRIO_PROCESS, 0, -10)
        except OSError:
            pass  # then `lateness_s` tells what that costs


def sample_until_stopped(table, columns, period_s, stop):
    """A row a period; ends with a last row when a stop signal comes. Returns the number of skipped deadlines."""
    first = time.monotonic()
    number = skipped = 0
    while True:
        due = first + number * period_s
        if stop.wait(due - time.monotonic()):
            table.append(row(columns, time.monotonic()))
            return skipped
        table.append(row(columns, due))
        late = int((time.monotonic() - due) / period_s)
        skipped += late
        number += late + 1


def parse(arguments):
    """The command line."""
    parser = argparse.ArgumentParser(description="Logs temperatures, clocks, power and fan of a board.")
    parser.add_argument("--out", required=True, help="folder for thermal.csv and thermal.meta.json")
    parser.add_argument("--period-s", type=float, default=1.0, help="seconds between rows, at least 0.01")
    parser.add_argument("--sys", default="/sys", help="where the kernel's sysfs is")
    parser.add_argument("--virtual-dir", default="/run/boardbench-virtual", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if not 0.01 <= options.period_s <= 3600:
        parser.error("--period-s must be from 0.01 to 3600")
    return options


def main(arguments=None):
    """The program; returns its exit code."""
    options = parse(arguments)
    stop = Stop()
    be_punctual()
    try:
        os.makedirs(options.out, exist_ok=True)
        columns = find_columns(options.sys)
        table = Table(os.path.join(options.out, "thermal.csv"))
        names = ["wall_unix_s", "monotonic_s", "boottime_s", "lateness_s"]
        table.append((",".join([*names, *(column.name for column in columns), "missing"]) + "\n").encode())
        virtual = virtual_status(options.virtual_dir)
        write_meta(os.path.join(options.out, "thermal.meta.json"), columns, options.period_s, virtual)
        skipped = sample_until_stopped(table, columns, options.period_s, stop)
        table.close()
    except OSError as error:
        print(f"thermal_logger: cannot write in {options.out}: {error.strerror}", file=sys.stderr)
        return 1
    if skipped:
        print(f"thermal_logger: {skipped} samples were skipped because the board was too busy", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
