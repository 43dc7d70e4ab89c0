#!/usr/bin/env python3
"""Loads cores with fixed pieces of work and counts them.

    burn.py --out DIR --threads all|N --interval-s 1.0 --duration-s 60 [--run-s 10 --gap-s 2]

One operation is the SHA-256 of a fixed buffer of 512 KiB, of the order of a millisecond, so that Python's own time
does not matter. Each "thread" is a process: Python's threads do not load cores. DIR/burn.jsonl gets a `start` line, an
`interval` line per interval with the operations of all processes, and an `end` line that says why it ended. It ends
after --duration-s, or at SIGTERM or SIGINT; a last interval that is shorter than half of --interval-s is left out.
No process outlives the first one, however that one ends.

On a virtual board (the folder /run/boardbench-virtual exists) the operations measure the board's model, not a machine.
There burn is the stand-in for the whole load of a rig: it registers as full load of the CPU and of the NPU (on a
Jetson: of the GPU), so that the thermal model heats up. It is one process, which works at the pace

    threads x 1000 operations/s x clock_factor x cpu_share

with the factors that the board gives now, and does one operation in twenty for real (each an eighth as big), since
several virtual boards share one host. What is counted is what was done, twentyfold. The start line says
`"virtual": true`. Python >= 3.8, standard library only.
"""

import argparse
import json
import os
import re
import select
import signal
import sys
import time

# An isolated interpreter (-I) does not look beside the script.
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from burn_loads import STOP_SIGNALS, Trouble, VirtualLoad, Workers, cores


def stamp():
    """Now, by three clocks."""
    return {
        "wall_unix_s": round(time.time(), 6),
        "monotonic_s": round(time.monotonic(), 6),
        "boottime_s": round(time.clock_gettime(time.CLOCK_BOOTTIME), 6),
    }


class Log:
    """burn.jsonl: a line is there as a whole or not at all."""

    def __init__(self, folder):
        self.path = os.path.join(folder, "burn.jsonl")
        try:
            os.makedirs(folder, exist_ok=True)
            # Never written over: the folder belongs to one run.
            self._fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise Trouble(f"cannot make {self.path}: {error.strerror}") from None
        self._size = 0
        # Kept apart from the lines, so that a line that gets lost on the way is missed.
        self.counted = 0.0

    def line(self, **event):
        """Adds one event."""
        data = (json.dumps(event, allow_nan=False) + "\n").encode()
        written = 0
        try:
            while written < len(data):
                written += os.write(self._fd, data[written:])
        except OSError as error:
            os.ftruncate(self._fd, self._size)
            raise Trouble(f"cannot write {self.path}: {error.strerror}") from None
        self._size += written


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


class Meter:
    """Turns a growing count into interval lines."""

    def __init__(self, log, load, interval_s, index=0):
        self._log = log
        self._load = load
        self._interval_s = interval_s
        self._index = index
        self._before = load.operations()
        self._start = self.began = load.counted_at()

    @property
    def count(self):
        """How many intervals there are by now, those before this meter included."""
        return self._index

    @property
    def due(self):
        """When the interval ends, on a grid that does not drift.

        After a stall the next edge may be a moment away: an interval of a moment has no rate, so the next counts.
        """
        return self.began + (int((self._start - self.began) / self._interval_s + 0.5) + 1) * self._interval_s

    def close_interval(self, shortest_s=0.0):
        """Writes the interval up to now, unless it is shorter than that."""
        operations = self._load.operations()
        end = self._load.counted_at()
        seconds = end - self._start
        if seconds <= shortest_s:
            return
        done = operations - self._before
        self._log.line(
            event="interval",
            index=self._index,
            start_monotonic_s=round(self._start, 6),
            end_monotonic_s=round(end, 6),
            operations=round(done, 3),
            operations_per_s=round(done / seconds, 3),
        )
        self._log.counted += done
        self._index, self._start, self._before = self._index + 1, end, operations


def measure(log, load, interval_s, duration_s, stop, index=0):
    """Runs until the duration is over or a stop signal comes; returns why it ended, and the next interval's index."""
    meter = Meter(log, load, interval_s, index)
    end = meter.began + duration_s
    # The last edge of the grid and the end may differ by float noise only.
    tolerance_s = min(0.001, interval_s / 100)
    while True:
        until = min(meter.due, end)
        left_s = until - time.monotonic()
        wait_s = max(0.0, left_s if load.poll_s is None else min(left_s, load.poll_s))
        name = stop.wait(wait_s)
        if name:
            meter.close_interval(interval_s / 2)
            return name, meter.count
        load.tick()
        now = time.monotonic()
        if now >= meter.due - tolerance_s and now < end - tolerance_s:
            meter.close_interval()
        elif now >= end - tolerance_s:
            meter.close_interval(interval_s / 2)
            return "duration", meter.count


