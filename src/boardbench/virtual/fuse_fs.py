"""Serve the trees of a fleet through one FUSE mount: `MOUNT/BOARD/...`. Every read is computed when it happens."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import shutil
import stat
import subprocess
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from boardbench.virtual.live import LiveBoard
from boardbench.virtual.tree import Directory, Entry, File, Link, Tree, refuse

_MNT_DETACH = 2
_READY_TIMEOUT_S = 10.0
# sysfs shows one page for every file, whatever is in it.
_SHOWN_SIZE = 4096
# Names and modes never change while a fleet lives, so the kernel may keep them.
_CACHE_S = 3600


@dataclass(frozen=True)
class Served:
    """One board's files and the state behind them."""

    board: LiveBoard
    tree: Tree


class MountError(Exception):
    """FUSE cannot be used here; the text says why and what to do."""


class _Operations:
    """The file system calls, as `mfusepy` wants them. A live value keeps its text until reread at 0."""

    use_ns = True

    def __init__(self, boards: Mapping[str, Served]) -> None:
        self.boards = boards
        self.started_ns = time.time_ns()
        self.owner = (os.geteuid(), os.getegid())
        self.ready = threading.Event()
        self._texts: dict[int, bytes] = {}
        self._last_handle = 0
        self._handles = threading.Lock()

    def init(self, path: str) -> None:
        """The mount is there and answers."""
        self.ready.set()

    def _entry(self, path: str) -> tuple[LiveBoard | None, Entry]:
        name, _, rest = path.lstrip("/").partition("/")
        if not name:
            return None, Directory({board: served.tree.root for board, served in self.boards.items()})
        served = self.boards.get(name)
        entry = served.tree.find(rest) if served else None
        if served is None or entry is None:
            raise refuse(errno.ENOENT)
        return served.board, entry

    def _file(self, path: str) -> tuple[LiveBoard, File]:
        board, entry = self._entry(path)
        if board is None or not isinstance(entry, File):
            raise refuse(errno.EISDIR)
        return board, entry

    def getattr(self, path: str, fh: object = None) -> dict[str, int]:
        """Attributes of an entry."""
        _, entry = self._entry(path)
        if isinstance(entry, Directory):
            mode, links, size = stat.S_IFDIR | 0o755, 2, 0
        elif isinstance(entry, Link):
            mode, links, size = stat.S_IFLNK | 0o777, 1, len(entry.target)
        else:
            mode, links = stat.S_IFREG | entry.mode, 1
            size = _SHOWN_SIZE if entry.fixed is None else len(entry.fixed)
        when = self.started_ns
        return {
            "st_mode": mode,
            "st_nlink": links,
            "st_size": size,
            "st_uid": self.owner[0],
            "st_gid": self.owner[1],
            "st_mtime": when,
            "st_ctime": when,
            "st_atime": when,
        }

    def readdir(self, path: str, fh: int) -> list[str]:
        """Names in a folder."""
        _, entry = self._entry(path)
        if not isinstance(entry, Directory):
            raise refuse(errno.ENOTDIR)
        return [".", "..", *entry.entries]

    def readlink(self, path: str) -> str:
        """Where a link points."""
        _, entry = self._entry(path)
        if not isinstance(entry, Link):
            raise refuse(errno.EINVAL)
        return entry.target

    def open(self, path: str, info: Any) -> int:
        """Open a file; a file without a writer refuses writing even to root, as sysfs does."""
        _, entry = self._file(path)
        wants_write = info.flags & os.O_ACCMODE != os.O_RDONLY
        if wants_write and entry.write is None:
            raise refuse(errno.EACCES)
        if wants_write and entry.open_for_write is not None:
            entry.open_for_write()
        if info.flags & os.O_ACCMODE != os.O_WRONLY and entry.read is None:
            raise refuse(errno.EACCES)
        with self._handles:
            self._last_handle += 1
            info.fh = self._last_handle
        if entry.fixed is None:
            info.direct_io = 1
        else:
            info.keep_cache = 1
        return 0

    def read(self, path: str, size: int, offset: int, info: Any) -> bytes:
        """The file's text; made new at offset 0, and kept for the rest of that read."""
        board, entry = self._file(path)
        if entry.fixed is not None:
            return entry.fixed[offset : offset + size]
        if entry.read is None:
            raise refuse(errno.EACCES)
        if offset == 0 or info.fh not in self._texts:
            with board.lock:
                board.advance()
                self._texts[info.fh] = entry.read().encode()
        return self._texts[info.fh][offset : offset + size]

    def write(self, path: str, data: bytes, offset: int, info: Any) -> int:
        """Hand a whole write to the file; its refusal is the caller's errno."""
        board, entry = self._file(path)
        if entry.write is None:
            raise refuse(errno.EACCES)
        try:
            text = data.decode("ascii").strip()
        except UnicodeDecodeError:
            raise refuse(errno.EINVAL) from None
        if entry.slow:
            entry.write(text)
        else:
            with board.lock:
                board.advance()
                entry.write(text)
        return len(data)

    def truncate(self, path: str, length: int, fh: object = None) -> int:
        """Shells truncate before they write: nothing happens, as in sysfs."""
        _, entry = self._file(path)
        if entry.write is None:
            raise refuse(errno.EACCES)
        return 0

    def release(self, path: str, info: Any) -> int:
        """Forget what an open file had read."""
        self._texts.pop(info.fh, None)
        return 0

    def statfs(self, path: str) -> dict[str, int]:
        """Nothing is stored, so nothing is free."""
        return {"f_bsize": 4096, "f_frsize": 4096, "f_namemax": 255}


