"""A fleet's daemon as a process of its own, for tests."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

BOARDS = {"king": "nanopi-r76s", "queen": "nanopi-r76s", "jack": "nanopi-r76s", "orin": "jetson-orin-nano"}


def eventually(holds, timeout_s=8.0):
    """Wait until `holds()` is true; fail when it never is."""
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.02)


class Fleet:
    """Starts the daemon and waits until it is ready; ends it by SIGTERM."""

    def __init__(self, folder: Path, mode: str, boards=None):
        self.folder, self.mode = folder, mode
        self.process = None
        self.log = folder.with_name(folder.name + ".log")
        entries = {}
        for name, kind in (boards or BOARDS).items():
            own = folder / "own" / name
            own.mkdir(parents=True, exist_ok=True)
            entries[name] = {"kind": kind, "sandbox": "bwrap", "pagecache_roots": [str(own)]}
        fleet = {"name": "test", "time_scale": 60.0, "sysfs": mode, "boards": entries}
        (folder / "fleet.json").write_text(json.dumps(fleet))

    def start(self):
        with self.log.open("ab") as log:
            argv = [sys.executable, "-m", "boardbench.virtual.daemon", str(self.folder)]
            self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        eventually(lambda: self._pid() == self.process.pid or self.process.poll() is not None)
        assert self.process.poll() is None, self.log.read_text()
        return self

    def _pid(self):
        try:
            return json.loads((self.folder / "daemon.json").read_text())["pid"]
        except FileNotFoundError:
            return None

    def stop(self):
        self.process.terminate()
        return self.process.wait(timeout=15)

    def kill(self):
        self.process.kill()
        self.process.wait(timeout=15)

    def __enter__(self):
        return self.start()

    def __exit__(self, *exc):
        if self.process.poll() is None:
            self.stop()

    @property
    def has_pagecache(self):
        return os.statvfs(self.folder).f_blocks > 0 and _kind(self.folder) not in ("tmpfs", "ramfs")

    def path(self, board, path) -> Path:
        return self.folder / "tree" / board / path

    def read(self, board, path) -> str:
        handle = os.open(self.path(board, path), os.O_RDONLY)
        try:
            return os.read(handle, 4096).decode().strip()
        finally:
            os.close(handle)

    def status(self, board):
        return json.loads((self.folder / "ctl" / board / "status.json").read_text())

    def drops(self, board):
        log = self.folder / "ctl" / board / "drops.jsonl"
        return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def _kind(folder):
    best, kind = "", ""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields = line.split(" ")
        if str(folder.resolve()).startswith(fields[4]) and len(fields[4]) >= len(best):
            best, kind = fields[4], fields[fields.index("-") + 1]
    return kind
