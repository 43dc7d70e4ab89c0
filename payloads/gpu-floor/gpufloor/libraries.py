"""Which library files are to be watched now, and what can be probed in each."""

from __future__ import annotations

import glob
import os
from dataclasses import dataclass, field
from typing import Tuple

from . import counting, elf, processes, virtual
from .probes import ENTRY_POINTS
from .settings import Settings

# What makes a file another one: a rebuilt library has another inode, or at least other contents.
Identity = Tuple[int, int, int, int]
# Files whose symbols are remembered.
_REMEMBERED = 256


@dataclass(frozen=True)
class Library:
    """A file with at least one known entry point."""

    path: str
    identity: Identity
    symbols: tuple[str, ...]
    missing: tuple[str, ...]


@dataclass(frozen=True)
class Counted:
    """A process that counts, and why."""

    pid: int
    start_ticks: int
    why: str


@dataclass
class Survey:
    """All that a look around found. `problems`: what cannot be watched, in whole sentences.

    `replaced`: (pid, path, inode) of files that a process runs and that no longer lie there.
    """

    libraries: dict[str, Library] = field(default_factory=dict)
    counted: dict[int, Counted] = field(default_factory=dict)
    replaced: list[tuple[int, str, int]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def identity(path: str) -> Identity | None:
    """What the path is now; None when nothing is there."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size


def _what_to_do() -> str:
    """Why a process may not be looked at here, and what helps."""
    if os.geteuid() != 0:
        return "; become root"
    if virtual.kind() == "bwrap":
        return (
            ": on a virtual board of kind bwrap root may not look into other users' processes; start it as root, or "
            "name its library in GPU_FLOOR_LIBRARIES"
        )
    return "; name its library in GPU_FLOOR_LIBRARIES"


class Finder:
    """Looks around, and remembers what it read of files that have not changed."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._symbols: dict[Identity, tuple[tuple[str, ...], str]] = {}

    def survey(self) -> Survey:
        """The libraries of the settings and of the processes that count."""
        found = Survey()
        for pattern in self._settings.libraries:
            paths = sorted(glob.glob(pattern)) if glob.has_magic(pattern) else [pattern]
            if not any(os.path.exists(path) for path in paths):
                found.problems.append(f"{pattern} of GPU_FLOOR_LIBRARIES is not there (yet)")
            for path in paths:
                self._add(found, path)
        for pid in processes.pids():
            counted = self.classify(pid)
            if counted is not None:
                found.counted[pid] = counted
                self._add_process(found, pid)
        if len(self._symbols) > _REMEMBERED:
            self._symbols.clear()
        return found

    def classify(self, pid: int) -> Counted | None:
        """Why the process counts; None when it does not, or is gone."""
        start = processes.start_ticks(pid)
        argv = processes.command_line(pid)
        if start is None or not argv:
            return None
        why = counting.why_it_counts(
            argv, processes.environment(pid), self._settings.flags, self._settings.override_tensor
        )
        return None if why is None else Counted(pid, start, why)

    def _add_process(self, found: Survey, pid: int) -> None:
        mapped = processes.mapped_libraries(pid)
        if mapped is None:
            found.problems.append(
                f"process {pid} counts and the library that it runs may not be looked at{_what_to_do()}"
            )
            return
        for path, deleted, inode in mapped:
            if deleted:
                found.replaced.append((pid, path, inode))
            elif not processes.same_file_as_here(pid, path):
                found.problems.append(
                    f"process {pid} runs {path} of another file system (a container?): it cannot be watched from here"
                )
            else:
                self._add(found, path)
        if not mapped:
            self._add_program(found, pid)

    def _add_program(self, found: Survey, pid: int) -> None:
        """A program with the library linked into it is watched itself; one that has not loaded it yet comes later."""
        path = processes.executable(pid)
        if path is not None and processes.same_file_as_here(pid, path) and self._symbols_of(path)[0]:
            self._add(found, path)

    def _add(self, found: Survey, path: str) -> None:
        real = os.path.realpath(path)
        what = identity(real)
        if what is None or real in found.libraries:
            return
        symbols, why = self._symbols_of(real)
        if why:
            found.problems.append(f"{real} cannot be watched: {why}")
        elif not symbols:
            found.problems.append(f"{real} cannot be watched: it has none of {', '.join(ENTRY_POINTS)}")
        else:
            missing = tuple(name for name in ENTRY_POINTS if name not in symbols)
            found.libraries[real] = Library(real, what, symbols, missing)

    def _symbols_of(self, path: str) -> tuple[tuple[str, ...], str]:
        what = identity(path)
        if what is None:
            return (), "it is gone"
        if what not in self._symbols:
            try:
                have = elf.functions(path, ENTRY_POINTS)
                self._symbols[what] = tuple(name for name in ENTRY_POINTS if name in have), ""
            except (elf.ElfError, OSError) as error:
                why = error.strerror if isinstance(error, OSError) else str(error)
                return (), str(why)
        return self._symbols[what]
