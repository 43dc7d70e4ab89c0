"""One virtual board of a fleet as the controller's host sees it: its folder, its supervisor, its processes."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from boardbench import ssh
from boardbench.errors import RigError
from boardbench.inventory import Access
from boardbench.virtual import identity, links, nspawn, processes
from boardbench.virtual.processes import Mark
from boardbench.virtual.sandbox import BootPlan, write_whole
from boardbench.virtual.supervisor import MARK_FILE, PLAN_FILE, STATE_FILE

_REBOOT_SIGNAL = signal.SIGRTMIN + 5
_BANNER_TIMEOUT_S = 1.0
_POLL_S = 0.02


@dataclass(frozen=True)
class BoardStatus:
    """What a virtual board is now. `state` is up, down or broken (it runs, and no sshd of it takes connections).

    `pid` is the host's pid of the board's supervisor; `boot_id` and `uptime_s` are None when it is down. `cut` tells
    that its link was cut on purpose (see `Fleet.cut`); such a board counts as up.
    """

    state: str
    pid: int | None
    address: str
    port: int
    boot_id: str | None
    uptime_s: float | None
    cut: bool = False


@dataclass(frozen=True)
class Machine:
    """One board. `folder` holds everything of it; `kind` is bwrap or nspawn."""

    name: str
    folder: Path
    address: str
    port: int
    kind: str

    @property
    def shown_key(self) -> Path:
        """The private host key that the board shows; the pinned one unless it was changed on purpose."""
        return self.folder / "keys" / "shown"

    @property
    def _pinned_key(self) -> Path:
        return self.folder / "keys" / "pinned"

    def ensure_keys(self) -> str:
        """Makes the board's host key when it has none; returns the pinned public line."""
        public = identity.ensure_key(self._pinned_key, self.name)
        if not self.shown_key.exists():
            self.pin_shown_key()
        return public

    def pin_shown_key(self) -> None:
        """The board shows the pinned key (from its next boot, or `show_key`, on)."""
        for suffix in ("", ".pub"):
            source = self._pinned_key.with_name(self._pinned_key.name + suffix)
            shutil.copy(source, self.shown_key.with_name(self.shown_key.name + suffix))

    def show_key(self) -> None:
        """Makes the running board show its `shown_key` now; open sessions stay."""
        supervisor = self.supervisor()
        init = processes.init_of(supervisor.pid) if supervisor else None
        if supervisor is None or init is None:
            raise RigError("the virtual board is down", where=self.name)
        # nspawn: through the board's own mounts, because the layers of a mounted overlay must not be written to.
        root = self.folder / "root" if self.kind == "bwrap" else Path(f"/proc/{init}/root")
        write_whole(root / "etc/ssh/host_key", self.shown_key.read_text(encoding="ascii"), mode=0o600)
        # Who compares fingerprints on the board itself reads this file.
        public = self.shown_key.with_name(self.shown_key.name + ".pub")
        write_whole(root / "etc/ssh/host_key.pub", public.read_text(encoding="ascii"))
        before = links.listener(self.address, self.port)
        processes.send(links.sshd_processes(supervisor.pid)[0], signal.SIGHUP)
        deadline = time.monotonic() + 10.0
        # Not by the key alone: the old listener's children read the new key too, and then nobody listens for a moment.
        while links.listener(self.address, self.port) in ("", before):
            self._raise_if_dead_or_late(deadline)
            time.sleep(_POLL_S)
        self._await_key(public.read_text(encoding="ascii").split()[1], deadline)

    def supervisor(self) -> Mark | None:
        """The running supervisor; None when the board is down."""
        mark = processes.from_dict(_read_json(self.folder / MARK_FILE))
        return mark if processes.alive(mark) else None

    def start(self, plan: BootPlan) -> None:
        """Starts the supervisor with this plan; does not wait for the board."""
        self.folder.mkdir(parents=True, exist_ok=True)
        plan.write(self.folder / PLAN_FILE)
        argv = [sys.executable, "-m", "boardbench.virtual.supervisor", str(self.folder)]
        with (self.folder / "board.log").open("ab") as log:
            child = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd="/"
            )
        # The supervisor records itself too; this one is for a command that looks before it did.
        mark = processes.mark_of(child.pid)
        if mark is not None:
            write_whole(self.folder / MARK_FILE, json.dumps(mark.as_dict()) + "\n")

    def stop(self) -> list[str]:
        """Pulls the plug: the board's processes end at once. Returns what would not end, as text."""
        supervisor = self.supervisor()
        if supervisor is None:
            return []
        marks = [supervisor, *processes.descendants(supervisor.pid)]
        processes.send(supervisor, signal.SIGKILL)
        left = processes.wait_gone(marks, 5.0)
        # Death by the parent's death reaches all of them; one that was just being made is killed by its own mark.
        left = processes.end(left, grace_s=0.0)
        return [f"process {mark.pid} of {self.name}" for mark in left]

    def reboot(self, timeout_s: float) -> None:
        """Asks the board's PID 1 to reboot; returns when ssh answers under a new boot id."""
        supervisor = self.supervisor()
        init = processes.init_of(supervisor.pid) if supervisor else None
        mark = processes.mark_of(init) if init else None
        if supervisor is None or mark is None:
            raise RigError("the virtual board is not up", where=self.name)
        before = self.boot_id(supervisor)
        deadline = time.monotonic() + timeout_s
        processes.send(mark, _REBOOT_SIGNAL)
        while self.boot_id(supervisor) in (before, None):
            self._raise_if_dead_or_late(deadline)
            time.sleep(_POLL_S)
        self.await_answer(deadline)

    def await_answer(self, deadline: float) -> None:
        """Returns when the board's ssh answers. Raises RigError with the board's last words when it does not."""
        while not self.answers(timeout_s=_BANNER_TIMEOUT_S):
            self._raise_if_dead_or_late(deadline)
            time.sleep(_POLL_S)

    def _await_key(self, key_base64: str, deadline: float) -> None:
        """Returns when the board shows this key: until its sshd has started anew, the old one still answers."""
        access = Access(host=self.address, port=self.port)
        while True:
            try:
                if ssh.host_key(access, where=self.name, deadline_s=2.0).get_base64() == key_base64:
                    return
            except RigError:
                pass  # between the old and the new one nobody listens
            self._raise_if_dead_or_late(deadline)
            time.sleep(_POLL_S)

    def _raise_if_dead_or_late(self, deadline: float) -> None:
        if self.supervisor() is None:
            raise RigError(f"the virtual board went down while booting: {self._last_words()}", where=self.name)
        if time.monotonic() > deadline:
            raise RigError(f"the virtual board does not answer over ssh: {self._last_words()}", where=self.name)

    def _last_words(self) -> str:
        log = self.folder / "board.log"
        text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
        return " | ".join([line for line in text.splitlines() if line.strip()][-3:]) or "its log is empty"

    def answers(self, timeout_s: float) -> bool:
        """Whether an ssh server greets on the board's address within the time."""
        try:
            with socket.create_connection((self.address, self.port), timeout=timeout_s) as link:
                return link.recv(4) == b"SSH-"
        except OSError:
            return False

    def boot_id(self, supervisor: Mark) -> str | None:
        """The id of the board's current boot; None while it is between two boots."""
        if self.kind == "bwrap":
            try:
                return (self.folder / "boot_id").read_text(encoding="ascii").strip() or None
            except OSError:
                return None
        init = processes.init_of(supervisor.pid)
        return nspawn.boot_id(init) if init is not None else None

    def status(self) -> BoardStatus:
        """What the board is now, by its processes alone: it may be measured, so nothing is sent to it."""
        supervisor = self.supervisor()
        if supervisor is None:
            return BoardStatus("down", None, self.address, self.port, None, None)
        cut = links.is_cut(supervisor.pid)
        serves = links.sshd_processes(supervisor.pid) and links.listener(self.address, self.port)
        state = "up" if cut or serves else "broken"
        boot = _read_json(self.folder / STATE_FILE)
        began = boot.get("started_boottime_s") if isinstance(boot, dict) else None
        uptime = time.clock_gettime(time.CLOCK_BOOTTIME) - began if isinstance(began, float) else None
        return BoardStatus(state, supervisor.pid, self.address, self.port, self.boot_id(supervisor), uptime, cut)


def _read_json(path: Path) -> object:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
