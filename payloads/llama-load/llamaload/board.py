"""What only a virtual board has: a place to register the load, so that its thermal model heats up."""

from __future__ import annotations

import fcntl
import json
import os

VIRTUAL_DIR = "/run/boardbench-virtual"


class RegisteredLoad:
    """Nothing on a real board. The lock ends with the process, so a killed load stops heating."""

    def __init__(self, threads: int, folder: str = VIRTUAL_DIR) -> None:
        self.virtual = os.path.isdir(folder)
        self._fd = -1
        self._path = os.path.join(folder, "load", f"{os.getpid()}.json")
        if not self.virtual:
            return
        load = {"cpu_threads": threads, "cpu_activity": 1.0, "npu_activity": 0.0, "gpu_activity": 0.0}
        partial = self._path + ".partial"
        self._fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        os.write(self._fd, (json.dumps(load) + "\n").encode())
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        os.rename(partial, self._path)

    def close(self) -> None:
        """Takes the load away."""
        if self._fd < 0:
            return
        try:
            os.unlink(self._path)
        except FileNotFoundError:
            pass
        os.close(self._fd)
        self._fd = -1
