"""Virtual fleets: named sets of virtual boards that are up, with everything of theirs in one state folder.

A fleet outlives the command that started it. Its processes are found again by recorded pid and start time, its boards
by recorded addresses; `down` leaves no process, mount, control group or file behind, also after a crash.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from boardbench import locations
from boardbench.errors import InputError, RigError
from boardbench.inventory import Access
from boardbench.virtual import boards as board_kinds
from boardbench.virtual import cgroups, doctor, identity, links, sysfs
from boardbench.virtual.bwrap import Bwrap
from boardbench.virtual.machine import BoardStatus, Machine
from boardbench.virtual.nspawn import Nspawn
from boardbench.virtual.sandbox import BoardPlan, Sandbox, remove_tree, write_whole

Progress = Callable[[str], None]
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,40}")
_SETTINGS = "settings.json"
_LOCK = "lock"
_MAXIMUM_TIME_SCALE = 3600.0
_UP_TIMEOUT_S = {"bwrap": 20.0, "nspawn": 60.0}


@dataclass(frozen=True)
class FleetStatus:
    """What a fleet is now. `kind` is "" when there is none; `sysfs` is "fuse", "plain" or "none"."""

    name: str
    kind: str
    why: str
    time_scale: float
    sysfs: str
    boards: Mapping[str, BoardStatus]


@dataclass(frozen=True)
class Settings:
    """What a fleet was started with; `boards` is name -> kind of board, `addresses` name -> loopback address."""

    kind: str
    why: str
    time_scale: float
    boards: Mapping[str, str]
    addresses: Mapping[str, str]


class Fleet:
    """One fleet by name. Opening starts nothing."""

    def __init__(self, name: str, folder: Path, cache: Path) -> None:
        self.name = name
        self.folder = folder
        self._cache = cache

    @classmethod
    def open(cls, name: str, state_dir: Path | None = None, cache_dir: Path | None = None) -> Fleet:
        """The fleet of this name, up or not. Raises InputError for a name that cannot be a folder's and host's name."""
        if not _NAME.fullmatch(name):
            raise InputError(f"{name!r} cannot be the name of a virtual fleet", advice="use a-z, 0-9 and -")
        state = state_dir if state_dir is not None else locations.state_dir() / "fleets"
        return cls(name, (state / name).absolute(), cache_dir or locations.cache_dir())

    @property
    def known_hosts(self) -> Path:
        """The pinned host keys of all boards, in OpenSSH's format."""
        return self.folder / "known_hosts"

    def up(
        self,
        boards: Mapping[str, str],
        kind: str = "auto",
        time_scale: float = 60.0,
        on_progress: Progress = lambda _text: None,
    ) -> FleetStatus:
        """Makes every board (name -> kind of board) answer over ssh; boards that are up stay as they are.

        Raises InputError when the fleet is up with other settings, RigError when a board does not come up.
        """
        _check(boards, kind, time_scale)
        with self._locked():
            settings = self._settings()
            other = settings is not None and self._differences(settings, boards, kind, time_scale)
            if settings is not None and other and not self._anything_runs(settings):
                # Left by a crash or a reboot of the host: nothing of it is in use.
                self._clear(settings)
                settings = None
            if settings is None:
                self._first_up(boards, kind, time_scale, on_progress)
            elif other:
                raise InputError(
                    f"the virtual fleet {self.name!r} is up with {'; '.join(other)}",
                    advice="end it first: ./inv virtual.down",
                )
            else:
                self._bring_up(settings, on_progress)
        return self.status()

    def down(self) -> None:
        """Ends every board and removes everything of the fleet; does nothing when there is none.

        Raises RigError when something would not go, and names it.
        """
        if not self.folder.is_dir():
            return
        with self._locked():
            self._clear(self._settings())

    def status(self) -> FleetStatus:
        """What is up now. A board is `broken` when its processes run and no sshd of it takes connections."""
        settings = self._settings()
        if settings is None:
            return FleetStatus(self.name, "", "not started", 0.0, "none", {})
        states = {name: self._machine(name, settings).status() for name in settings.boards}
        mode = sysfs.mode(self.folder)
        return FleetStatus(self.name, settings.kind, settings.why, settings.time_scale, mode, states)

    def access(self) -> dict[str, Access]:
        """How to reach each board by ssh."""
        key = self.folder / "keys" / "client"
        return {
            name: Access(host=address, port=identity.SSH_PORT, user=identity.USER, key_file=key)
            for name, address in self._need_settings().addresses.items()
        }

    def cut(self, board: str) -> None:
        """Cuts the link: the board's sshd and its sessions stand still, all else on the board runs on."""
        links.cut(self._running(board))

    def mend(self, board: str) -> None:
        """Ends what `cut` did."""
        links.mend(self._running(board))

    def kill(self, board: str) -> None:
        """A power cut: everything on the board ends at once, and the board stays down until the next `up`."""
        self._known_machine(board).stop()

    def start(self, board: str) -> None:
        """Power for one board that `kill` cut off, and wait until it answers; nothing when it is up.

        Raises RigError when it does not come up.
        """
        self._known_machine(board)
        with self._locked():
            self._bring_up(self._need_settings(), lambda _text: None, (board,))

    def reboot(self, board: str, timeout_s: float = 60.0) -> None:
        """Reboots the board and waits until it answers again with a new boot id. Raises RigError at the time-out."""
        self._running(board)
        self._known_machine(board).reboot(timeout_s)

    def change_host_key(self, board: str) -> None:
        """The board shows another host key than the pinned one, at once and over restarts, as after a reinstall."""
        self._running(board)
        machine = self._known_machine(board)
        machine.shown_key.unlink(missing_ok=True)
        identity.ensure_key(machine.shown_key, board)
        machine.show_key()

    def restore_host_key(self, board: str) -> None:
        """The board shows its pinned host key again."""
        self._running(board)
        machine = self._known_machine(board)
        machine.pin_shown_key()
        machine.show_key()

    def set_faults(self, board: str, faults: Mapping[str, object]) -> None:
        """Switches faults of the board's sysfs on (see `boardbench.virtual.faults`); an empty mapping ends all."""
        self._known_machine(board)
        write_whole(sysfs.faults_file(self.folder, board), json.dumps(dict(faults), sort_keys=True) + "\n")

    # ---- inside ----

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Holds the fleet; removes its folder at the end when it holds no fleet.

        The lock file goes with the folder, so a lock on a removed file is taken again.
        """
        path = self.folder / _LOCK
        while True:
            self.folder.mkdir(parents=True, exist_ok=True)
            with path.open("w") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                try:
                    mine = path.stat().st_ino == os.fstat(file.fileno()).st_ino
                except FileNotFoundError:
                    mine = False
                if mine:
                    try:
                        yield
                    finally:
                        if not (self.folder / _SETTINGS).exists():
                            remove_tree(self.folder)
                    return

    def _settings(self) -> Settings | None:
        try:
            data = json.loads((self.folder / _SETTINGS).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        return Settings(data["kind"], data["why"], data["time_scale"], data["boards"], data["addresses"])

    def _need_settings(self) -> Settings:
        settings = self._settings()
        if settings is None:
            raise InputError(f"the virtual fleet {self.name!r} is not up", advice="start it: ./inv virtual.up")
        return settings

    def _known_machine(self, board: str) -> Machine:
        settings = self._need_settings()
        if board not in settings.boards:
            raise InputError(f"the virtual fleet {self.name!r} has no board {board!r}")
        return self._machine(board, settings)

    def _running(self, board: str) -> int:
        mark = self._known_machine(board).supervisor()
        if mark is None:
            raise RigError("the virtual board is down", where=board, advice="start it: ./inv virtual.up")
        return mark.pid

    def _machine(self, name: str, settings: Settings) -> Machine:
        return Machine(name, self.folder / "boards" / name, settings.addresses[name], identity.SSH_PORT, settings.kind)

    def _anything_runs(self, settings: Settings) -> bool:
        return any(self._machine(name, settings).supervisor() is not None for name in settings.boards)

    def _differences(self, now: Settings, boards: Mapping[str, str], kind: str, time_scale: float) -> list[str]:
        differences = []
        if kind not in ("auto", now.kind):
            differences.append(f"kind {now.kind}, not {kind}")
        if time_scale != now.time_scale:
            differences.append(f"time scale {now.time_scale:g}, not {time_scale:g}")
        if dict(boards) != dict(now.boards):
            differences.append(f"boards {', '.join(sorted(now.boards))}, not {', '.join(sorted(boards))}")
        return differences

    def _first_up(self, boards: Mapping[str, str], kind: str, time_scale: float, on_progress: Progress) -> None:
        choice = doctor.choose_kind(kind, self.folder.parent)
        try:
            self._start_as(choice, boards, time_scale, on_progress)
        except RigError as error:
            if kind != "auto" or choice.kind == "bwrap":
                raise
            on_progress(f"nspawn boards do not come up here ({error.what}); using bwrap boards")
            possible = doctor.choose_kind("bwrap", self.folder.parent)
            choice = doctor.Choice(possible.kind, f"nspawn failed: {error.what}")
            self._start_as(choice, boards, time_scale, on_progress)

    def _start_as(self, choice: doctor.Choice, boards: Mapping[str, str], time_scale: float, say: Progress) -> None:
        """Starts a fleet that is not there yet; what fails or is interrupted leaves nothing."""
        addresses = identity.addresses(self.folder, list(boards))
        settings = Settings(choice.kind, choice.why, time_scale, dict(boards), addresses)
        self._write(settings)
        try:
            self._bring_up(settings, say)
        except BaseException:
            self._clear(settings)
            raise

    def _write(self, settings: Settings) -> None:
        write_whole(self.folder / _SETTINGS, json.dumps(asdict(settings), indent=1, sort_keys=True) + "\n")

    def _bring_up(self, settings: Settings, on_progress: Progress, only: Collection[str] = ()) -> None:
        wanted = only or settings.boards
        down = [name for name in wanted if self._machine(name, settings).supervisor() is None]
        if not sysfs.runs(self.folder):
            # Boards that are still up hold the files of a daemon that is gone; only a new boot gives them new ones.
            for name in settings.boards:
                self._machine(name, settings).stop()
            sysfs.stop(self.folder)
            down = list(settings.boards)
        if not down:
            return
        client_key = identity.ensure_key(self.folder / "keys" / "client", f"boardbench-{self.name}")
        pinned = {}
        for name in settings.boards:
            pinned[settings.addresses[name]] = self._machine(name, settings).ensure_keys()
        write_whole(self.known_hosts, identity.known_hosts_text(pinned))
        sandbox = _sandbox(settings.kind, self._cache, on_progress)
        plans = {name: self._plan(name, settings, client_key) for name in settings.boards}
        if not sysfs.runs(self.folder):
            self._start_sysfs(settings, {name: sandbox.pagecache_roots(plan) for name, plan in plans.items()})
        for name in down:
            boot = replace(sandbox.prepare(plans[name]), reset_mark=str(sysfs.reset_mark(self.folder, name)))
            on_progress(f"{name}: booting ({settings.kind} at {settings.addresses[name]})")
            self._machine(name, settings).start(boot)
        deadline = time.monotonic() + _UP_TIMEOUT_S[settings.kind]
        for name in down:
            self._machine(name, settings).await_answer(deadline)

    def _start_sysfs(self, settings: Settings, roots: Mapping[str, list[Path]]) -> None:
        entries = {}
        for name, kind in settings.boards.items():
            folders = tuple(str(path) for path in roots[name])
            cgroup = cgroups.memory_folder(settings.addresses[name]) if settings.kind == "nspawn" else None
            entries[name] = sysfs.Entry(kind, settings.kind, folders, str(cgroup) if cgroup else None)
        sysfs.start(self.folder, self.name, settings.time_scale, entries)

    def _plan(self, name: str, settings: Settings, client_key: str) -> BoardPlan:
        machine = self._machine(name, settings)
        binds = sysfs.binds(self.folder, name, settings.boards[name], settings.kind)
        return BoardPlan(
            name=name,
            board_kind=settings.boards[name],
            address=machine.address,
            port=machine.port,
            folder=machine.folder,
            machine_id=identity.machine_id(self.folder, name),
            client_key=client_key,
            host_key_file=machine.shown_key,
            binds=tuple(binds),
        )

    def _clear(self, settings: Settings | None) -> None:
        """Ends all of the fleet and empties its folder, but for the lock that is held."""
        left: list[str] = []
        if settings is not None:
            for name in settings.boards:
                left += self._machine(name, settings).stop()
        left += sysfs.stop(self.folder)
        for folder in cgroups.left_by(settings.addresses.values() if settings else ()):
            left += [str(path) for path in cgroups.remove(folder)]
        if left:
            raise RigError(f"of the virtual fleet {self.name!r} this would not go: {', '.join(left)}")
        # The settings go last, so that what is interrupted here can be done again.
        for entry in sorted(self.folder.iterdir(), key=lambda path: path.name == _SETTINGS):
            if entry.is_dir():
                remove_tree(entry)
            elif entry.name != _LOCK:
                entry.unlink()


def _check(boards: Mapping[str, str], kind: str, time_scale: float) -> None:
    if kind not in ("auto", *doctor.KINDS):
        raise InputError(f"there is no kind of virtual board named {kind!r}", advice="use auto, bwrap or nspawn")
    if not boards or len(boards) > identity.MAXIMUM_BOARDS:
        raise InputError(f"a virtual fleet has 1 to {identity.MAXIMUM_BOARDS} boards, not {len(boards)}")
    if not 0 < time_scale <= _MAXIMUM_TIME_SCALE:
        raise InputError(f"the time scale of a virtual fleet is at most {_MAXIMUM_TIME_SCALE:g}, not {time_scale:g}")
    for name, board_kind in boards.items():
        if not _NAME.fullmatch(name):
            raise InputError(f"{name!r} cannot be the name of a virtual board", advice="use a-z, 0-9 and -")
        if board_kind not in board_kinds.kinds():
            raise InputError(
                f"boards of kind {board_kind!r} cannot be virtual",
                where=name,
                advice=f"use one of {', '.join(board_kinds.kinds())}",
            )


def _sandbox(kind: str, cache: Path, on_progress: Progress) -> Sandbox:
    return Bwrap(cache) if kind == "bwrap" else Nspawn(cache, on_progress)
