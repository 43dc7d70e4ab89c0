"""Registers the load on a virtual board, so that its thermal model heats up. The lock ends with the process."""

import fcntl
import json
import os

from npunode.backends import BackendError

FOLDER = "run/boardbench-virtual/load"
# Always as long: a reader never sees half of an old text behind a new one.
_LENGTH = 160


class BoardLoad:
    """The load file of this process. BackendError when it cannot be made."""

    def __init__(self, root="/"):
        folder = os.path.join(root, FOLDER)
        self._path = os.path.join(folder, f"{os.getpid()}.json")
        partial = self._path + ".partial"
        try:
            self._fd = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.tell(0, 0.0, 0.0, 0.0)
            os.rename(partial, self._path)
        except OSError as error:
            raise BackendError(f"cannot register the load in {folder}: {error.strerror}") from None

    def tell(self, cpu_threads, cpu_activity, npu_activity, network_activity):
        """What loads the board now; activities 0 to 1."""
        load = {
            "cpu_threads": cpu_threads,
            "cpu_activity": round(min(1.0, cpu_activity), 4),
            "npu_activity": round(min(1.0, npu_activity), 4),
            "gpu_activity": 0.0,
            "network_activity": round(min(1.0, network_activity), 4),
        }
        os.pwrite(self._fd, json.dumps(load).ljust(_LENGTH).encode(), 0)

    def close(self):
        """Takes the load away."""
        try:
            os.unlink(self._path)
        except FileNotFoundError:
            pass
        os.close(self._fd)
