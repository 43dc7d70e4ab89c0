"""On a virtual board: the load that this program is, registered; and a model of a slower world for a small host."""

import fcntl
import json
import os

STATUS = "/run/boardbench-virtual/status.json"
FOLDER = "/run/boardbench-virtual/load"
# What client, scheduler and agent need for a request beside the model: on the rig, by the fit of the constants, and on
# two cores (mean latency of an open loop of 70 to 200 requests a second at nodes whose inferences take no time).
RIG_PROGRAMS_MS, PROGRAMS_MS = 14.0, 4.0
# The scheduler and the load generator keep about a core busy.
LOAD = {"cpu_threads": 1, "cpu_activity": 0.8, "npu_activity": 0.0, "gpu_activity": 0.0}


def is_virtual():
    """Whether this board is virtual."""
    return os.path.exists(STATUS)


class Registered:
    """The load file of this process, while it is open; nothing on a real board."""

    def __enter__(self):
        self._file = None
        if is_virtual():
            path = os.path.join(FOLDER, f"{os.getpid()}.json")
            with open(path + ".partial", "w", encoding="ascii") as file:
                file.write(json.dumps(LOAD).ljust(160))
            self._file = open(path + ".partial", encoding="ascii")
            fcntl.flock(self._file, fcntl.LOCK_EX)
            os.rename(path + ".partial", path)
            self._path = path
        return self

    def __exit__(self, *exc):
        if self._file is not None:
            os.unlink(self._path)
            self._file.close()


def stretched(constants, factor):
    """The virtual backend's constants for a world in which all takes `factor` times as long: every rate falls by it,
    and no ratio changes. For hosts that cannot carry the bytes of a whole cluster at its real rate."""
    found = dict(constants)
    for name, value in constants.items():
        if name.endswith("_ms"):
            found[name] = value * factor
        elif name.endswith("_per_s"):
            found[name] = value / factor
    if "delay_ms" in found:
        # What the programs need is no part of the constants, and what they need here does not stretch by itself.
        found["delay_ms"] += factor * RIG_PROGRAMS_MS - PROGRAMS_MS
    return found
