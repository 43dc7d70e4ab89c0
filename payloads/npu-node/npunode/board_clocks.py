"""The live clocks of a board: the big cores' and the NPU's, as shares of their highest."""

import glob
import os
import threading
import time

from npunode.backends import BackendError
from npunode.sensors import read_number

CPUFREQ = "sys/devices/system/cpu/cpufreq/policy*"
NPU = "sys/class/devfreq/*npu*"
PERIOD_S = 0.2


class BoardClocks:
    """Reads the clocks in a thread of its own: a file of a busy board may take its time.

    `cpu_share` and `npu_share` are current over highest, `age_s` how old they are. BackendError when the board does
    not have the files.
    """

    def __init__(self, root="/"):
        policies = glob.glob(os.path.join(root, CPUFREQ))
        tops = {path: read_number(os.path.join(path, "cpuinfo_max_freq")) for path in policies}
        tops = {path: khz for path, khz in tops.items() if khz}
        devices = glob.glob(os.path.join(root, NPU))
        if not tops or len(devices) != 1:
            raise BackendError(f"the clocks of the big cores and the NPU are not to be found under {root}")
        big = max(tops, key=lambda path: (tops[path], path))
        self._cpu, self._cpu_top = os.path.join(big, "scaling_cur_freq"), tops[big]
        available = _last_number(os.path.join(devices[0], "available_frequencies"))
        self._npu = os.path.join(devices[0], "cur_freq")
        self._npu_top = available or read_number(os.path.join(devices[0], "max_freq"))
        self.cpu_share = self.npu_share = 0.0
        self._read_at = 0.0
        self._ended = threading.Event()
        if not self._read():
            raise BackendError(f"{self._cpu} or {self._npu} cannot be read")
        self._thread = threading.Thread(target=self._follow, name="board-clocks", daemon=True)
        self._thread.start()

    def _read(self):
        cpu, npu = read_number(self._cpu), read_number(self._npu)
        if not cpu or not npu or not self._npu_top:
            return False
        self.cpu_share, self.npu_share = cpu / self._cpu_top, npu / self._npu_top
        self._read_at = time.monotonic()
        return True

    def _follow(self):
        while not self._ended.wait(PERIOD_S):
            self._read()

    @property
    def age_s(self):
        """Seconds since both clocks could be read."""
        return time.monotonic() - self._read_at

    def close(self):
        """Ends the thread."""
        self._ended.set()
        self._thread.join()


def _last_number(path):
    from npunode.sensors import read_text

    numbers = [int(word) for word in (read_text(path) or "").split() if word.isdigit()]
    return max(numbers) if numbers else None