def chain(log, make_load, options, stop):
    """Short runs with a pause after each, until the whole duration is over; returns why it ended.

    In a pause there is no load at all: its processes end, and the next run starts its own.
    """
    end, index = time.monotonic() + options.duration_s, 0
    while True:
        run_s = min(options.run_s, end - time.monotonic())
        load = make_load()
        try:
            why, index = measure(log, load, options.interval_s, run_s, stop, index)
        finally:
            load.close()
        # What would be left after the pause must hold an interval, or it would be a run of nothing.
        if why != "duration" or time.monotonic() + options.gap_s + options.interval_s > end:
            return why
        name = stop.wait(options.gap_s)
        if name:
            return name


def age_s():
    """How long this process has run, so that a slow start of the interpreter is part of the lead; 0 if not known."""
    try:
        with open("/proc/self/stat", encoding="utf-8", errors="replace") as file:
            text = file.read()
        started_s = int(text[text.rindex(")") + 1 :].split()[19]) / os.sysconf("SC_CLK_TCK")
        return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - started_s)
    except (OSError, ValueError, IndexError):
        return 0.0


def parse(arguments):
    """The command line."""
    parser = argparse.ArgumentParser(description="Loads cores with fixed pieces of work and counts them.")
    parser.add_argument("--out", required=True, help="folder for burn.jsonl")
    parser.add_argument("--threads", default="all", help="how many processes, or `all`: one a core")
    parser.add_argument("--interval-s", type=float, default=1.0, help="seconds per reported interval, at least 0.05")
    parser.add_argument("--duration-s", type=float, required=True, help="seconds until it ends by itself")
    parser.add_argument("--run-s", type=float, help="short runs of so many seconds, with pauses of --gap-s")
    parser.add_argument("--gap-s", type=float, help="seconds without load after each short run")
    parser.add_argument("--lead-s", type=float, default=0.0, help="seconds from our start to the load's")
    parser.add_argument("--virtual-dir", default="/run/boardbench-virtual", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.threads != "all" and not re.match(r"[1-9]\d{0,3}\Z", options.threads):
        parser.error("--threads must be `all` or a number from 1 to 9999")
    if not 0.05 <= options.interval_s <= 86400:
        parser.error("--interval-s must be from 0.05 to 86400")
    if not 0 < options.duration_s <= 30 * 86400:
        parser.error("--duration-s must be above 0 and at most 30 days")
    if not 0 <= options.lead_s <= 3600:
        parser.error("--lead-s must be from 0 to 3600")
    if (options.run_s is None) != (options.gap_s is None):
        parser.error("--run-s and --gap-s belong together")
    if options.run_s is not None and not (options.gap_s > 0 and options.interval_s <= options.run_s):
        parser.error("--gap-s must be above 0, and --run-s at least --interval-s")
    return options


def run(options, stop):
    """Everything between the command line and the exit code; raises Trouble."""
    threads = cores(options.virtual_dir) if options.threads == "all" else int(options.threads)
    virtual = os.path.isdir(options.virtual_dir)
    log = Log(options.out)

    def make_load():
        try:
            return VirtualLoad(options.virtual_dir, threads) if virtual else Workers(threads)
        except OSError as error:
            raise Trouble(f"cannot start {threads} workers: {error.strerror}") from None

    start = {"threads": threads, "interval_s": options.interval_s, "duration_s": options.duration_s, "virtual": virtual}
    if options.run_s is not None:
        start.update(run_s=options.run_s, gap_s=options.gap_s)
    name = stop.wait(options.lead_s - age_s()) if options.lead_s else None
    if name:
        log.line(event="start", stamp=stamp(), **start)
        log.line(event="end", why=name, stamp=stamp())
        return
    load = make_load()
    try:
        if virtual and isinstance(load.time_scale, (int, float)):
            start["time_scale"] = load.time_scale
        log.line(event="start", stamp=stamp(), **start)
        try:
            if options.run_s is None:
                why, _ = measure(log, load, options.interval_s, options.duration_s, stop)
            else:
                load.close()
                why = chain(log, make_load, options, stop)
        except Trouble as trouble:
            log.line(event="end", why=f"failed: {trouble}", stamp=stamp(), operations=round(log.counted, 3))
            raise
        log.line(event="end", why=why, stamp=stamp(), operations=round(log.counted, 3))
    finally:
        load.close()


def main(arguments=None):
    """The program; returns its exit code."""
    options = parse(arguments)
    stop = Stop()
    try:
        run(options, stop)
    except Trouble as trouble:
        print(f"burn: {trouble}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
