"""A tree of files in memory: what one virtual board's sysfs holds, and how each file reads and takes a write.

It knows nothing of boards, FUSE or plain files: board modules fill it, `fuse_fs` and `plain_fs` serve it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

Reader = Callable[[], str]
Writer = Callable[[str], None]


@dataclass(frozen=True)
class File:
    """One file. `read` gives its text now and may raise OSError; `write` takes the stripped text and may raise OSError.

    `slow`: the write may take seconds, so it must not run under the board's lock.
    `fixed`: the text never changes (it may be cached, and has a true size).
    `open_for_write`: called at such an open; may raise OSError, like a file on a read-only mount.
    """

    mode: int
    read: Reader | None
    write: Writer | None = None
    slow: bool = False
    fixed: bytes | None = None
    open_for_write: Callable[[], None] | None = None


@dataclass(frozen=True)
class Link:
    """A symbolic link, with its target as written."""

    target: str


@dataclass
class Directory:
    """A folder, by name."""

    entries: dict[str, Entry] = field(default_factory=dict)


Entry = File | Link | Directory


def refuse(number: int, why: str = "") -> OSError:
    """The OSError that a kernel file would fail with."""
    return OSError(number, why or os.strerror(number))


class Tree:
    """The files of one board. Paths are relative, like `sys/class/thermal/thermal_zone0/temp`."""

    def __init__(self) -> None:
        self.root = Directory()

    def directory(self, path: str) -> Directory:
        """The folder at `path`; made, with its parents, when it does not exist."""
        here = self.root
        for part in path.split("/") if path else ():
            entry = here.entries.setdefault(part, Directory())
            if not isinstance(entry, Directory):
                raise ValueError(f"{path}: {part} is not a folder")
            here = entry
        return here

    def add(self, path: str, entry: File | Link) -> None:
        """Put one file or link at `path`; a second one at the same path is a mistake."""
        parent, _, name = path.rpartition("/")
        entries = self.directory(parent).entries
        if name in entries:
            raise ValueError(f"{path} is already there")
        entries[name] = entry

    def live(self, path: str, read: Callable[[], object], write: Writer | None = None, mode: int | None = None) -> None:
        """A file whose text is `read()` plus a newline; 0444, or 0644 with a `write`."""
        shown = mode if mode is not None else (0o444 if write is None else 0o644)
        self.add(path, File(shown, lambda: f"{read()}\n", write))

    def fixed(self, path: str, text: str | bytes, mode: int = 0o444) -> None:
        """A file that never changes, exactly these bytes."""
        data = text if isinstance(text, bytes) else text.encode()
        self.add(path, File(mode, lambda: data.decode(), None, fixed=data))

    def line(self, path: str, value: object, mode: int = 0o444) -> None:
        """A fixed file of one line."""
        self.fixed(path, f"{value}\n", mode)

    def link(self, path: str, target: str) -> None:
        """A symbolic link."""
        self.add(path, Link(target))

    def find(self, path: str) -> Entry | None:
        """The entry at `path` (no link is followed), or None."""
        here: Entry = self.root
        for part in path.split("/") if path else ():
            if not isinstance(here, Directory):
                return None
            following = here.entries.get(part)
            if following is None:
                return None
            here = following
        return here

    def walk(self) -> Iterator[tuple[str, Entry]]:
        """Every entry with its path, folders before what is in them."""
        todo: list[tuple[str, Directory]] = [("", self.root)]
        while todo:
            prefix, folder = todo.pop()
            for name, entry in folder.entries.items():
                path = f"{prefix}/{name}" if prefix else name
                yield path, entry
                if isinstance(entry, Directory):
                    todo.append((path, entry))


def whole_number(text: str) -> int:
    """The number that a kernel file takes (decimal, or 0x and 0 forms like `kstrtoul`); anything else is EINVAL."""
    word = text.strip()
    digits = word.removeprefix("+")
    if not digits.isascii() or not digits[:1].isdigit() or "_" in digits:
        raise refuse(errno.EINVAL)
    try:
        if digits[:2].lower() == "0x":
            value = int(digits, 16)
        elif len(digits) > 1 and digits[0] == "0":
            value = int(digits, 8)
        else:
            value = int(digits, 10)
    except ValueError:
        raise refuse(errno.EINVAL) from None
    if value >= 2**64:
        raise refuse(errno.ERANGE)
    return value


def one_of(text: str, allowed: tuple[str, ...]) -> str:
    """The word, when it is one of `allowed`; anything else is EINVAL."""
    word = text.strip()
    if word not in allowed:
        raise refuse(errno.EINVAL)
    return word
