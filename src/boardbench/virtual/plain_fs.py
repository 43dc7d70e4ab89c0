"""Serve the trees of a fleet as plain files, where FUSE cannot be had. What cannot be had then is said here.

- Live values are rewritten every period, so they are up to a period old. A rewrite is one `pwrite` in place and never
  shortens the file (it is padded with newlines), so a reader never sees an empty or a cut value.
- A write is seen when its file is closed (inotify), or at the next period. There is no EINVAL: an illegal
  value is put back, so that a read-back shows it. `drop_caches` is done soon after the write, not within it.
- Read-only files have mode 0444, which does not hold root back: what root writes there is put back.
- A file whose read fails on the real board is a link to `/proc/self/mem`, whose read at its start fails, too:
  with EIO, whatever the real errno.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import select
import shutil
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from boardbench.virtual.fuse_fs import Served
from boardbench.virtual.live import LiveBoard
from boardbench.virtual.tree import Directory, File, Link

_IN_CLOSE_WRITE = 0x8
_IN_MOVED_TO = 0x80
_EVENT = struct.Struct("iIII")
_EVERY_AT_REST = 10
_FAILING = "/proc/self/mem"


@dataclass
class _Live:
    """One file on disk. `shown` is what we wrote last; `handle` is None while its read is made to fail."""

    board: LiveBoard
    path: Path
    file: File
    handle: int | None = None
    shown: bytes = b""


class PlainFiles:
    """The files on disk. `start` makes them, `refresh` brings them up to date, `take_writes` acts on writes."""

    def __init__(self, root: Path, boards: Mapping[str, Served]) -> None:
        self.root = root
        self._boards = boards
        self._live: list[_Live] = []
        self._fixed: dict[Path, File] = {}
        self._by_board: list[tuple[LiveBoard, list[_Live]]] = []
        self._round = 0
        self._folders: dict[int, Path] = {}
        self._by_path: dict[Path, _Live] = {}
        self._watcher = _Watcher()

    def start(self) -> None:
        """Make all files."""
        for name, served in self._boards.items():
            top = self.root / name
            top.mkdir(parents=True, exist_ok=True)
            with served.board.lock:
                for path, entry in served.tree.walk():
                    self._make(served.board, top / path, entry)
        self._by_path = {live.path: live for live in self._live}
        for served in self._boards.values():
            files = [live for live in self._live if live.board is served.board]
            self._by_board.append((served.board, files))
        for folder in sorted({path.parent for path in (*self._by_path, *self._fixed)}):
            self._folders[self._watcher.watch(folder)] = folder

    def _make(self, board: LiveBoard, path: Path, entry: File | Link | Directory) -> None:
        if isinstance(entry, Directory):
            path.mkdir(exist_ok=True)
        elif isinstance(entry, Link):
            path.symlink_to(entry.target)
        elif entry.fixed is not None:
            _write_fixed(path, entry)
            self._fixed[path] = entry
        else:
            live = _Live(board, path, entry)
            self._show(live)
            self._live.append(live)

    def refresh(self) -> None:
        """Take writes that inotify missed, and bring every live value up to now."""
        self._round += 1
        for board, files in self._by_board:
            with board.lock:
                quiet = board.at_rest
                board.advance()
                # Nothing moves on a board at rest; only a write that was not closed could have been missed.
                if quiet and board.at_rest and self._round % _EVERY_AT_REST:
                    continue
                for live in files:
                    if live.file.write is not None:
                        self._take(live, changed_only=True)
                    self._show(live)

    def take_writes(self, timeout_s: float) -> None:
        """Wait up to `timeout_s` for writes of the boards, and act on them."""
        for watch, name in self._watcher.events(timeout_s):
            path = self._folders.get(watch, self.root) / name
            if path in self._fixed:
                if _content(path) != self._fixed[path].fixed:
                    _write_fixed(path, self._fixed[path])
            elif path in self._by_path:
                self._take_one(self._by_path[path])

    def _take_one(self, live: _Live) -> None:
        if live.file.slow:
            self._take(live, changed_only=False)
        with live.board.lock:
            live.board.advance()
            if not live.file.slow:
                self._take(live, changed_only=False)
            # One setting may show in several files; only its own is written back now, the rest by `refresh`.
            live.shown = b""
            self._show(live)

    def _take(self, live: _Live, *, changed_only: bool) -> None:
        """Hand the file's content to the file's writer, if it is not what we wrote."""
        if live.handle is None or live.file.write is None:
            return
        data = os.pread(live.handle, 4096, 0)
        if changed_only and (data.strip() == live.shown.strip() or not data.strip()):
            return
        # An illegal value is no error of ours: the write-back shows the old one again.
        with contextlib.suppress(OSError, UnicodeDecodeError):
            live.file.write(data.decode("ascii").strip())
            live.board.stir()

    def _show(self, live: _Live) -> None:
        """Write the file's text, if it is not there already."""
        try:
            text = live.file.read().encode() if live.file.read else b"0\n"
        except OSError:
            self._make_fail(live)
            return
        if live.handle is None:
            _make_work(live, text)
        if text.strip() != live.shown.strip() and live.handle is not None:
            size = os.fstat(live.handle).st_size
            os.pwrite(live.handle, text.ljust(size, b"\n"), 0)
            live.shown = text

    def _make_fail(self, live: _Live) -> None:
        if live.handle is None and live.path.is_symlink():
            return
        side = live.path.with_name(f".{live.path.name}.new")
        side.symlink_to(_FAILING)
        side.rename(live.path)
        if live.handle is not None:
            os.close(live.handle)
        live.handle, live.shown = None, b""

    def stop(self) -> None:
        """Close and remove everything."""
        for live in self._live:
            if live.handle is not None:
                os.close(live.handle)
        self._live.clear()
        self._fixed.clear()
        self._watcher.close()
        for name in self._boards:
            shutil.rmtree(self.root / name, ignore_errors=True)


