"""The counters of the expert cache: asked for by SIGUSR1, read from the file that the server writes."""

from __future__ import annotations

import json
import os
import signal
import time
from typing import Any

from .raw import missing

WAIT_S = 5.0
TOTALS = ("hits", "misses", "reloads", "evictions", "bytes_read", "reads", "waits", "wait_ns", "first_wait_ns")


class Counters:
    """`path`: where the server was told to write them; None for a server without a cache."""

    def __init__(self, path: str | None) -> None:
        self.path = path

    def ask(self, pid: int) -> dict[str, Any]:
        """All that the server says now; `{"missing": why}` for a server without a cache or one that does not answer."""
        if self.path is None:
            return missing("the server has no expert cache in this arm")
        before = self._written()
        os.kill(pid, signal.SIGUSR1)
        until = time.monotonic() + WAIT_S
        while self._written() == before:
            if time.monotonic() > until:
                return missing(f"no counters within {WAIT_S:g} s")
            time.sleep(0.005)
        return self._read()

    def _written(self) -> int | None:
        try:
            return os.stat(str(self.path)).st_mtime_ns
        except OSError:
            return None

    def _read(self) -> dict[str, Any]:
        until = time.monotonic() + WAIT_S
        while True:
            try:
                with open(str(self.path), encoding="utf-8") as file:
                    found = json.load(file)
                return found if isinstance(found, dict) else missing("the counters are no object")
            except (OSError, ValueError) as error:  # half written
                if time.monotonic() > until:
                    return missing(f"the counters cannot be read: {error}")
                time.sleep(0.01)


def totals(found: dict[str, Any]) -> dict[str, Any]:
    """Of each model's counters only the sums, without its layers; a missing reading as it is."""
    models = found.get("models")
    if not isinstance(models, list) or not models:
        return found if "missing" in found else missing("the counters name no model")
    first = models[0]
    kept = {key: first[key] for key in TOTALS if key in first}
    return {"state": first.get("state"), **({"why": first["why"]} if "why" in first else {}), **kept}
