"""The board's service manager: real systemd, or the `systemctl` replacement for systems without it.

Both read unit files and answer `systemctl`. The replacement has no daemon: it knows no control groups, no exit code of
a service that ended by itself, and no limits.
"""

from __future__ import annotations

import abc
import glob
import os
import re
import shutil
import subprocess
from dataclasses import dataclass

from . import detached, processes, transient
from .failures import BAD_INPUT, RIG, Failure
from .places import Places

SYSTEMD = "systemd"
REPLACEMENT = "systemctl-replacement"
NONE = "none"
# As in the unit files of runs: the supervisor gives its program less.
TRANSIENT_GRACE_S = 20.0
# systemctl must find its tools, and what is parsed must not be translated. Nothing else of a call's environment leaks
# into a service (the replacement hands its own environment on).
ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"}
_UNIT = re.compile(r"[A-Za-z0-9@:_.\\-]{1,200}\.(service|socket|target|timer|path|mount|scope|slice)\Z")


@dataclass(frozen=True)
class UnitState:
    """What the manager says about a unit.

    `active`: active or on its way there. `main_pid` is 0 without one. `result` is the manager's word (`success`,
    `exit-code`, `signal`, `timeout`, `oom-kill`, ...), empty when it does not tell. `exit_code` and `exit_signal` are
    those of the last main process that ended, None when unknown or not ended.
    """

    exists: bool
    active: bool
    enabled: bool
    main_pid: int
    result: str
    exit_code: int | None
    exit_signal: int | None = None
    sub_state: str = ""


def check_unit_name(unit: str) -> str:
    """The name itself, or Failure `bad-input`: it becomes an argument and a file name."""
    if not _UNIT.match(unit) or unit.startswith("-"):
        raise Failure(BAD_INPUT, f"{unit!r:.80} is not the name of a unit", "unit", "for example npu-node.service")
    return unit


def kind(places: Places) -> str:
    """Which service manager this board has: "systemd", "systemctl-replacement" or "none"."""
    if os.path.isdir(places.at("/run/systemd/system")) and _pid_1_is_systemd(places):
        return SYSTEMD
    program = _systemctl()
    return REPLACEMENT if program and _is_script(program) else NONE


def detect(places: Places | None = None) -> ServiceManager:
    """The board's service manager. Failure `rig` when there is none that runs."""
    places = places or Places()
    found = kind(places)
    program = _systemctl()
    if found == NONE or program is None:
        raise Failure(
            RIG,
            "this board has no running service manager",
            "systemd",
            "boot it with systemd, or install the systemctl replacement as /usr/local/bin/systemctl",
        )
    return (Systemd if found == SYSTEMD else Replacement)(places, program)


def _pid_1_is_systemd(places: Places) -> bool:
    try:
        with open(os.path.join(places.proc, "1/comm"), encoding="utf-8") as file:
            return file.read().strip() in ("systemd", "init")
    except OSError:
        return False


def _systemctl() -> str | None:
    return shutil.which("systemctl", path=ENVIRONMENT["PATH"])


def _is_script(path: str) -> bool:
    """The replacement is a Python script, the real one a binary that is useless without its daemon."""
    with open(path, "rb") as file:
        first = file.readline(200)
    return first.startswith(b"#!") and b"python" in first


