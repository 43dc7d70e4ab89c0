"""Runs one program as a unit of the board, and keeps what no service manager keeps everywhere: how it ended, and when.

Started as a plain file (`python3 -IS supervise.py REQUEST.json`), so it imports nothing of ours. The arguments come
from a file because then no unit file has to quote them: `%`, `$`, spaces and line ends mean nothing here.
It waits in the kernel and wakes up only when something happens: it costs the measured program nothing.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
PROC = "/proc"
# Loaded before any fork: a child must not take locks between fork and exec.
LIBC = ctypes.CDLL(None, use_errno=True)


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
        status = self._wait_for_child()
        signal.setitimer(signal.ITIMER_REAL, 0)
        how = {"signal": os.WTERMSIG(status)} if os.WIFSIGNALED(status) else {"code": os.WEXITSTATUS(status)}
        ended = stamp()
        left = self._end_leftovers()
        self._write_exit(dict(how), started, left, ended)
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
    return Supervisor(request).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
