"""The journal of a scope: what was there before we changed it, on the disk before the change happens."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import time
from typing import TYPE_CHECKING, Any, Iterator

from .failures import BAD_INPUT, RIG, Failure
from .places import Places

if TYPE_CHECKING:
    from .system import System

_SCOPE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z")


def check_scope(scope: object) -> str:
    """The scope's name, or Failure `bad-input`: it becomes a file name."""
    if not isinstance(scope, str) or not _SCOPE.match(scope):
        raise Failure(BAD_INPUT, f"{str(scope)[:80]!r} is not the name of a scope", "scope")
    return scope


class Lock:
    """One change of a board at a time: `apply`, `restore` and `purge` hold it. Gone with the process."""

    def __init__(self, places: Places) -> None:
        self._path = os.path.join(places.run, "changes.lock")

    def __enter__(self) -> Lock:
        os.makedirs(os.path.dirname(self._path), mode=0o755, exist_ok=True)
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._fd)
            raise Failure(
                RIG, "another call is changing this board", self._path, "wait for it, then try again", transient=True
            ) from None
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)


class Journal:
    """The notes of one scope, oldest first. `torn`: the last line was cut off (and so its change never happened)."""

    def __init__(self, places: Places, scope: str) -> None:
        self.scope = check_scope(scope)
        self.path = os.path.join(places.journal, scope + ".jsonl")
        self.files = os.path.join(places.journal, scope + ".files")
        self.notes: list[dict[str, Any]] = []
        self.torn = False
        self._whole_bytes = 0
        self._load()
        self._known = {(note["kind"], note["name"]) for note in self.notes}

    def _load(self) -> None:
        try:
            with open(self.path, "rb") as file:
                content = file.read()
        except FileNotFoundError:
            return
        for line in content.splitlines(keepends=True):
            note = _parse(line)
            if note is None:
                if self._whole_bytes + len(line) < len(content):
                    raise Failure(
                        RIG,
                        f"line {len(self.notes) + 1} of the journal cannot be read",
                        self.path,
                        "look at it by hand: what it noted is not known any more",
                    )
                self.torn = True
                return
            self.notes.append(note)
            self._whole_bytes += len(line)

    def has(self, kind: str, name: str) -> bool:
        """Whether the thing is noted in this scope."""
        return (kind, name) in self._known

    def note(self, kind: str, name: str, system: System) -> None:
        """Notes a thing's state, once, and has it on the disk before it returns."""
        if (kind, name) in self._known:
            return
        from . import things

        self._prepare()
        state = things.load(kind).snapshot(name, system)
        record = {"kind": kind, "name": name, "state": state, "wall_unix_s": round(time.time(), 3)}
        self._append(record)
        self.notes.append(record)
        self._known.add((kind, name))

    def keep_file(self, path: str) -> str:
        """Copies a file that is too large for a line; returns the copy's name in the scope's own folder."""
        self._prepare()
        os.makedirs(self.files, mode=0o700, exist_ok=True)
        name = f"{len(os.listdir(self.files)):06d}"
        copy = os.path.join(self.files, name)
        try:
            with open(path, "rb") as source, open(copy, "xb") as target:
                os.fchmod(target.fileno(), 0o600)
                shutil.copyfileobj(source, target, 1024 * 1024)
                target.flush()
                os.fsync(target.fileno())
        except OSError as error:
            error.filename = error.filename or copy
            raise
        _sync_folder(self.files)
        return name

    def _prepare(self) -> None:
        os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)

    def _append(self, record: dict[str, Any]) -> None:
        line = json.dumps(record, allow_nan=False).encode() + b"\n"
        new = not os.path.exists(self.path)
        fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            # A torn tail of a call that was cut off must not become the middle of the journal.
            os.ftruncate(fd, self._whole_bytes)
            os.lseek(fd, self._whole_bytes, os.SEEK_SET)
            view = memoryview(line)
            while view:
                view = view[os.write(fd, view) :]
            os.fsync(fd)
        except OSError as error:
            error.filename = self.path
            raise
        finally:
            os.close(fd)
        self._whole_bytes += len(line)
        if new:
            _sync_folder(os.path.dirname(self.path))

    def remove(self) -> None:
        """All is as it was: the journal has done its work."""
        shutil.rmtree(self.files, ignore_errors=True)
        try:
            os.unlink(self.path)
        except FileNotFoundError:
            return
        _sync_folder(os.path.dirname(self.path))


def _parse(line: bytes) -> dict[str, Any] | None:
    if not line.endswith(b"\n"):
        return None
    try:
        note = json.loads(line.decode("utf-8"))
    except ValueError:
        return None
    return note if isinstance(note, dict) and {"kind", "name", "state"} <= set(note) else None


def _sync_folder(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def scope_names(places: Places) -> Iterator[str]:
    """The scopes that have something noted, oldest journal first."""
    try:
        names = [name for name in os.listdir(places.journal) if name.endswith(".jsonl")]
    except FileNotFoundError:
        return
    found = []
    for name in names:
        try:
            found.append((os.stat(os.path.join(places.journal, name)).st_mtime, name))
        except FileNotFoundError:
            continue
    for _, name in sorted(found):
        yield name[: -len(".jsonl")]
