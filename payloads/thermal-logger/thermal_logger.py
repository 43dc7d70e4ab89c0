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
import hashlib
import json
import os
import re
import select
import signal
import socket
import sys
import time

# An isolated interpreter (-I) does not look beside the script.
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import board_sensors
from board_sensors import Missing, find_columns, word

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


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
    """thermal.meta.json: where each column comes from, on which boot of which board, and by which program.

    The program's hash is over its two files, one after the other.
    """
    program = hashlib.sha256()
    for part in (__file__, board_sensors.__file__):
        with open(os.path.abspath(part), "rb") as file:
            program.update(file.read())
    meta = {
        "schema_version": 1,
        "boot_id": word("/proc/sys/kernel/random/boot_id") or None,
        "period_s": period_s,
        "columns": {column.name: column.source for column in columns},
        "started": stamp(),
        "program_sha256": program.hexdigest(),
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
