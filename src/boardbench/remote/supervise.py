"""Runs one program as a unit of the board, and keeps what no service manager keeps everywhere: how it ended, and when.

Started as a plain file (`python3 -IS supervise.py REQUEST.json`), so it imports nothing of ours. The arguments come
from a file because then no unit file has to quote them: `%`, `$`, spaces and line ends mean nothing here.
It waits in the kernel. Now and then it reads two or three files, to prove that the load runs: that costs the measured
program less than a thousandth of one core.
"""

from __future__ import annotations

import ctypes
import fcntl
import importlib.util
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from typing import Any

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
PROC = "/proc"
FIRST_LOOK_S = 0.05
MOST_BETWEEN_LOOKS_S = 10.0
MOST_TOLD = 100
VIRTUAL_LOADS = "/run/boardbench-virtual/load"
# Loaded before any fork: a child must not take locks between fork and exec.
LIBC = ctypes.CDLL(None, use_errno=True)


def _beside(name: str) -> Any:
    """A file that lies beside this one, as a module: neither is part of a package here."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), name + ".py")
    spec: Any = importlib.util.spec_from_file_location("boardbench_" + name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


heat_guard = _beside("heat_guard")


def _become_child() -> None:
    """Between fork and exec: a group of its own, and no life without its supervisor, who alone knows how it ends."""
    os.setpgrp()
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def stamp() -> dict[str, float]:
    """A STAMP, see stamps.py."""
    return {
        "wall_unix_s": time.time(),
        "monotonic_s": time.monotonic(),
        "boottime_s": time.clock_gettime(time.CLOCK_BOOTTIME),
    }


def write_json(path: str, value: dict[str, object]) -> None:
    """Whole or not at all, and on the disk before it counts."""
    partial = path + ".partial"
    with open(partial, "w", encoding="utf-8") as file:
        json.dump(value, file, allow_nan=False, sort_keys=True)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    os.rename(partial, path)


def stat_fields(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the third (state) on; empty when there is no such process."""
    try:
        with open(f"{PROC}/{pid}/stat", encoding="utf-8", errors="replace") as file:
            text = file.read()
    except OSError:
        return []
    return text[text.rindex(")") + 1 :].split()


def start_time_ticks(pid: int) -> int | None:
    """When the process started, in clock ticks since boot."""
    fields = stat_fields(pid)
    return int(fields[19]) if len(fields) > 19 else None


def living_below(root: int) -> list[int]:
    """The living descendants of a process."""
    children: dict[int, list[int]] = {}
    for name in os.listdir(PROC):
        fields = stat_fields(int(name)) if name.isdigit() else []
        if fields and fields[0] not in "ZXx":
            children.setdefault(int(fields[1]), []).append(int(name))
    found: list[int] = []
    waiting = [root]
    while waiting:
        below = children.pop(waiting.pop(), [])
        found += below
        waiting += below
    return found


def out_of_memory_kills() -> int | None:
    """How many processes of our control group the kernel has ever killed for memory; None where it does not count."""
    for base, controllers, name in (
        ("/sys/fs/cgroup", "", "memory.events"),
        ("/sys/fs/cgroup/memory", "memory", "memory.oom_control"),
    ):
        for line in (_own_group_file(base, controllers, name) or "").splitlines():
            word, _, number = line.partition(" ")
            if word == "oom_kill" and number.isdigit():
                return int(number)
    return None


def _own_group_file(base: str, controllers: str, name: str) -> str | None:
    try:
        with open(PROC + "/self/cgroup", encoding="utf-8") as file:
            groups = [line.rstrip("\n").split(":", 2) for line in file]
        path = next((path for _, found, path in groups if found == controllers), None)
        if path is None:
            return None
        with open(base + path.rstrip("/") + "/" + name, encoding="utf-8") as file:
            return file.read()
    except (OSError, ValueError):
        return None


def memory_limit_bytes() -> int | None:
    """The memory limit in force on our control group; None when there is none."""
    for base, controllers, name in (
        ("/sys/fs/cgroup", "", "memory.max"),
        ("/sys/fs/cgroup/memory", "memory", "memory.limit_in_bytes"),
    ):
        text = _own_group_file(base, controllers, name)
        # "max" with v2, a number near 2^63 with v1.
        if text is not None and text.strip().isdigit() and int(text) < 1 << 60:
            return int(text)
    return None


