"""`--health`: whether the service does its work. A virtual board's may be blind, and says so."""

from __future__ import annotations

import time
from typing import Callable

from . import virtual
from .status import read

_SETTLE_S = 10.0


def health(run_dir: str, say: Callable[[str], None], virtual_folder: str = virtual.FOLDER) -> int:
    """0 when the service runs and can see calls. Waits until a service that was just started has looked around."""
    until = time.monotonic() + _SETTLE_S
    status = read(run_dir)
    while time.monotonic() < until and (status is None or status["state"] == "starting"):
        time.sleep(0.1)
        status = read(run_dir)
    if status is None:
        say("the service does not run; see: journalctl -u gpu-floor")
        return 1
    problems = "; ".join(status["problems"]) or "no reason given"
    is_virtual = virtual.here(virtual_folder)
    if status["state"] != "blind":
        say("; ".join([status["state"], *status["problems"], *([virtual.NO_GPU] if is_virtual else [])]))
        return 0
    if is_virtual:
        say(f"virtual board: the service runs and is blind: {problems}")
        return 0
    say(f"the service runs and is blind: {problems}")
    return 1
