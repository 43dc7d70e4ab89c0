"""Restarts the board, after the answer: the link that carries the answer must not be the first thing to go."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

from . import services, stamps
from .failures import RIG, Failure
from .wire import Call

DELAY_S = 0.7


def reboot(_args: dict[str, Any], call: Call) -> dict[str, Any]:
    """The verb: `{"boot_id"}`, the old one. The board goes down a moment later; it is back when its boot id differs."""
    manager = services.detect(call.places)
    boot_id = stamps.boot_id(call.places)
    detached([*manager.reboot_command()], DELAY_S)
    return {"boot_id": boot_id}


def detached(argv: list[str], delay_s: float) -> None:
    """Runs a program after a delay, in a session of its own, by a process that is no child of this call."""
    code = "import os,sys,time; time.sleep(float(sys.argv[1])); os.execvp(sys.argv[2], sys.argv[2:])"
    middle = "import subprocess,sys; subprocess.Popen(sys.argv[1:], start_new_session=True, close_fds=True)"
    inner = [sys.executable, "-IS", "-c", code, str(delay_s), *argv]
    done = subprocess.run(
        [sys.executable, "-IS", "-c", middle, *inner],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=dict(services.ENVIRONMENT),
        cwd="/",
        timeout=20.0,
        check=False,
    )
    if done.returncode != 0:
        raise Failure(RIG, f"cannot start the detached process (exit code {done.returncode})", "reboot")
    os.sync()
