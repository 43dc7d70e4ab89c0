"""Where things lie on a board, in one place. A test gives another root, and nothing else changes."""

from __future__ import annotations

import os


class Places:
    """All paths that the board's side uses, below `root` (`/` on a board, a folder of its own in a test)."""

    def __init__(self, root: str = "/") -> None:
        self.root = os.path.abspath(root)
        self.state = self.at("/var/lib/boardbench")
        self.blobs = os.path.join(self.state, "blobs")
        self.journal = os.path.join(self.state, "journal")
        self.programs = os.path.join(self.state, "programs")
        self.payload_records = os.path.join(self.state, "payloads")
        self.runs = os.path.join(self.state, "runs")
        self.run = self.at("/run/boardbench")
        self.calls = os.path.join(self.run, "calls")
        self.started = os.path.join(self.run, "started")
        self.payloads = self.at("/opt/boardbench/payloads")
        self.virtual = self.at("/run/boardbench-virtual")
        self.proc = self.at("/proc")
        self.sys = self.at("/sys")
        self.etc = self.at("/etc")
        self.units = self.at("/etc/systemd/system")
        self.units_runtime = self.at("/run/systemd/system")

    def at(self, path: str) -> str:
        """`path` (absolute on the board) below this root."""
        if self.root == "/":
            return path
        return self.root + path if path.startswith("/") else os.path.join(self.root, path)

    def on_board(self, path: str) -> str:
        """The other way round: how the board itself names a path below this root."""
        if self.root == "/":
            return path
        return path[len(self.root) :] or "/" if path.startswith(self.root) else path
