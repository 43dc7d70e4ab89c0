"""Applies patches exactly: every line of context must be there, only its place in the file may have moved.

A looser match is how a patch lands in the wrong function. What does not fit is told by patch, file and hunk.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from boardbench.errors import InputError

_HUNK = re.compile(rb"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_NOWHERE = "/dev/null"
_SKIPPED = (b"diff ", b"index ", b"new file mode", b"deleted file mode", b"old mode", b"new mode")
_REFUSED = (b"rename from", b"copy from", b"GIT binary patch", b"Binary files")


@dataclass(frozen=True)
class Hunk:
    """Lines (with their ends) that must be there, lines that take their place, and where (from 1) they should be."""

    number: int
    at: int
    old: tuple[bytes, ...]
    new: tuple[bytes, ...]


@dataclass(frozen=True)
class FilePatch:
    """The hunks of one file; `old` None for a new file, `new` None for one that goes."""

    old: str | None
    new: str | None
    hunks: tuple[Hunk, ...]


def apply(tree: Path, patches: Sequence[Path]) -> None:
    """Apply patches in order to the files of a tree. InputError names patch, file and hunk of what does not fit."""
    for patch in patches:
        for change in parse(patch):
            _change(tree, patch, change)


def parse(patch: Path) -> tuple[FilePatch, ...]:
    """The changes of a unified diff (of git or diff -urN); InputError with file:line for one that is broken."""
    try:
        lines = patch.read_bytes().splitlines(keepends=True)
    except OSError as error:
        raise InputError(f"the patch cannot be read: {error.strerror}", where=str(patch)) from None
    found: list[FilePatch] = []
    at = 0
    while at < len(lines):
        line = lines[at]
        if line.startswith(_REFUSED):
            raise _broken(patch, at, "renames, copies and binary files are not understood")
        if line.startswith(b"--- ") and at + 1 < len(lines) and lines[at + 1].startswith(b"+++ "):
            old, new = _name(line, patch, at), _name(lines[at + 1], patch, at + 1)
            hunks, at = _hunks(lines, at + 2, patch)
            found.append(FilePatch(old, new, hunks))
            continue
        if line.startswith(b"@@ "):
            raise _broken(patch, at, "a hunk belongs to no file")
        at += 1
    if not found:
        raise InputError("the patch changes nothing", where=str(patch), advice="make it with git diff or diff -urN")
    return tuple(found)


def _name(line: bytes, patch: Path, at: int) -> str | None:
    name = line[4:].split(b"\t")[0].strip().decode("utf-8", "replace")
    if name == _NOWHERE:
        return None
    parts = PurePosixPath(name).parts
    if len(parts) < 2 or ".." in parts or name.startswith("/"):
        raise _broken(patch, at, f"'{name}' does not begin with a/ or b/")
    return str(PurePosixPath(*parts[1:]))


def _hunks(lines: Sequence[bytes], at: int, patch: Path) -> tuple[tuple[Hunk, ...], int]:
    hunks: list[Hunk] = []
    while at < len(lines) and (head := _HUNK.match(lines[at])):
        wanted = [int(head[2] or 1), int(head[4] or 1)]
        old: list[bytes] = []
        new: list[bytes] = []
        begin, at = at, at + 1
        while [len(old), len(new)] != wanted or (at < len(lines) and lines[at].startswith(b"\\")):
            if at >= len(lines) or len(old) > wanted[0] or len(new) > wanted[1]:
                raise _broken(patch, begin, "the hunk does not have as many lines as it says")
            _line(lines[at], lines[at - 1][:1], old, new, patch, at)
            at += 1
        hunks.append(Hunk(len(hunks) + 1, int(head[1]), tuple(old), tuple(new)))
    return tuple(hunks), at


def _line(line: bytes, before: bytes, old: list[bytes], new: list[bytes], patch: Path, at: int) -> None:
    sign, text = line[:1], line[1:]
    if sign == b"\\":  # the line before has no newline at its end
        for side in {b"-": (old,), b"+": (new,)}.get(before, (old, new)):
            if side:
                side[-1] = side[-1].removesuffix(b"\n")
    elif sign == b"-":
        old.append(text)
    elif sign == b"+":
        new.append(text)
    elif sign in (b" ", b"\n"):  # mail programs cut the blank of an empty line
        old.append(text if sign == b" " else line)
        new.append(text if sign == b" " else line)
    else:
        raise _broken(patch, at, "a line of a hunk begins with none of ' ', '+', '-'")


def _broken(patch: Path, at: int, why: str) -> InputError:
    return InputError(f"the patch is broken: {why}", where=f"{patch}:{at + 1}", advice="make it anew")


def _change(tree: Path, patch: Path, change: FilePatch) -> None:
    name = change.old or change.new
    assert name is not None
    path = tree / name
    if change.old is None:
        if path.exists():
            raise _misfit(patch, name, "it adds a file that is there already")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"".join(line for hunk in change.hunks for line in hunk.new))
        return
    if not path.is_file():
        raise _misfit(patch, name, "the source has no such file")
    lines = path.read_bytes().splitlines(keepends=True)
    moved = 0
    for hunk in change.hunks:
        # A hunk that only adds names the line before.
        natural = hunk.at - 1 if hunk.old else hunk.at
        begin = _find(lines, hunk.old, natural + moved)
        if begin is None:
            raise _misfit(patch, name, f"hunk {hunk.number} (line {hunk.at}) does not fit")
        moved = begin - natural + len(hunk.new) - len(hunk.old)
        lines[begin : begin + len(hunk.old)] = hunk.new
    if change.new is None:
        path.unlink()
        return
    path.write_bytes(b"".join(lines))


def _find(lines: Sequence[bytes], old: tuple[bytes, ...], expected: int) -> int | None:
    """Where these lines are, nearest to where they should be."""
    if not old:
        return min(max(0, expected), len(lines))
    fits = [at for at in range(len(lines) - len(old) + 1) if tuple(lines[at : at + len(old)]) == old]
    return min(fits, key=lambda at: abs(at - expected), default=None)


def _misfit(patch: Path, name: str, why: str) -> InputError:
    return InputError(
        f"{patch.name} does not fit this source: {name}: {why}",
        where=str(patch),
        advice="use the source that the payload pins, or bring the patch up to your source",
    )
