"""A board's control folder on the host: loads and faults and the fan switch in, the status out."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import time
from pathlib import Path

from boardbench.virtual.faults import FaultFile
from boardbench.virtual.live import LiveBoard
from boardbench.virtual.loads import read_loads
from boardbench.virtual.tree import Tree

# An unchanged status is written again this often, so that a reader can tell a dead daemon.
_HEARTBEAT_S = 1.0
_log = logging.getLogger("boardbench.virtual")


def write_json(path: Path, value: object) -> None:
    """Write so that no reader sees half of it."""
    side = path.with_name(f".{path.name}.{os.getpid()}.new")
    side.write_text(json.dumps(value, sort_keys=True, allow_nan=False) + "\n", encoding="utf-8")
    side.replace(path)


class Control:
    """Connects one board with its control folder. Call `tick` about ten times a second."""

    def __init__(self, board: LiveBoard, sandbox: str, folder: Path) -> None:
        self.board = board
        self.sandbox = sandbox
        self.folder = folder
        self.tree = Tree()
        self._faults = FaultFile(folder / "faults.json")
        self._status: dict[str, object] = {}
        self._written_at = 0.0
        self._sysfs = ""

    def start(self, sysfs: str) -> None:
        """Make the folder. Faults and the switch of the fan are kept from before; old loads and status are not."""
        self._sysfs = sysfs
        loads = self.folder / "load"
        loads.mkdir(parents=True, exist_ok=True)
        # Payloads of any user of the board may register.
        loads.chmod(0o1777)
        fan = self.folder / "fan"
        if not fan.exists():
            fan.write_text("1\n", encoding="ascii")
        fan.chmod(0o666)
        self.tick()

    def tick(self) -> None:
        """Look at loads, faults, the fan and a reboot; publish the status when it changed."""
        board = self.board
        load = read_loads(self.folder / "load", board.cores_online)
        with board.lock:
            board.advance()
            board.set_load(load)
            if (refused := self._faults.refresh()) is not None:
                _log.warning("%s", refused)
            if self._faults.faults != board.faults:
                board.set_faults(self._faults.faults)
            self._look_at_fan()
            self._look_for_reboot()
            status = board.status(self.sandbox, self._sysfs)
        now = time.monotonic()
        if status != self._status or now - self._written_at >= _HEARTBEAT_S:
            write_json(self.folder / "status.json", {**status, "monotonic_s": round(now, 6)})
            self._status, self._written_at = status, now

    def _look_at_fan(self) -> None:
        try:
            text = (self.folder / "fan").read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            return
        # Anything else is a write that is under way: the fan stays as it is.
        if text in ("0", "1"):
            self.board.fan_connected = text == "1"

    def _look_for_reboot(self) -> None:
        mark = self.folder / "reboot"
        if os.path.lexists(mark):
            mark.unlink()
            self.board.reset()

    def stop(self) -> None:
        """Take back what we made; faults, and loads that still have a holder, are not ours."""
        read_loads(self.folder / "load", self.board.cores_online)
        for name in ("status.json", "fan", "drops.jsonl"):
            (self.folder / name).unlink(missing_ok=True)
        for folder in (self.folder / "load", self.folder):
            with contextlib.suppress(OSError):
                folder.rmdir()
