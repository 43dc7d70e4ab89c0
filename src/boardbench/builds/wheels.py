"""Python libraries for boards: wheels that fit a board's Python and processor, fetched once, unpacked, pushed by hash.

Only finished wheels are taken: nothing is built, and nothing of a package runs here. A board needs no pip.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from boardbench.errors import RigError
from boardbench.payload import PayloadFile, hash_file

FORMAT = 1
FETCH_S = 600.0
# Older C libraries than a board's are fine; newer ones are not, and 2.28 is what the oldest board here has.
GLIBC = ("2_28", "2_17")


@dataclass(frozen=True)
class Interpreter:
    """What decides which wheels fit: Python `3.11`, processor `x86_64` or `aarch64`."""

    python: str
    arch: str

    @property
    def tags(self) -> list[str]:
        """pip's options for it."""
        digits = self.python.replace(".", "")
        platforms = [f"manylinux_{version}_{self.arch}" for version in GLIBC] + [f"manylinux2014_{self.arch}"]
        abis = [f"cp{digits}", "abi3", "none"]
        options = [f"--platform={platform}" for platform in platforms] + [f"--abi={abi}" for abi in abis]
        return [*options, f"--python-version={self.python}", "--implementation=cp"]


def libraries(requirements: Sequence[str], wanted: Interpreter) -> dict[str, object]:
    """What these pins mean for an interpreter: `{"python", "arch", "wheels": [..]}`, as a board records it."""
    return {"python": wanted.python, "arch": wanted.arch, "wheels": sorted(requirements)}


def key_of(requirements: Sequence[str], wanted: Interpreter) -> str:
    """The folder's name: a hash of all that is asked for."""
    asked = {"format": FORMAT, **libraries(requirements, wanted)}
    return "wheels-" + hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:32]


def stored(requirements: Sequence[str], wanted: Interpreter, cache: Path) -> bool:
    """Whether the cache has these libraries."""
    return (cache / "builds" / key_of(requirements, wanted)).is_dir()


def ensure(requirements: Sequence[str], wanted: Interpreter, cache: Path) -> list[PayloadFile]:
    """The unpacked files of these pinned wheels, sorted; fetched first when the cache lacks them.

    Raises RigError when they cannot be had or the cache cannot be written.
    """
    folder = cache / "builds" / key_of(requirements, wanted)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _locked(folder.with_name(f"{folder.name}.lock")):
            if not folder.is_dir():
                _make(requirements, wanted, folder)
        return [_file(folder, path) for path in sorted(folder.rglob("*")) if path.is_file()]
    except OSError as error:
        raise RigError(
            f"Python libraries cannot be stored: {error.strerror or error}", where=str(error.filename or folder)
        ) from error


def _file(folder: Path, path: Path) -> PayloadFile:
    size, sha256 = hash_file(path)
    mode = "0755" if os.access(path, os.X_OK) else "0644"
    return PayloadFile(path, path.relative_to(folder).as_posix(), mode, size, sha256)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _make(requirements: Sequence[str], wanted: Interpreter, folder: Path) -> None:
    work = Path(tempfile.mkdtemp(prefix=f"{folder.name}.partial-", dir=folder.parent))
    try:
        _fetch(requirements, wanted, work / "wheels")
        files = work / "files"
        files.mkdir()
        for wheel in sorted((work / "wheels").glob("*.whl")):
            unpack(wheel, files)
        files.chmod(0o755)
        files.rename(folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _fetch(requirements: Sequence[str], wanted: Interpreter, target: Path) -> None:
    """`pip download`: wheels alone, exactly those that are named."""
    argv = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check"]
    argv += ["--no-deps", "--only-binary=:all:", *wanted.tags, "--dest", str(target), "--", *requirements]
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=FETCH_S, check=False, env={**os.environ, "LC_ALL": "C"}
        )
    except subprocess.TimeoutExpired:
        raise RigError(f"fetching Python libraries took longer than {FETCH_S:.0f} s") from None
    if done.returncode != 0:
        said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        why = said[-1].removeprefix("ERROR: ") if said else f"pip ended with code {done.returncode}"
        raise RigError(
            f"the libraries {', '.join(requirements)} for Python {wanted.python} on {wanted.arch} cannot be had: {why}",
            advice="is there a network, and a wheel for that Python?",
        )


def unpack(wheel: Path, target: Path) -> None:
    """A wheel's files into a folder, as an import sees them. Raises RigError for one that leads out of it."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            for entry in archive.infolist():
                path = _place(PurePosixPath(entry.filename), wheel)
                if path is None or entry.is_dir():
                    continue
                out = target / path
                out.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(entry) as source, out.open("wb") as file:
                    shutil.copyfileobj(source, file)
                out.chmod(0o755 if out.suffix == ".so" else 0o644)
    except zipfile.BadZipFile:
        raise RigError("a wheel came damaged", where=wheel.name, advice="try again") from None


def _place(path: PurePosixPath, wheel: Path) -> PurePosixPath | None:
    if path.is_absolute() or ".." in path.parts:
        raise RigError(f"a wheel holds the path {path}", where=wheel.name)
    if path.parts and re.fullmatch(r".+\.data", path.parts[0]):
        # Libraries of one platform may lie here; scripts and headers are of no use to an import.
        inside = path.parts[1:]
        return PurePosixPath(*inside[1:]) if inside[:1] in (("purelib",), ("platlib",)) and inside[1:] else None
    return path


def interpreter_of(facts: Any, where: str) -> Interpreter:
    """From a board's facts. Raises RigError when it does not tell."""
    found = facts if isinstance(facts, Mapping) else {}
    match = re.match(r"(3\.\d+)\.", str(found.get("python")))
    arch = found.get("arch")
    if match is None or not isinstance(arch, str):
        raise RigError("the board does not say which Python it has", where=where)
    return Interpreter(match[1], arch)