class ServiceManager(abc.ABC):
    """What we need from a service manager; `kind` says which it is."""

    kind = NONE

    def __init__(self, places: Places, program: str) -> None:
        self._places = places
        self._program = program

    def state(self, unit: str) -> UnitState:
        """The state of a unit now; `exists` is False for one that has no file."""
        return self._state(self.show(unit))

    def show(self, unit: str) -> dict[str, str]:
        """The properties that `state` is made of, as the manager prints them."""
        arguments = ["show", check_unit_name(unit)]
        for name in self._properties():
            arguments += ["-p", name]
        text = self._run(arguments, 30.0)
        pairs = (line.partition("=") for line in text.splitlines())
        return {name: value for name, equals, value in pairs if equals}

    def reload(self) -> None:
        """Makes the manager read changed unit files."""
        self._run(["daemon-reload"], 90.0)

    def start(self, unit: str) -> None:
        """Starts a unit and waits until the manager is done. Failure `rig` with the manager's words."""
        self._run(["start", check_unit_name(unit)], 120.0)

    def stop(self, unit: str, timeout_s: float = 120.0) -> None:
        """Stops a unit and all its processes and waits for it. A unit that does not run is a success."""
        self._run(["stop", check_unit_name(unit)], timeout_s)

    def restart(self, unit: str) -> None:
        """Stops and starts a unit."""
        self._run(["restart", check_unit_name(unit)], 180.0)

    def enable(self, unit: str) -> None:
        """Makes the unit start at every boot."""
        self._run(["enable", check_unit_name(unit)], 60.0)

    def disable(self, unit: str) -> None:
        """Makes the unit not start at boot."""
        self._run(["disable", check_unit_name(unit)], 60.0)

    def reboot_command(self) -> list[str]:
        """What restarts the board."""
        return [self._program, "reboot"]

    def write_transient(self, unit: str, text: str) -> None:
        """Writes a unit that is gone after a reboot.

        A name that the manager has not seen yet it looks up by itself: a reload, which reads every unit of the board
        anew, is for a file that changes under its name.
        """
        folder = self._places.units_runtime
        os.makedirs(folder, mode=0o755, exist_ok=True)
        path = os.path.join(folder, check_unit_name(unit))
        known = os.path.lexists(path)
        partial = os.path.join(folder, f".{unit}.partial")
        with open(partial, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(partial, 0o644)
        os.rename(partial, path)
        if known:
            self.reload()

    def remove_transient(self, unit: str) -> None:
        """Removes such a unit, stopped before, and what the manager remembers of it. Not there is a success."""
        try:
            os.unlink(os.path.join(self._places.units_runtime, check_unit_name(unit)))
        except FileNotFoundError:
            return
        self._forget(unit)

    @abc.abstractmethod
    def processes(self, unit: str) -> list[int]:
        """The living processes of a unit, children of children included."""

    @abc.abstractmethod
    def unit_of(self, pid: int) -> str | None:
        """The service that a process belongs to, or None."""

    def _properties(self) -> tuple[str, ...]:
        return ("LoadState", "ActiveState", "SubState", "UnitFileState", "MainPID")

    @abc.abstractmethod
    def _state(self, shown: dict[str, str]) -> UnitState:
        """What was shown, as a state."""

    @abc.abstractmethod
    def _forget(self, unit: str) -> None:
        """Makes the manager drop what it remembers of a unit that is gone."""

    def _run(self, arguments: list[str], timeout_s: float, check: bool = True) -> str:
        try:
            done = subprocess.run(
                [self._program, *arguments],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                env=ENVIRONMENT,
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise Failure(
                RIG, f"systemctl {' '.join(arguments)}: no answer within {timeout_s:g} s", "systemd"
            ) from None
        if check and done.returncode != 0:
            said = done.stderr.decode("utf-8", "replace").strip() or done.stdout.decode("utf-8", "replace").strip()
            raise Failure(
                RIG,
                f"systemctl {' '.join(arguments[:2])}: exit code {done.returncode}: {said[-600:] or 'no word'}",
                arguments[1] if len(arguments) > 1 else "systemd",
                "see `systemctl status` and the unit's log on the board",
            )
        return done.stdout.decode("utf-8", "replace")


def _status_main_pid(path: str) -> int | None:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = [line.strip() for line in file]
    except OSError:
        return None
    return next((_number(line[8:]) for line in lines if line.startswith("MainPID=")), None)


def _number(text: str) -> int | None:
    return int(text) if text.isdigit() else None


class Systemd(ServiceManager):
    """Real systemd as PID 1."""

    kind = SYSTEMD

    def stop(self, unit: str, timeout_s: float = 120.0) -> None:
        """Stops a unit and its control group; systemd calls it a failure when it does not know the unit, we do not."""
        try:
            super().stop(unit, timeout_s)
        except Failure:
            state = self.state(unit)
            if state.exists or state.active:
                raise

    def processes(self, unit: str) -> list[int]:
        """By control group: nothing that a service starts can leave it."""
        shown = self._run(["show", check_unit_name(unit), "-p", "ControlGroup"], 30.0)
        group = shown.strip().partition("=")[2]
        if not group:
            return []
        found = []
        for process in processes.each(self._places):
            path = processes.control_group(self._places, process.pid) or ""
            if path == group or path.startswith(group + "/"):
                found.append(process.pid)
        return found

    def unit_of(self, pid: int) -> str | None:
        """By control group."""
        return processes.unit_of(self._places, pid)

    def _properties(self) -> tuple[str, ...]:
        return (*super()._properties(), "Result", "ExecMainCode", "ExecMainStatus")

    def _state(self, shown: dict[str, str]) -> UnitState:
        # waitid(2): 1 is "exited", 2 and 3 are "killed" and "dumped"; 0 is "not ended".
        how = _number(shown.get("ExecMainCode", "")) or 0
        status = _number(shown.get("ExecMainStatus", ""))
        return UnitState(
            exists=shown.get("LoadState") not in ("not-found", None),
            active=shown.get("ActiveState") in ("active", "activating", "reloading", "deactivating"),
            enabled=shown.get("UnitFileState") in ("enabled", "enabled-runtime"),
            main_pid=_number(shown.get("MainPID", "")) or 0,
            result=shown.get("Result", ""),
            exit_code=status if how == 1 else None,
            exit_signal=status if how in (2, 3) else None,
            sub_state=shown.get("SubState", ""),
        )

    def _forget(self, unit: str) -> None:
        # Fails for a unit that did not fail: that is fine, systemd drops those by itself.
        self._run(["reset-failed", unit], 30.0, check=False)


class Replacement(ServiceManager):
    """The `systemctl` replacement: it starts a service, notes its pid, and exits."""

    kind = REPLACEMENT

    def reload(self) -> None:
        """Nothing to do: it reads the unit files every time."""

    def start(self, unit: str) -> None:
        """For a unit of ours the replacement is not asked: it takes 0.4 s for what systemd does in a moment."""
        command = transient.command_of(os.path.join(self._places.units_runtime, check_unit_name(unit)))
        if command is None:
            return super().start(unit)
        if self.state(unit).active:
            return None
        try:
            pid = detached.start(command.argv, ENVIRONMENT, command.log)
        except OSError as error:
            raise Failure(RIG, f"{unit} cannot be started: {error.strerror}", command.argv[0]) from error
        transient.note_pid(self._places.at("/run"), unit, pid)
        return None

    def show(self, unit: str) -> dict[str, str]:
        """For a unit of ours the replacement is not asked: it takes a quarter of a second to read two small files."""
        if not os.path.exists(os.path.join(self._places.units_runtime, check_unit_name(unit))):
            return super().show(unit)
        pid = _status_main_pid(os.path.join(self._places.at("/run"), unit + ".status")) or 0
        process = processes.stat(self._places, pid) if pid else None
        alive = process is not None and process.state not in ("Z", "X")
        return {
            "LoadState": "loaded",
            "ActiveState": "active" if alive else "inactive",
            "SubState": "running" if alive else "dead",
            "UnitFileState": "transient",
            "MainPID": str(pid if alive else 0),
        }

    def processes(self, unit: str) -> list[int]:
        """The main process's session and its descendants: the replacement starts each service in its own session."""
        return self._family(self.state(unit).main_pid)

    def _family(self, main_pid: int) -> list[int]:
        if not main_pid:
            return []
        found = {process.pid for process in processes.each(self._places) if process.session == main_pid}
        found.update(process.pid for process in processes.descendants(self._places, main_pid))
        found.add(main_pid)
        return sorted(found)

    def unit_of(self, pid: int) -> str | None:
        """By session: the replacement notes a service's main process, which leads a session, in a status file."""
        process = processes.stat(self._places, pid)
        if process is None:
            return None
        for path in glob.glob(os.path.join(glob.escape(self._places.at("/run")), "*.service.status")):
            if _status_main_pid(path) == process.session:
                return os.path.basename(path)[: -len(".status")]
        return None

    def stop(self, unit: str, timeout_s: float = 120.0) -> None:
        """Stops a unit; a process of its session that the replacement overlooked is ended too."""
        if not self._known(unit):
            return
        # Asked once: each call of the replacement starts a large program anew.
        state = self.state(unit)
        before = {pid: processes.stat(self._places, pid) for pid in self._family(state.main_pid)}
        if os.path.exists(os.path.join(self._places.units_runtime, unit)):
            # A unit of ours: its main process hands the signal on, as systemd's `KillMode=mixed` does it.
            main = [(pid, found.start_time_ticks) for pid, found in before.items() if found and found.session == pid]
            processes.end_all(self._places, main, TRANSIENT_GRACE_S)
            self._forget(unit)
        elif state.exists:
            # Its exit code is 1 for a service without a main process, which is no failure.
            self._run(["stop", check_unit_name(unit)], timeout_s, check=False)
        else:
            # It does not stop a service whose file is gone, as systemd does; what it noted of it goes with it.
            self._forget(unit)
        left = [(pid, found.start_time_ticks) for pid, found in before.items() if found is not None]
        endings = processes.end_all(self._places, left, 1.0)
        stuck = [f"{pid}: {ending.why}" for pid, ending in endings.items() if not ending.ended]
        if stuck:
            raise Failure(RIG, f"its processes cannot be ended ({'; '.join(stuck)})", unit)

    def _known(self, unit: str) -> bool:
        """Whether there is a unit file anywhere, or something noted of the unit."""
        places = self._places
        folders = (
            places.units,
            places.units_runtime,
            *map(places.at, ("/usr/lib/systemd/system", "/lib/systemd/system")),
        )
        noted = os.path.join(places.at("/run"), unit + ".status")
        return any(os.path.lexists(path) for path in (noted, *(os.path.join(folder, unit) for folder in folders)))

    def _state(self, shown: dict[str, str]) -> UnitState:
        active = shown.get("ActiveState", "")
        return UnitState(
            exists=shown.get("LoadState") == "loaded",
            active=active == "active",
            enabled=shown.get("UnitFileState") == "enabled",
            main_pid=_number(shown.get("MainPID", "")) or 0,
            result="" if active in ("active", "inactive") else active,
            exit_code=None,
            sub_state=shown.get("SubState", ""),
        )

    def _forget(self, unit: str) -> None:
        try:
            os.unlink(os.path.join(self._places.at("/run"), unit + ".status"))
        except FileNotFoundError:
            pass