def _make_work(live: _Live, text: bytes) -> None:
    """A regular file, whole when it appears."""
    side = live.path.with_name(f".{live.path.name}.new")
    live.handle = os.open(side, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    os.fchmod(live.handle, live.file.mode)
    os.pwrite(live.handle, text, 0)
    live.shown = text
    side.rename(live.path)


def _write_fixed(path: Path, file: File) -> None:
    # In place, not by rename: a sandbox may have bound this very file.
    if path.exists():
        path.chmod(0o600)
    path.write_bytes(file.fixed or b"")
    path.chmod(file.mode)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


class _Watcher:
    """inotify over ctypes: closes after writing, and files moved in, by folder."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._handle = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._handle < 0:
            self._fail("inotify cannot be had")

    def _fail(self, what: str) -> None:
        number = ctypes.get_errno()
        advice = (
            " (raise fs.inotify.max_user_instances or max_user_watches)"
            if number in (errno.EMFILE, errno.ENOSPC)
            else ""
        )
        raise OSError(number, f"{what}: {os.strerror(number)}{advice}")

    def watch(self, folder: Path) -> int:
        """Watch one folder; its events carry the number that is returned."""
        number = int(self._libc.inotify_add_watch(self._handle, os.fsencode(folder), _IN_CLOSE_WRITE | _IN_MOVED_TO))
        if number < 0:
            self._fail(f"cannot watch {folder}")
        return number

    def events(self, timeout_s: float) -> list[tuple[int, str]]:
        """(watch, file name) of what happened; waits up to `timeout_s` for the first."""
        if not select.select([self._handle], [], [], timeout_s)[0]:
            return []
        try:
            data = os.read(self._handle, 65536)
        except OSError as error:
            if error.errno == errno.EAGAIN:
                return []
            raise
        found, at = [], 0
        while at < len(data):
            watch, _, _, length = _EVENT.unpack_from(data, at)
            at += _EVENT.size
            found.append((watch, data[at : at + length].rstrip(b"\0").decode("utf-8", "surrogateescape")))
            at += length
        return found

    def close(self) -> None:
        """Stop watching."""
        os.close(self._handle)