def why_not() -> str | None:
    """A reason known without trying why FUSE cannot be used here, or None."""
    try:
        import mfusepy  # noqa: F401
    except ImportError:
        return "the Python package mfusepy is not installed"
    except OSError as error:
        return f"libfuse cannot be loaded ({error}); install the package fuse3"
    try:
        os.close(os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        return f"/dev/fuse cannot be opened ({error.strerror}); load the module fuse or allow access to the device"
    if os.geteuid() != 0 and _fusermount() is None:
        return "fusermount3 is not installed, and only root can mount without it; install the package fuse3"
    return None


class FuseMount:
    """A running mount. `FuseMount.start` returns when it answers; `stop` unmounts it."""

    def __init__(self, mount: Path, thread: threading.Thread) -> None:
        self.mount = mount
        self._thread = thread

    @classmethod
    def start(cls, mount: Path, boards: Mapping[str, Served]) -> FuseMount:
        """Mount at `mount` (an empty folder). MountError when it does not work here."""
        if (reason := why_not()) is not None:
            raise MountError(reason)
        operations = _Operations(boards)
        failed: list[BaseException] = []

        def serve() -> None:
            try:
                _mount_and_serve(operations, mount)
            except BaseException as error:  # handed to the thread that waits
                failed.append(error)
            finally:
                operations.ready.set()

        thread = threading.Thread(target=serve, name="fuse", daemon=True)
        thread.start()
        answered = operations.ready.wait(_READY_TIMEOUT_S)
        if failed or not answered or not os.path.ismount(mount):
            detach(mount)
            why = str(failed[0]) if failed else "no answer" if not answered else "the mount ended at once"
            raise MountError(f"mounting FUSE at {mount} failed ({why}); see the messages of libfuse above")
        return cls(mount, thread)

    @property
    def running(self) -> bool:
        """Whether the mount is still served."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """Unmount. Sandboxes that still hold a part of it see it end when this process ends."""
        detach(self.mount)
        self._thread.join(timeout=1.0)


def _mount_and_serve(operations: _Operations, mount: Path) -> None:
    import mfusepy

    options: dict[str, Any] = {"allow_other": True} if os.geteuid() == 0 else {}
    mfusepy.FUSE(
        operations,
        str(mount),
        raw_fi=True,
        foreground=True,
        fsname="boardbench",
        subtype="sysfs",
        default_permissions=True,
        attr_timeout=_CACHE_S,
        entry_timeout=_CACHE_S,
        **options,
    )


def detach(mount: Path) -> bool:
    """Unmount lazily whatever of FUSE is mounted at `mount`; True when something was. Works on a dead mount, too."""
    done = False
    while _is_fuse_mount(mount):
        if os.geteuid() == 0:
            libc = ctypes.CDLL(None, use_errno=True)
            if libc.umount2(os.fsencode(mount), _MNT_DETACH) != 0:
                number = ctypes.get_errno()
                raise OSError(number, f"cannot unmount {mount}: {os.strerror(number)}")
        else:
            tool = _fusermount()
            if tool is None:
                raise OSError(errno.ENOENT, f"cannot unmount {mount}: fusermount3 is not installed")
            with contextlib.suppress(subprocess.CalledProcessError):
                subprocess.run([tool, "-u", "-z", "--", str(mount)], check=True, capture_output=True, timeout=20)
            if _is_fuse_mount(mount):
                raise OSError(errno.EBUSY, f"cannot unmount {mount}: fusermount3 refused")
        done = True
    return done


def _fusermount() -> str | None:
    return shutil.which("fusermount3") or shutil.which("fusermount")


def _is_fuse_mount(mount: Path) -> bool:
    """Asked from the table of mounts: a dead mount cannot even be looked at."""
    wanted = os.path.join(os.path.realpath(mount.parent), mount.name)
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            fields = line.split(" ")
            kind = fields[fields.index("-") + 1]
            place = fields[4].encode("utf-8", "surrogateescape").decode("unicode_escape")
            if place == wanted and kind.split(".")[0] in ("fuse", "fuseblk"):
                return True
    return False
