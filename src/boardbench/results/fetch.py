"""A run's files from a board into a folder: nothing outside it, nothing that was not announced, every hash checked."""

from __future__ import annotations

import os
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import IO, Any, Protocol, Self

from boardbench.errors import RigError
from boardbench.results import store

MAX_TOTAL_BYTES = 4 * 1024**3
"""No run is this big; a board that announces more is not believed."""
_TAR_BLOCK_BYTES = 512


class DoorLike(Protocol):
    """What everything above the door needs of `boardbench.board.Door`; tests bring doors of their own."""

    def call(
        self,
        verb: str,
        args: Mapping[str, object],
        *,
        deadline_s: float,
        blobs: Mapping[str, Path | bytes] | None = None,
        on_event: Callable[[dict[str, object]], None] | None = None,
        on_data: Callable[[str, bytes], None] | None = None,
    ) -> dict[str, object]:
        """One call of a verb."""
        ...

    def close(self) -> None:
        """End the connection."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def announced(value: object, board: str) -> list[dict[str, Any]]:
    """The `files` of a `finish` result, checked. Raises RigError when it is not a list of safe names with hashes."""
    if not isinstance(value, list):
        raise RigError("the board gave no list of files", where=board)
    total = 0
    for entry in value:
        if not isinstance(entry, dict) or not {"name", "size", "sha256"} <= set(entry):
            raise RigError("the board gave a file without name, size and sha256", where=board)
        _check_name(str(entry["name"]), board)
        total += int(entry["size"])
    if total > MAX_TOTAL_BYTES or len({entry["name"] for entry in value}) != len(value):
        raise RigError("the board announced too many bytes, or a file twice", where=board)
    return value


def _check_name(name: str, board: str) -> None:
    parts = PurePosixPath(name).parts
    plain = name.isprintable() and "\\" not in name and str(PurePosixPath(name)) == name
    if not parts or name.startswith("/") or ".." in parts or not plain or name == "run.json":
        raise RigError(f"the board sent a file under an unsafe name: {name[:80]!r}", where=board)


def fetch(
    door: DoorLike, run: str, files: Sequence[Mapping[str, Any]], folder: Path, *, board: str, deadline_s: float
) -> list[str]:
    """Fetch a run into `folder` (made new, emptied if it is there) and return the names whose bytes are not right.

    Raises RigError for a stream that is not a tar of exactly plain files, and the door's errors.
    """
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    limit = sum(int(entry["size"]) + 4 * _TAR_BLOCK_BYTES for entry in files) + 1024 * 1024
    with tempfile.TemporaryFile(dir=folder.parent) as stream:
        received = 0

        def keep(name: str, data: bytes) -> None:
            nonlocal received
            received += len(data)
            if name != "tar" or received > limit:
                raise RigError("the board sent other data than the files it announced", where=board)
            stream.write(data)

        door.call("fetch", {"run": run}, deadline_s=deadline_s, on_data=keep)
        stream.seek(0)
        _extract(stream, {str(entry["name"]) for entry in files}, folder, board)
    return [
        str(entry["name"])
        for entry in files
        if not (folder / str(entry["name"])).is_file()
        or (folder / str(entry["name"])).stat().st_size != entry["size"]
        or store.sha256_file(folder / str(entry["name"])) != entry["sha256"]
    ]


def _extract(stream: IO[bytes], wanted: set[str], folder: Path, board: str) -> None:
    """By hand, since only one kind of member is allowed and its name decides where it goes."""
    seen: set[str] = set()
    try:
        with tarfile.open(fileobj=stream, mode="r:") as tar:
            for member in tar:
                name = member.name.removeprefix("./")
                if member.isdir():
                    continue
                if not member.isreg():
                    raise RigError(f"the board sent something that is no plain file: {name[:80]!r}", where=board)
                _check_name(name, board)
                if name in seen:
                    raise RigError(f"the board sent a file twice: {name!r}", where=board)
                seen.add(name)
                if name in wanted:  # a file that was not announced has no hash to check it by: left on the board
                    source = tar.extractfile(member)
                    if source is None:
                        raise RigError(f"no bytes for {name!r} in the board's stream", where=board)
                    _write(source, folder / name)
    except tarfile.TarError as error:
        raise RigError(f"the board's files did not come whole: {error}", where=board, transient=True) from error
    except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
        raise RigError("the board sent a name that is both a file and a folder", where=board) from error


def _write(source: IO[bytes], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as target:
        shutil.copyfileobj(source, target, 1024 * 1024)
        target.flush()
        os.fsync(target.fileno())
