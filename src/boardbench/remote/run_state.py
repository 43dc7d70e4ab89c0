"""One run's folder on the board, and what is known about the run: kept on disk, so that a new call can go on."""

from __future__ import annotations

import glob
import json
import os
import re
from typing import Any

from . import stamps, supervise
from .failures import BAD_INPUT, BUG, Failure
from .places import Places

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,119}\Z")
# Ours, not the run's: not listed, not hashed, not fetched.
OWN_FOLDER = ".unit"
STATE_FILE = "run-state.json"


def check_run_name(value: Any) -> str:
    """The name itself, or Failure `bad-input`: it becomes a folder and a unit."""
    if not isinstance(value, str) or not _NAME.match(value) or ".." in value:
        raise Failure(BAD_INPUT, f"run is {value!r:.80}", "run", "letters, digits, dots, dashes and underscores")
    return value


class Run:
    """Where a run's files lie, and its state."""

    def __init__(self, places: Places, name: Any) -> None:
        self.places = places
        self.name = check_run_name(name)
        self.folder = os.path.join(places.runs, self.name)
        self.own = os.path.join(self.folder, OWN_FOLDER)
        self.workload = os.path.join(self.folder, "workload")
        self.logs = os.path.join(self.folder, "logs")
        self.thermal_csv = os.path.join(self.folder, "thermal.csv")
        self.started_path = os.path.join(self.own, "workload-started.json")
        self.exit_path = os.path.join(self.own, "workload-exit.json")
        self.workload_unit = f"boardbench-run-{self.name}.service"
        self.logger_unit = f"boardbench-logger-{self.name}.service"
        self._state_path = os.path.join(self.folder, STATE_FILE)

    def create(self) -> None:
        """Makes the empty folders."""
        for path in (self.workload, self.logs, self.own):
            os.makedirs(path, mode=0o755, exist_ok=True)

    def load(self) -> dict[str, Any]:
        """The state, or Failure `bad-input` when no such run was prepared on this board."""
        found = self.load_if_there()
        if found is None:
            raise Failure(BAD_INPUT, f"run {self.name} was not prepared on this board", "run", "prepare it first")
        return found

    def load_if_there(self) -> dict[str, Any] | None:
        """The state, or None."""
        return read_json(self._state_path)

    def save(self, state: dict[str, Any]) -> None:
        """Keeps the state, whole or not at all."""
        supervise.write_json(self._state_path, state)

    def rebooted(self, state: dict[str, Any]) -> bool:
        """Whether the board was restarted since the run was prepared."""
        return bool(state["boot_id"] != stamps.boot_id(self.places))

    def started(self) -> dict[str, Any] | None:
        """What the supervisor wrote when the workload ran, or None."""
        return read_json(self.started_path)

    def exit(self) -> dict[str, Any] | None:
        """What the supervisor wrote when the workload had ended, or None."""
        return read_json(self.exit_path)

    def log_tail(self, name: str, lines: int = 5) -> str:
        """The last lines of one of the run's logs, on one line, for a message."""
        try:
            with open(os.path.join(self.logs, name), "rb") as file:
                file.seek(0, os.SEEK_END)
                file.seek(max(0, file.tell() - 4096))
                text = file.read().decode("utf-8", "replace")
        except OSError:
            return "its log is empty"
        kept = [line.strip() for line in text.splitlines() if line.strip()][-lines:]
        return " | ".join(kept) or "its log is empty"

    def record(self, role: str, unit: str, pid: int, start_time_ticks: int) -> None:
        """Notes what we have started in /run, so that a later run can find it by pid and start time."""
        os.makedirs(self.places.started, mode=0o755, exist_ok=True)
        path = os.path.join(self.places.started, f"{self.name}.{role}.json")
        value = {"run": self.name, "unit": unit, "pid": pid, "start_time_ticks": start_time_ticks}
        supervise.write_json(path, value)

    def remove_records(self) -> None:
        """The run is over: nothing of it runs."""
        for path in glob.glob(os.path.join(glob.escape(self.places.started), "*.json")):
            if (read_json(path) or {}).get("run") == self.name:
                os.unlink(path)


def read_json(path: str) -> dict[str, Any] | None:
    """The object in a file of ours; None when there is no file. They are written whole, so anything else is a bug."""
    try:
        with open(path, encoding="utf-8") as file:
            value = json.load(file)
    except FileNotFoundError:
        return None
    except ValueError:
        raise Failure(BUG, "the file cannot be read as JSON", path) from None
    if not isinstance(value, dict):
        raise Failure(BUG, "the file holds no JSON object", path)
    return value
