"""MANIFEST.sha256: the hash of every file of a campaign, and of the list itself.

The lines are those of `sha256sum`, so `sha256sum -c MANIFEST.sha256` works without us. The last line is a comment
with the hash of the lines above it: a changed manifest is found in the manifest, not blamed on a file.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from boardbench.errors import InputError
from boardbench.results import store
from boardbench.results.problems import Problem

NAME = "MANIFEST.sha256"
_LINE = re.compile(r"([0-9a-f]{64})  ([^\x00-\x1f\\]+)")
_SELF = re.compile(r"# manifest-sha256 ([0-9a-f]{64})")


def files_of(folder: Path) -> list[str]:
    """Names of all files below `folder`, relative, sorted; the manifest itself is left out. Links count as files."""
    found = [p for p in folder.rglob("*") if p.is_symlink() or not p.is_dir()]
    return sorted(p.relative_to(folder).as_posix() for p in found if p != folder / NAME)


def write(folder: Path) -> None:
    """Write the manifest of everything in `folder`; an older one (before a late collect) is replaced."""
    lines = "".join(f"{store.sha256_file(folder / name)}  {name}\n" for name in files_of(folder))
    own = hashlib.sha256(lines.encode("utf-8")).hexdigest()
    store.write_bytes(folder / NAME, f"{lines}# manifest-sha256 {own}\n".encode(), replace=True)


def check(folder: Path) -> list[Problem]:
    """Compare `folder` with its manifest: changed, missing and unknown files, and the manifest itself."""
    try:
        data = (folder / NAME).read_bytes()
    except FileNotFoundError:
        return [Problem(NAME, None, "is missing: the campaign did not come to its end")]
    except OSError as error:
        return [Problem(NAME, None, f"cannot be read: {error.strerror}")]
    listed, problems = _parse(data)
    if problems:
        return problems
    present = set(files_of(folder))
    for name, wanted in sorted(listed.items()):
        path = folder / name
        if name not in present:
            problems.append(Problem(name, None, f"is missing; {NAME} lists it"))
        elif path.is_symlink() or not path.is_file():
            problems.append(Problem(name, None, "is not a plain file"))
        elif store.sha256_file(path) != wanted:
            problems.append(Problem(name, None, f"was changed: its hash is not the one in {NAME}"))
    problems += [Problem(name, None, f"is not in {NAME}") for name in sorted(present - set(listed))]
    return problems


def read(folder: Path) -> tuple[dict[str, str], str]:
    """What the manifest of `folder` lists (name -> hash), and the hash of the manifest itself.

    Raises InputError when it is missing, cannot be read, or was changed.
    """
    try:
        data = (folder / NAME).read_bytes()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(folder / NAME)) from error
    listed, problems = _parse(data)
    if problems:
        raise InputError(problems[0].what, where=str(folder / NAME))
    return listed, hashlib.sha256(data).hexdigest()


def _parse(data: bytes) -> tuple[dict[str, str], list[Problem]]:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return {}, [Problem(NAME, None, "is not UTF-8")]
    *lines, last, rest = ["", *text.split("\n")]
    own = _SELF.fullmatch(last)
    if own is None or rest:
        return {}, [Problem(NAME, None, "does not end with its own hash")]
    body = "".join(f"{line}\n" for line in lines[1:])
    if hashlib.sha256(body.encode("utf-8")).hexdigest() != own.group(1):
        return {}, [Problem(NAME, None, "was changed: its lines do not have the hash in its last line")]
    listed: dict[str, str] = {}
    for number, line in enumerate(lines[1:], start=1):
        match = _LINE.fullmatch(line)
        if match is None or match.group(2) in listed:
            return {}, [Problem(NAME, number, "is not a line of a manifest, or names a file twice")]
        listed[match.group(2)] = match.group(1)
    return listed, []
