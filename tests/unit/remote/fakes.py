"""Stand-ins for a board in tests: places below a folder, a call that keeps its events, a manager of child processes."""

from __future__ import annotations

import shlex
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

from boardbench.remote import processes, services
from boardbench.remote.places import Places


def board_places(root: Path) -> Places:
    """Places below `root`, with the real /proc: the processes are real."""
    places = Places(str(root))
    places.proc = "/proc"
    return places


class FakeCall:
    """What a verb needs of a call; everything it says is kept."""

    def __init__(self, places: Places) -> None:
        self.id = "call-1"
        self.places = places
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.stream = b""
        self.ending = threading.Event()

    def event(self, event: str, /, **fields: Any) -> None:
        self.events.append((event, fields))

    def phase(self, name: str, message: str) -> None:
        self.event("phase", name=name, message=message)

    def data(self, name: str, data: bytes) -> None:
        assert name == "tar"
        self.stream += data

    def ping(self) -> float:
        return time.time()

    def remaining_s(self) -> float:
        return 60.0

    def need(self, hashes: list[str]) -> None:
        assert not hashes


class SilentManager(services.ServiceManager):
    """What every fake manager is made from: whatever it does not say itself must not be asked."""

    def processes(self, unit: str) -> list[int]:
        raise AssertionError(f"nobody was to ask for the processes of {unit}")

    def unit_of(self, pid: int) -> str | None:
        raise AssertionError(f"nobody was to ask for the unit of {pid}")

    def _state(self, shown: dict[str, str]) -> services.UnitState:
        raise AssertionError(f"nobody was to parse {shown}")

    def _forget(self, unit: str) -> None:
        raise AssertionError(f"nobody was to forget {unit}")


class FakeManager(SilentManager):
    """Runs the units that it is given as children of the test: same text, same command line, real processes."""

    kind = "fake"

    def __init__(self, places: Places) -> None:
        super().__init__(places, "systemctl")
        self.text: dict[str, str] = {}
        self.children: dict[str, subprocess.Popen[bytes]] = {}
        self.enabled: set[str] = set()
        self.calls: list[str] = []

    def add(self, unit: str, argv: list[str], *, enabled: bool = False) -> subprocess.Popen[bytes]:
        """A service that runs already."""
        self.text[unit] = ""
        if enabled:
            self.enabled.add(unit)
        self.children[unit] = subprocess.Popen(argv, start_new_session=True)
        return self.children[unit]

    def state(self, unit: str) -> services.UnitState:
        child = self.children.get(unit)
        code = child.poll() if child else None
        running = child is not None and code is None
        return services.UnitState(
            exists=unit in self.text,
            active=running,
            enabled=unit in self.enabled,
            main_pid=child.pid if child and running else 0,
            result="",
            exit_code=code if code is not None and code >= 0 else None,
            exit_signal=-code if code is not None and code < 0 else None,
        )

    def start(self, unit: str) -> None:
        self.calls.append(f"start {unit}")
        options = dict(line.split("=", 1) for line in self.text[unit].splitlines() if "=" in line)
        log = Path(options["StandardOutput"][len("append:") :].replace("%%", "%"))
        argv = [word.replace("%%", "%").replace("$$", "$") for word in shlex.split(options["ExecStart"])]
        with log.open("ab") as out:
            self.children[unit] = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True, env={}
            )

    def stop(self, unit: str, timeout_s: float = 10.0) -> None:
        child = self.children.get(unit)
        if child is None or child.poll() is not None:
            return
        self.calls.append(f"stop {unit}")
        child.send_signal(signal.SIGTERM)
        child.wait(timeout_s)

    def write_transient(self, unit: str, text: str) -> None:
        self.text[unit] = text

    def remove_transient(self, unit: str) -> None:
        if self.text.pop(unit, None) is not None:
            self.calls.append(f"remove {unit}")

    def unit_of(self, pid: int) -> str | None:
        process = processes.stat(self._places, pid)
        sessions = {child.pid: unit for unit, child in self.children.items()}
        return sessions.get(process.session) if process else None

    def close(self) -> None:
        """Ends every child that still runs."""
        for child in self.children.values():
            if child.poll() is None:
                child.kill()
            child.wait()
