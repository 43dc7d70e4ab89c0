"""What burn loads cores with: processes that do fixed pieces of work, or the stand-in for them on a virtual board.

A load has `operations()` (all that were done so far), `counted_at()` (up to when that is), `tick()` (looks after the
load between counts), `poll_s` (how often it wants that; None: whenever there is a count) and `close()`.
"""

import ctypes
import fcntl
import hashlib
import json
import mmap
import os
import re
import signal
import time

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
WORK = bytes(range(256)) * 2048
VIRTUAL_OPERATIONS_PER_S = 1000.0
VIRTUAL_OPERATIONS_PER_DONE = 20
VIRTUAL_WORK = WORK[: len(WORK) // 8]
VIRTUAL_POLL_S = 0.05
# The board's daemon renames a new status into place: longer than this without one means that it is gone.
VIRTUAL_STATUS_S = 5.0
PR_SET_PDEATHSIG = 1


class Trouble(Exception):
    """Burn cannot do its work; one sentence."""


def operation(work=WORK):
    """The fixed piece of work."""
    return hashlib.sha256(work).digest()


class Workers:
    """One process a thread; each counts its operations in its own word of shared memory."""

    def __init__(self, threads):
        self._memory = mmap.mmap(-1, 8 * threads)
        # Aligned words: a reader never sees half of a count.
        self._counts = (ctypes.c_uint64 * threads).from_buffer(self._memory)
        self.pids = []
        self._libc = ctypes.CDLL(None, use_errno=True)
        parent = os.getpid()
        for index in range(threads):
            pid = os.fork()
            if pid == 0:
                try:
                    self._work(index, parent)
                finally:
                    os._exit(1)
            self.pids.append(pid)

    def _work(self, index, parent):
        # A stop is for the first process, also when the whole control group gets the signal.
        for number in STOP_SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        self._libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        # The parent may have ended before that was set, and not every kernel or sandbox has it.
        while os.getppid() == parent:
            operation()
            self._counts[index] += 1
        os._exit(0)

    def operations(self):
        """All operations done so far."""
        return sum(self._counts)

    def counted_at(self):
        """Up to when `operations` has counted: reading the counters takes no time."""
        return time.monotonic()

    def tick(self):
        """Raises Trouble when a worker has ended by itself: then the rest measures something else."""
        for pid in list(self.pids):
            try:
                gone, status = os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                gone, status = pid, 0
            if gone:
                self.pids.remove(pid)
                how = f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"exit code {status >> 8}"
                raise Trouble(f"a worker ended by {how}")

    poll_s = None

    def close(self):
        """Ends all workers."""
        for pid in self.pids:
            os.kill(pid, signal.SIGKILL)
        for pid in self.pids:
            os.waitpid(pid, 0)
        self.pids = []


class VirtualLoad:
    """The stand-in on a virtual board: registered load, and work at the pace of the board's clock, not the host's."""

    poll_s = VIRTUAL_POLL_S

    def __init__(self, folder, threads):
        self._status_path = os.path.join(folder, "status.json")
        self._threads = threads
        self._owed = 0.0
        self._done = 0
        self._status = None
        self._status_at = self._counted_to = time.monotonic()
        self._read_status()
        if self._status is None:
            raise Trouble(f"cannot read {self._status_path}")
        self.time_scale = self._status.get("time_scale")
        self._register(os.path.join(folder, "load"))
        self._counted_to = time.monotonic()

    def _register(self, folder):
        is_jetson = "jetson" in str(self._status.get("board_kind"))
        load = {
            "cpu_threads": self._threads,
            "cpu_activity": 1.0,
            "npu_activity": 0.0 if is_jetson else 1.0,
            "gpu_activity": 1.0 if is_jetson else 0.0,
        }
        self._load_path = os.path.join(folder, f"{os.getpid()}.json")
        partial = self._load_path + ".partial"
        try:
            # The lock is the registration: it ends with this process, whatever ends it.
            self._load_fd = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
            fcntl.flock(self._load_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.write(self._load_fd, json.dumps(load).encode())
            os.rename(partial, self._load_path)
        except OSError as error:
            raise Trouble(f"cannot register in {folder}: {error.strerror}") from None

    def _read_status(self):
        try:
            with open(self._status_path, encoding="utf-8") as file:
                status = json.load(file)
            float(status["clock_factor"]) * float(status["cpu_share"])
        except (OSError, ValueError, KeyError, TypeError):
            return
        self._status, self._status_at = status, time.monotonic()

    def operations(self):
        """The operations done so far, each standing for twenty.

        Doing them takes a moment, and longer on a busy host: that moment belongs to the next count.
        """
        self._keep_pace()
        return self._done * VIRTUAL_OPERATIONS_PER_DONE

    def _keep_pace(self):
        """Does what the board would have done since the last time, at the factors of that time."""
        now = time.monotonic()
        factor = float(self._status["clock_factor"]) * float(self._status["cpu_share"])
        self._owed += (now - self._counted_to) * VIRTUAL_OPERATIONS_PER_S * self._threads * factor
        self._counted_to = now
        while self._done < int(self._owed / VIRTUAL_OPERATIONS_PER_DONE):
            operation(VIRTUAL_WORK)
            self._done += 1

    def counted_at(self):
        """Up to when `operations` has counted: on a host that is short of time, doing them takes a while."""
        return self._counted_to

    def tick(self):
        """Works by the old factors up to now, then takes the new ones."""
        self._keep_pace()
        self._read_status()
        if time.monotonic() - self._status_at > VIRTUAL_STATUS_S:
            raise Trouble(f"{self._status_path} cannot be read for {VIRTUAL_STATUS_S:g} s")

    def close(self):
        """Takes the load away."""
        try:
            os.unlink(self._load_path)
        except FileNotFoundError:
            pass
        if self._load_fd >= 0:
            os.close(self._load_fd)
            self._load_fd = -1


def cores(virtual_dir):
    """How many cores this board has for us."""
    if os.path.isdir(virtual_dir):
        # The processes of a virtual board run on the host's cores; what its kernel files say is the board.
        try:
            with open("/sys/devices/system/cpu/online") as file:
                text = file.read().strip()
            bounds = [re.match(r"(\d+)(?:-(\d+))?\Z", part).groups() for part in text.split(",")]
            return sum(int(last or first) - int(first) + 1 for first, last in bounds)
        except (OSError, AttributeError):
            pass
    return len(os.sched_getaffinity(0))