def busy_ticks() -> tuple[int, int] | None:
    """(busy, all) clock ticks of all CPUs since boot."""
    try:
        with open(PROC + "/stat", encoding="ascii") as file:
            values = [int(field) for field in file.readline().split()[1:9]]
    except (OSError, ValueError):
        return None
    return (sum(values) - values[3] - values[4], sum(values)) if len(values) > 4 else None


def registered_loads() -> int | None:
    """How many loads are registered on this virtual board and held by a living process; None on a real one."""
    if not os.path.isdir(os.path.dirname(VIRTUAL_LOADS)):
        return None
    held = 0
    for name in os.listdir(VIRTUAL_LOADS) if os.path.isdir(VIRTUAL_LOADS) else ():
        try:
            fd = os.open(os.path.join(VIRTUAL_LOADS, name), os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            held += 1
        finally:
            os.close(fd)
    return held


class Watch(threading.Thread):
    """Looks now and then whether the load runs and the disk has room. What it saw goes into the exit record.

    Often at first, so that a short load is seen too, then less and less: about two hundred looks in half an hour.
    """

    def __init__(self, folder: str) -> None:
        super().__init__(daemon=True)
        self._folder = folder
        self._over = threading.Event()
        self._first = self._last = busy_ticks()
        self._looks: list[dict[str, float | None]] = []

    def run(self) -> None:
        """Looks until `stop`."""
        wait_s = FIRST_LOOK_S
        while not self._over.wait(wait_s):
            self._looks.append(self._look())
            wait_s = min(MOST_BETWEEN_LOOKS_S, wait_s * 1.2)

    def _look(self) -> dict[str, float | None]:
        registered, at_s = registered_loads(), time.monotonic()
        try:
            space = os.statvfs(self._folder)
            free: float | None = float(space.f_bavail * space.f_frsize)
        except OSError:
            free = None
        self._last = busy_ticks()
        return {"at": at_s, "registered": registered, "free": free}

    def stop(self, ended_s: float) -> dict[str, object]:
        """Ends it and says what it saw until `ended_s` (monotonic): counts, and the extremes of what could be read."""
        self._over.set()
        self.join(5.0)
        looks = [look for look in self._looks if look["at"] is not None and look["at"] <= ended_s]
        free = [look["free"] for look in looks if look["free"] is not None]
        idle = [look["at"] for look in looks if look["registered"] == 0]
        busy = None
        if self._first is not None and self._last is not None and self._last[1] > self._first[1]:
            busy = round((self._last[0] - self._first[0]) / (self._last[1] - self._first[1]), 4)
        return {
            "looks": len(looks),
            "cpu_busy_share": busy,
            "registered_looks": sum(1 for look in looks if look["registered"] is not None),
            "registered_held": sum(1 for look in looks if look["registered"]),
            "idle_at_monotonic_s": idle[:MOST_TOLD],
            "free_bytes_min": int(min(free)) if free else None,
        }


class Supervisor:
    """One child, its deadline, and the signals that end it."""

    def __init__(self, request: dict[str, object]) -> None:
        self._request = request
        self._child = 0
        self._reason = ""
        # A control group can be older than this run: only what comes on top of it is ours.
        self._kills_before = out_of_memory_kills()
        self._grace_s = float(str(request.get("grace_s", 10.0)))

    def run(self) -> int:
        """Runs the child to its end; our own exit code is the child's, or 128 + signal."""
        request = self._request
        # Whatever the child leaves behind becomes our child, even when it makes a session of its own.
        reaper = LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._on_stop)
        signal.signal(signal.SIGALRM, self._on_alarm)
        started = stamp()
        try:
            process = subprocess.Popen(
                [str(part) for part in list(request["argv"])],  # type: ignore[call-overload]
                env={str(key): str(value) for key, value in dict(request["env"]).items()},  # type: ignore[call-overload]
                cwd=str(request["cwd"]),
                preexec_fn=_become_child,
            )
        except (OSError, ValueError) as error:
            self._write_exit({"failed": f"cannot start {request['argv']}: {error}"}, started, [])
            print(f"boardbench: cannot start: {error}", file=sys.stderr, flush=True)
            return 127
        self._child = process.pid
        # From here on a stop that came before can reach the child.
        if self._reason:
            self._to_child(signal.SIGTERM)
            signal.setitimer(signal.ITIMER_REAL, self._grace_s)
        elif request.get("deadline_s") is not None:
            signal.setitimer(signal.ITIMER_REAL, float(str(request["deadline_s"])))
        self._write_started(started, reaper)
        watch = Watch(os.path.dirname(str(request["exit_path"])))
        watch.start()
        guard = heat_guard.started(request.get("guard"), lambda: self._end_child("guard"))
        status = self._wait_for_child()
        # At once: a chip cools within seconds.
        reading = {"celsius": heat_guard.zones_celsius(), "monotonic_s": time.monotonic()}
        signal.setitimer(signal.ITIMER_REAL, 0)
        how = {"signal": os.WTERMSIG(status)} if os.WIFSIGNALED(status) else {"code": os.WEXITSTATUS(status)}
        ended = stamp()
        left = self._end_leftovers()
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        seen = dict(watch.stop(ended["monotonic_s"]), cpu_used_s=round(used.ru_utime + used.ru_stime, 3))
        said = {} if guard is None else {"guard": guard.stop()}
        self._write_exit(dict(how, end_reading=reading, watch=seen, **said), started, left, ended)
        return 128 + how["signal"] if "signal" in how else how["code"]

    def _wait_for_child(self) -> int:
        while True:
            pid, status = os.waitpid(-1, 0)
            if pid == self._child:
                return status

    def _to_child(self, number: int) -> None:
        try:
            os.killpg(self._child, number)
        except (ProcessLookupError, PermissionError):
            # Between fork and exec the group may not be there yet, and after the end it is gone.
            try:
                os.kill(self._child, number)
            except ProcessLookupError:
                pass

    def _on_stop(self, number: int, frame: object) -> None:
        self._end_child("stopped")

    def _on_alarm(self, number: int, frame: object) -> None:
        if self._reason:
            self._to_child(signal.SIGKILL)
        else:
            self._end_child("deadline")

    def _end_child(self, reason: str) -> None:
        if self._reason:
            return
        self._reason = reason
        if self._child:
            self._to_child(signal.SIGTERM)
            signal.setitimer(signal.ITIMER_REAL, self._grace_s)

    def _end_leftovers(self) -> list[int]:
        """Ends what the child left running: the run is over when it is over. Returns the pids that were left."""
        left = living_below(os.getpid())
        until = time.monotonic() + 5.0
        number = signal.SIGTERM
        now = left
        while now and time.monotonic() < until:
            for pid in now:
                try:
                    os.kill(pid, number)
                except ProcessLookupError:
                    pass
            time.sleep(0.1)
            number = signal.SIGKILL
            now = living_below(os.getpid())
        self._reap()
        return left

    def _reap(self) -> None:
        """Takes in the ended ones that became our children: nobody should see them as zombies."""
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass

    def _kills(self) -> int | None:
        now = out_of_memory_kills()
        return None if now is None or self._kills_before is None else now - self._kills_before

    def _write_started(self, started: dict[str, float], reaper: bool) -> None:
        write_json(
            str(self._request["started_path"]),
            {
                "pid": self._child,
                "start_time_ticks": start_time_ticks(self._child),
                "supervisor_pid": os.getpid(),
                "supervisor_start_time_ticks": start_time_ticks(os.getpid()),
                "started": started,
                "subreaper": reaper,
                "memory_limit_bytes": memory_limit_bytes(),
            },
        )

    def _write_exit(
        self, how: dict[str, object], started: dict[str, float], left: list[int], ended: dict[str, float] | None = None
    ) -> None:
        write_json(
            str(self._request["exit_path"]),
            dict(
                how,
                started=started,
                ended=ended or stamp(),
                ended_by=self._reason or "itself",
                left_running=left,
                out_of_memory_kills=self._kills(),
            ),
        )


def main(arguments: list[str]) -> int:
    """`REQUEST.json`: supervise its program; with `"replace": true` become that program instead."""
    with open(arguments[0], encoding="utf-8") as file:
        request = json.load(file)
    os.umask(0o022)
    if request.get("replace"):
        os.chdir(request["cwd"])
        os.execve(request["argv"][0], request["argv"], request["env"])
    limited, wanted = None, request.get("memory_max_bytes")
    if wanted is not None and memory_limit_bytes() is None:
        # Never loaded for the many runs without a limit.
        name = os.path.basename(os.path.dirname(os.path.dirname(request["exit_path"])))
        limited = _beside("memory_limit").enter(f"boardbench-run-{name}", wanted, request.get("swap_max_bytes") != 0)
    try:
        return Supervisor(request).run()
    finally:
        if limited is not None:
            limited.leave()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
