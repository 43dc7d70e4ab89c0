"""Keeps one tracer per library file: for new ones, for rebuilt ones, and none for those that nobody has any more."""

from __future__ import annotations

import os
import selectors
from dataclasses import dataclass
from typing import Any, Callable, Tuple

from . import virtual
from .faults import BoardError
from .libraries import Finder, Library, Survey, identity
from .probes import program, tracefs_mounted
from .settings import Settings
from .tracer import Tracer

_AGAIN_AFTER_S = 10.0
Key = Tuple[str, int, int, int, int]


@dataclass
class Watched:
    """A library and the tracer for it; `retry_s`: when a failed one is tried again."""

    library: Library
    tracer: Tracer
    told: bool = False
    retry_s: float = 0.0

    @property
    def source(self) -> str:
        """The name of the library's calls: a rebuilt file has another one."""
        return f"{self.library.path}#{self.library.identity[1]}.{self.library.identity[2]}"


class Watch:
    """The tracers. `search` brings them up to date; `close` ends them all."""

    def __init__(
        self,
        settings: Settings,
        selector: selectors.BaseSelector,
        say: Callable[[str], None],
        on_end: Callable[[str], None],
    ) -> None:
        self._settings = settings
        self._selector = selector
        self._say = say
        self._on_end = on_end
        self._finder = Finder(settings)
        self._watched: dict[Key, Watched] = {}
        self._said: set[str] = set()
        # Processes that do not count: asked once in a search, since each of their calls comes here.
        self._others: set[int] = set()
        self.survey = Survey()
        self._lacking: list[str] = []

    def counts(self, pid: int) -> bool:
        """Whether the process counts; a new one is looked at now."""
        if pid in self._others:
            return False
        if pid not in self.survey.counted:
            found = self._finder.classify(pid)
            if found is None:
                self._others.add(pid)
                return False
            self.survey.counted[pid] = found
        return True

    def libraries(self) -> list[Watched]:
        """All that is watched, or was tried to."""
        return list(self._watched.values())

    def changed_on_disk(self) -> bool:
        """Whether a watched file is another one now; cheap."""
        return any(identity(key[0]) != key[1:] for key in self._watched)

    def search(self, now_s: float) -> None:
        """Looks around once, starts and ends tracers, and says what is new."""
        self.survey = self._finder.survey()
        self._others.clear()
        wanted = {(library.path, *library.identity): library for library in self.survey.libraries.values()}
        still_run = {(path, inode) for _, path, inode in self.survey.replaced}
        for key in list(self._watched):
            if key not in wanted and (key[0], key[2]) not in still_run:
                self._drop(key, "it is gone or nobody that counts runs it")
        for key, library in wanted.items():
            self._start(key, library, now_s)
        known = {(key[0], key[2]) for key in self._watched}
        self._lacking = self.survey.problems + [
            f"process {pid} runs a {path} that was replaced before it could be watched; restart that process"
            for pid, path, inode in self.survey.replaced
            if (path, inode) not in known
        ]
        self._tell()

    @property
    def problems(self) -> list[str]:
        """What cannot be watched now, and why."""
        failed = {
            f"{one.library.path} cannot be watched: {one.tracer.why}"
            for one in self._watched.values()
            if one.tracer.state == "failed"
        }
        return sorted(failed.union(self._lacking))

    def _tell(self) -> None:
        problems = self.problems
        for problem in problems:
            if problem not in self._said:
                self._say(problem)
        self._said = set(problems)

    def _start(self, key: Key, library: Library, now_s: float) -> None:
        old = self._watched.get(key)
        if old is not None:
            if old.tracer.state != "failed" or now_s < old.retry_s:
                return
            self._forget(key)
        try:
            text = program(library.path, library.symbols, exits=tracefs_mounted())
            tracer = Tracer(self._settings.bpftrace, text)
        except BoardError as error:
            self.survey.problems.append(str(error))
            return
        except OSError as error:
            self.survey.problems.append(
                f"{self._settings.bpftrace} cannot be started: {error.strerror}; install the package bpftrace, "
                "or set GPU_FLOOR_BPFTRACE"
            )
            return
        self._watched[key] = Watched(library, tracer, retry_s=now_s + _AGAIN_AFTER_S)
        self._selector.register(tracer.fileno(), selectors.EVENT_READ, self._watched[key])
        if old is None:
            for name in library.missing:
                self._say(f"{library.path} has no {name}: it is not probed")

    def tell_attached(self, one: Watched) -> None:
        """Says once that the library is watched now, or that its tracer has failed."""
        if one.tracer.state == "failed":
            self._unregister(one)
            self._on_end(one.source)
            self._tell()
        elif one.tracer.state == "watching" and not one.told:
            one.told = True
            self._say(f"watching {', '.join(one.library.symbols)} of {one.library.path}")

    def _unregister(self, one: Watched) -> None:
        try:
            self._selector.unregister(one.tracer.fileno())
        except KeyError:
            pass  # it had failed before, and was unregistered then

    def _forget(self, key: Key) -> None:
        one = self._watched.pop(key)
        self._unregister(one)
        one.tracer.close()
        self._on_end(one.source)

    def _drop(self, key: Key, why: str) -> None:
        self._forget(key)
        self._say(f"no longer watching {key[0]}: {why}")

    def close(self) -> None:
        """Ends all tracers; their probes are out of the kernel then."""
        for one in self._watched.values():
            one.tracer.ask_to_end()
        for key in list(self._watched):
            self._forget(key)

    def as_json(self) -> list[dict[str, Any]]:
        """The libraries as the status shows them."""
        return [
            {
                "path": one.library.path,
                "inode": one.library.identity[1],
                "state": one.tracer.state,
                "symbols": list(one.library.symbols),
                "missing": list(one.library.missing),
                "why": one.tracer.why or None,
                "lost_events": one.tracer.lost,
            }
            for one in self._watched.values()
        ]


def why_blind(bpftrace: str) -> str:
    """Why no call can be seen here whatever runs; empty when nothing is known against it."""
    if not _can_start(bpftrace):
        return f"{bpftrace} is not installed: no call can be seen; install the package bpftrace"
    if virtual.here():
        return virtual.why_blind()
    if not _whole_machine():
        return "this is a user namespace (a container): the kernel lets nobody in it see calls"
    return ""


def _can_start(bpftrace: str) -> bool:
    if os.path.sep in bpftrace:
        return os.access(bpftrace, os.X_OK)
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return any(os.access(os.path.join(folder, bpftrace), os.X_OK) for folder in folders)


def _whole_machine() -> bool:
    """Whether root here is the machine's root: the first user namespace maps every user to itself."""
    try:
        with open("/proc/self/uid_map", encoding="ascii") as file:
            return file.read().split() == ["0", "0", "4294967295"]
    except OSError:
        return True  # a kernel without user namespaces
