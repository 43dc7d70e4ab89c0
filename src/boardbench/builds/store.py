"""Where builds lie: a folder each, named by the hash of all that decides it, complete once it is there.

<cache>/builds/<key>/files/...     what was made
<cache>/builds/<key>/build.json    what it was made from, its files with size and hash
<cache>/builds/<key>.lock          held while it is made; <key>.log is what the tools said when that failed

A build that nobody asked for in UNUSED_DAYS goes when another one is made: each edit of a patch makes one of some
hundred megabytes.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from boardbench.errors import RigError
from boardbench.payload import hash_file

# Of the folders, and of how everything is made: it goes up when `steps` does something else.
FORMAT = 1
MANIFEST = "build.json"
FILES = "files"
_KEY_DIGITS = 32
_ASK_S = 0.5
UNUSED_DAYS = 60


def key_of(inputs: Mapping[str, object]) -> str:
    """The name of a build: a hash over everything that decides its bytes."""
    text = json.dumps({"format": FORMAT, **inputs}, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:_KEY_DIGITS]


@dataclass(frozen=True)
class BuiltFile:
    """A file of a build: its name in it, whether it is a program, its size and hash."""

    name: str
    path: Path
    executable: bool
    size: int
    sha256: str


@dataclass(frozen=True)
class Built:
    """A complete build. `folder` holds its files."""

    key: str
    folder: Path
    files: tuple[BuiltFile, ...]
    facts: Mapping[str, Any]


class Store:
    """The builds of one cache folder."""

    def __init__(self, cache: Path) -> None:
        self.folder = cache / "builds"
        self.cache = cache

    def find(self, key: str) -> Built | None:
        """The build of this name, with every file's hash checked; None when it is not there or damaged."""
        folder = self.folder / key
        # When it was last asked for. In a cache that is another user's, its owner's own asking counts.
        with suppress(OSError):
            os.utime(folder / MANIFEST)
        try:
            manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
            files = tuple(_checked(folder / FILES, entry) for entry in manifest["files"])
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return Built(key, folder / FILES, files, manifest)

    def has(self, key: str) -> bool:
        """Whether it is there, without looking into its files."""
        return (self.folder / key / MANIFEST).is_file()

    def make(
        self,
        key: str,
        facts: Mapping[str, object],
        needs_bytes: int,
        waits: Callable[[], None],
        produce: Callable[[Path], Mapping[str, object]],
    ) -> Built:
        """The build of this name, made first when it is not there. Two makers wait for each other.

        `waits` is called again and again while somebody else is making the same. `produce(work)` leaves the files in
        `work/files` and returns further facts. The folder is renamed when whole.
        Raises RigError when the disk has no room, and whatever `produce` raises; nothing but a log is left then.
        """
        self._ready()
        with _locked(self.folder / f"{key}.lock", waits):
            if (found := self.find(key)) is not None:
                return found
            self._room(needs_bytes)
            # Nobody else holds the lock, so what lies there was left by a maker that was killed, or was damaged.
            for left in [*self.folder.glob(f"{key}.partial-*"), self.folder / key]:
                shutil.rmtree(left, ignore_errors=True)
            work = Path(tempfile.mkdtemp(prefix=f"{key}.partial-", dir=self.folder))
            try:
                more = produce(work)
                self._seal(work, key, {**facts, **more})
            except OSError as error:
                raise RigError(
                    f"a build cannot be stored: {error.strerror or error}",
                    where=str(error.filename or self.folder),
                    advice="make room there, or set XDG_CACHE_HOME to a larger disk",
                ) from error
            finally:
                shutil.rmtree(work, ignore_errors=True)
        made = self.find(key)
        if made is None:
            raise RigError("a build was damaged while it was stored", where=str(self.folder / key))
        self._drop_unused()
        return made

    def _drop_unused(self) -> None:
        """Removes builds that nobody has asked for in a long time; one that is being made anew just now stays."""
        before = time.time() - UNUSED_DAYS * 86_400
        for manifest in self.folder.glob(f"*/{MANIFEST}"):
            # What is somebody else's, or was removed by somebody else meanwhile, is not ours to remove.
            with suppress(OSError), (self.folder / f"{manifest.parent.name}.lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if manifest.stat().st_mtime < before:
                    shutil.rmtree(manifest.parent)

    def log(self, key: str) -> Path:
        """Where the tools' own words go while the build is made, and stay when it fails."""
        return self.folder / f"{key}.log"

    def _ready(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RigError(
                f"the folder of builds cannot be made: {error.strerror}",
                where=str(self.folder),
                advice="set XDG_CACHE_HOME to a folder of yours",
            ) from None

    def _room(self, needs_bytes: int) -> None:
        free = shutil.disk_usage(self.folder).free
        if free < needs_bytes:
            raise RigError(
                f"a build needs {needs_bytes / 1e6:,.0f} MB and {free / 1e6:,.0f} MB are free",
                where=str(self.folder),
                advice="make room there, or set XDG_CACHE_HOME to a larger disk",
            )

    def _seal(self, work: Path, key: str, facts: Mapping[str, object]) -> None:
        for left in work.iterdir():
            if left.name != FILES:
                _remove(left)
        files = [_entry(work / FILES, path) for path in sorted((work / FILES).rglob("*")) if path.is_file()]
        text = json.dumps({**facts, "key": key, "files": files}, sort_keys=True, indent=1, allow_nan=False) + "\n"
        (work / MANIFEST).write_text(text, encoding="utf-8")
        _flush(work)
        work.chmod(0o755)
        work.rename(self.folder / key)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def _flush(work: Path) -> None:
    """What a rename makes visible must be on the disk before it."""
    for path in work.rglob("*"):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _entry(folder: Path, path: Path) -> dict[str, object]:
    size, sha256 = hash_file(path)
    return {
        "name": str(path.relative_to(folder)),
        "executable": os.access(path, os.X_OK),
        "size": size,
        "sha256": sha256,
    }


def _checked(folder: Path, entry: Mapping[str, Any]) -> BuiltFile:
    path = folder / entry["name"]
    if hash_file(path) != (entry["size"], entry["sha256"]):
        raise ValueError(path)
    return BuiltFile(entry["name"], path, bool(entry["executable"]), int(entry["size"]), str(entry["sha256"]))


@contextmanager
def _locked(path: Path, waits: Callable[[], None]) -> Iterator[None]:
    with path.open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                waits()
                time.sleep(_ASK_S)
        yield
