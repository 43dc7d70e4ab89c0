"""What the service says about itself: `status.json` in its run folder, for whoever may read."""

from __future__ import annotations

import json
import os
from typing import Any

from . import processes
from .record import read_json, write_whole

RUN_DIR = "/run/gpu-floor"


class StatusFile:
    """Written by the service at every change; `start_ticks` ties it to that very process."""

    def __init__(self, run_dir: str) -> None:
        self.path = os.path.join(run_dir, "status.json")
        self._text = ""
        self._start_ticks = processes.start_ticks(os.getpid())

    def put(self, status: dict[str, Any]) -> None:
        """Writes it if it differs from the last one."""
        text = (
            json.dumps({**status, "start_ticks": self._start_ticks}, sort_keys=True, indent=1, allow_nan=False) + "\n"
        )
        if text != self._text:
            write_whole(self.path, text)
            self._text = text

    def clear(self) -> None:
        """The service has ended."""
        try:
            os.unlink(self.path)
        except FileNotFoundError:
            pass


def read(run_dir: str) -> dict[str, Any] | None:
    """The status of the service that runs now; None when none runs."""
    found = read_json(os.path.join(run_dir, "status.json"))
    if found is None or processes.start_ticks(int(found.get("pid", 0))) != found.get("start_ticks"):
        return None
    return found
