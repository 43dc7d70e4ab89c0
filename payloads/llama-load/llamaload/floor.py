"""The GPU's clock while the server answers, and what the gpu-floor service says of itself."""

from __future__ import annotations

import glob
import json
import os
import subprocess
import sys
import threading
import time
from typing import Any

from .raw import Reading, missing

GPU_FLOOR = "/opt/boardbench/payloads/gpu-floor/gpu-floor"
GPU_NAMES = ("gpu", "gv11b", "gp10b", "ga10b", "gb10b")
STATUS_S = 10.0
PERIOD_S = 0.1
WATCHING, WATCHING_S, PAUSE_S = "watching", 12.0, 0.3


def gpu_node(sys_root: str = "/sys") -> str | None:
    """The GPU's devfreq folder, by its own name or by that of its device-tree node; None when there is none."""
    for folder in sorted(glob.glob(os.path.join(sys_root, "class/devfreq/*"))):
        names = [os.path.basename(folder), os.path.basename(os.path.realpath(os.path.join(folder, "device/of_node")))]
        if any(word in name.lower() for name in names for word in GPU_NAMES):
            return folder
    return None


class ClockWatch(threading.Thread):
    """Counts how often each lowest allowed and each current clock was seen, ten times a second."""

    def __init__(self, node: str | None) -> None:
        super().__init__(daemon=True)
        self._node = node
        self._over = threading.Event()
        self._seen: dict[str, dict[str, int]] = {"min_hz": {}, "cur_hz": {}}
        self._failed = ""

    def run(self) -> None:
        """Until `stop`."""
        while self._node is not None and not self._over.is_set():
            for key, name in (("min_hz", "min_freq"), ("cur_hz", "cur_freq")):
                try:
                    with open(os.path.join(self._node, name), encoding="ascii") as file:
                        text = str(int(file.read()))
                except (OSError, ValueError) as error:
                    self._failed = f"{name}: {error}"
                    continue
                self._seen[key][text] = self._seen[key].get(text, 0) + 1
            self._over.wait(PERIOD_S)

    def stop(self) -> dict[str, Any]:
        """Counts by Hz, of `min_hz` and `cur_hz`, and the clock's own lowest step; or why there are none."""
        self._over.set()
        if self.is_alive():
            self.join(STATUS_S)
        if self._node is None:
            return missing("no devfreq device of a GPU")
        if not any(self._seen.values()):
            return missing(self._failed or "not one reading")
        return {"node": self._node, "period_s": PERIOD_S, "lowest_hz": self._lowest(), **self._seen}

    def _lowest(self) -> Reading:
        path = os.path.join(str(self._node), "available_frequencies")
        try:
            with open(path, encoding="ascii") as file:
                return min(int(word) for word in file.read().split())
        except (OSError, ValueError) as error:
            return missing(f"{path}: {error}")


def wait_until_watching(build: str, program: str = GPU_FLOOR, limit_s: float = WATCHING_S) -> Reading:
    """Seconds until the service watches a library of this build; `{"missing": why}` when it does not come to that.

    It looks for new libraries every few seconds: a short measurement would be half over before its floor can act.
    """
    begun, said = time.monotonic(), missing("")
    while time.monotonic() - begun < limit_s:
        said = _ask(program)
        libraries = said.get("libraries")
        for one in libraries if isinstance(libraries, list) else ():
            if one.get("state") == WATCHING and str(one.get("path", "")).startswith(build.rstrip("/") + "/"):
                return round(time.monotonic() - begun, 3)
        if said.get("state") == "blind":
            break
        time.sleep(PAUSE_S)
    return missing(
        f"gpu-floor does not watch {build} after {limit_s:g} s: {said.get('missing') or said.get('problems')}"
    )


def status(program: str = GPU_FLOOR) -> dict[str, Any]:
    """What the running service says, in short; `{"missing": why}` when none runs."""
    found = _ask(program)
    kept = ("missing", "state", "floor_hz", "raised_hz", "foreign_hz", "raises", "last_raise_latency_s", "problems")
    return {key: found[key] for key in kept if key in found}


def _ask(program: str) -> dict[str, Any]:
    if not os.path.isfile(program):
        return missing("gpu-floor is not installed")
    try:
        done = subprocess.run(
            [sys.executable, "-IS", program, "--status"],
            stdin=subprocess.DEVNULL, capture_output=True, timeout=STATUS_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return missing(f"gpu-floor --status: {error}")
    try:
        found = json.loads(done.stdout.decode("utf-8", "replace"))
    except ValueError:
        found = None
    if done.returncode != 0 or not isinstance(found, dict):
        text = (done.stderr or done.stdout).decode("utf-8", "replace").strip().splitlines()
        return missing(f"gpu-floor --status: exit code {done.returncode}{': ' + text[-1] if text else ''}")
    return found
