"""Keeps one virtual board running: boots it, boots it again when it wants to reboot, ends with it when it powers off.

Run as `python -m boardbench.virtual.supervisor BOARD_FOLDER`. SIGTERM pulls the plug. All of the board dies with this
process, whatever kills it (the parent-death signal and a pid namespace see to that): a board never outlives it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

from boardbench.virtual import identity, processes
from boardbench.virtual.sandbox import REBOOT_EXIT_CODE, BootPlan, write_whole

PLAN_FILE = "boot-plan.json"
STATE_FILE = "boot.json"
MARK_FILE = "supervisor.json"
_PORT_FREE_TIMEOUT_S = 10.0
_RESET_TIMEOUT_S = 1.0


class Supervisor:
    """One board's life."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._child: subprocess.Popen[bytes] | None = None
        self._off = False
        self._boots = 0

    def run(self) -> int:
        """Boots until the board is off. Returns the last exit code of the board, 0 when it was switched off."""
        mark = processes.mark_of(os.getpid())
        assert mark is not None
        write_whole(self._folder / MARK_FILE, json.dumps(mark.as_dict()) + "\n")
        signal.signal(signal.SIGTERM, self._pull_plug)
        while not self._off:
            code = self._boot()
            if self._off:
                break
            if code != REBOOT_EXIT_CODE:
                self._say(f"the board went down with exit code {code}")
                return code
        return 0

    def _boot(self) -> int:
        # Read at each boot, so that a changed host key or plan holds from the next boot on.
        plan = BootPlan.read(self._folder / PLAN_FILE)
        self._await_port(plan)
        if plan.reset_mark is not None and (self._folder / STATE_FILE).exists():
            _announce(Path(plan.reset_mark))
        for folder in plan.fresh_folders:
            _empty(Path(folder))
        if plan.boot_id_file is not None:
            Path(plan.boot_id_file).write_text(f"{uuid.uuid4()}\n", encoding="ascii")
        self._boots += 1
        began = time.clock_gettime(time.CLOCK_BOOTTIME)
        self._child = subprocess.Popen(
            plan.argv, stdin=subprocess.DEVNULL, preexec_fn=lambda: _join(plan.cgroups), start_new_session=True
        )
        state = {"boots": self._boots, "started_boottime_s": began, "child": self._child.pid}
        write_whole(self._folder / STATE_FILE, json.dumps(state) + "\n")
        if self._off:  # a signal that came before there was a child to end
            self._kill_child()
        code = self._child.wait()
        self._child = None
        return code

    def _await_port(self, plan: BootPlan) -> None:
        # The last boot's sshd is dead, but the kernel may still be closing its socket.
        deadline = time.monotonic() + _PORT_FREE_TIMEOUT_S
        while not identity.is_free(plan.address, plan.port):
            if time.monotonic() > deadline:
                self._say(f"{plan.address}:{plan.port} is in use")
                raise SystemExit(1)
            time.sleep(0.02)

    def _pull_plug(self, _number: int, _frame: object) -> None:
        self._off = True
        self._kill_child()

    def _kill_child(self) -> None:
        if self._child is not None and self._child.returncode is None:
            for mark in reversed(processes.descendants(self._child.pid)):
                processes.send(mark, signal.SIGKILL)
            self._child.kill()

    def _say(self, text: str) -> None:
        print(f"supervisor of {self._folder.name}: {text}", file=sys.stderr, flush=True)


def _join(cgroups: tuple[str, ...]) -> None:
    for folder in cgroups:
        with open(os.path.join(folder, "cgroup.procs"), "w") as file:
            file.write("0")


def _announce(mark: Path) -> None:
    """Tells the sysfs daemon that the board boots anew, and waits until it heard it (or is not there to hear)."""
    try:
        mark.touch()
    except FileNotFoundError:
        return
    deadline = time.monotonic() + _RESET_TIMEOUT_S
    while mark.exists() and time.monotonic() < deadline:
        time.sleep(0.01)


def _empty(folder: Path) -> None:
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def main(argv: list[str]) -> int:
    """Entry point; the only argument is the board's folder."""
    return Supervisor(Path(argv[0])).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
