"""A path: absent, a file, a symbolic link or a folder, with content, mode, owner and the file's time."""

from __future__ import annotations

import base64
import hashlib
import os
import stat
from typing import Any

from ..failures import RIG, Failure
from ..system import System
from . import Restored

INLINE_BYTES = 1024 * 1024
PARTIAL = ".boardbench-partial"


def snapshot(name: str, system: System) -> dict[str, Any]:
    """The state of `name` (absolute, as the board names it); Failure for what cannot be put back, like a device."""
    state, found = _seen(name, system)
    if state["type"] == "special":
        raise Failure(RIG, "neither a file, a link nor a folder: it could not be put back", name)
    if found is None:
        return state
    path = system.places.at(name)
    state.update(size=found.st_size, mtime_ns=found.st_mtime_ns, sha256=sha256_of(path))
    if found.st_size <= INLINE_BYTES:
        with open(path, "rb") as file:
            state["content"] = base64.b64encode(file.read()).decode("ascii")
    elif system.journal is not None:
        state["kept"] = system.journal.keep_file(path)
    return state


def current(name: str, system: System) -> dict[str, Any]:
    """Like `snapshot`, but only looks: nothing is copied, and what is no file is said."""
    state, found = _seen(name, system)
    if found is not None:
        state.update(size=found.st_size, sha256=hash_now(system.places.at(name), found, system))
    return state


def _seen(name: str, system: System) -> tuple[dict[str, Any], os.stat_result | None]:
    """Type, mode, owner and a link's target; and of a file, for which there is more, what the kernel says."""
    path = system.places.at(name)
    try:
        found = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return {"type": "absent"}, None
    state: dict[str, Any] = {"mode": stat.S_IMODE(found.st_mode), "uid": found.st_uid, "gid": found.st_gid}
    if stat.S_ISLNK(found.st_mode):
        return dict(state, type="symlink", target=os.readlink(path)), None
    if stat.S_ISREG(found.st_mode):
        return dict(state, type="file"), found
    return dict(state, type="directory" if stat.S_ISDIR(found.st_mode) else "special"), None


def sha256_of(path: str) -> str:
    """The SHA-256 of a file's content, in hexadecimal."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for piece in iter(lambda: file.read(1024 * 1024), b""):
            digest.update(piece)
    return digest.hexdigest()


def hash_now(path: str, found: os.stat_result, system: System) -> str:
    """The hash of a file, computed once a call as long as it stays the same file, unchanged (inode, size, times).

    Whatever is installed is a new file with a new inode, so the proof after a change always reads the disk.
    """
    key = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
    if key not in system.hashes:
        system.hashes[key] = sha256_of(path)
    return system.hashes[key]


def describe(state: dict[str, Any]) -> str:
    """A state in words."""
    kind = str(state["type"])
    if kind == "absent":
        return kind
    if kind == "symlink":
        return f"symlink to {state['target']}"
    access = f"{state['mode']:04o} {state['uid']}:{state['gid']}"
    return f"{kind} {access}" if kind == "directory" else f"file {state['sha256'][:12]} {access}"


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two states are the same for whoever uses the path (a file's time does not count)."""
    if one["type"] != other["type"]:
        return False
    if one["type"] == "absent":
        return True
    if one["type"] == "symlink":
        return bool(one["target"] == other["target"])
    keys = ["mode", "uid", "gid"] + (["sha256"] if one["type"] == "file" else [])
    return all(one[key] == other[key] for key in keys)


def restore(name: str, state: dict[str, Any], system: System, files: str) -> Restored:
    """Puts a path back. A folder that we made goes only when nothing is left in it."""
    now = current(name, system)
    before = describe(now)
    if same(now, state):
        return Restored(before, before, True)
    path = system.places.at(name)
    try:
        if now["type"] == "directory" and state["type"] != "directory":
            inside = sorted(os.listdir(path))
            if inside:
                return Restored(before, before, False, f"not empty, so it stays: {', '.join(inside[:5])}")
            os.rmdir(path)
        elif state["type"] in ("absent", "directory") and now["type"] not in ("absent", "directory"):
            os.unlink(path)
        _make(path, state, files)
    except OSError as error:
        return Restored(before, describe(current(name, system)), False, error.strerror or str(error))
    after = current(name, system)
    good = same(after, state)
    return Restored(before, describe(after), good, "" if good else f"it should read {describe(state)}")


def _make(path: str, state: dict[str, Any], files: str) -> None:
    if state["type"] == "absent":
        return
    # A folder that went too is noted before what was in it, so it gets its own mode and owner after this.
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if state["type"] == "symlink":
        partial = path + PARTIAL
        if os.path.lexists(partial):
            os.unlink(partial)
        os.symlink(state["target"], partial)
        os.lchown(partial, state["uid"], state["gid"])
        os.rename(partial, path)
    elif state["type"] == "directory":
        os.makedirs(path, exist_ok=True)
        own(path, state["mode"], state["uid"], state["gid"])
    else:
        write(path, content_of(state, files), state["mode"], state["uid"], state["gid"])
        os.utime(path, ns=(state["mtime_ns"], state["mtime_ns"]))


def content_of(state: dict[str, Any], files: str) -> bytes | str:
    """A noted file's content: the bytes, or the path of the journal's copy."""
    if "content" in state:
        return base64.b64decode(state["content"])
    return os.path.join(files, state["kept"])


def own(path: str, mode: int | None, uid: int, gid: int) -> None:
    """Sets owner and mode, in this order (a change of owner clears set-user-id bits); -1 leaves an id alone."""
    found = os.stat(path)
    if (uid not in (-1, found.st_uid)) or (gid not in (-1, found.st_gid)):
        os.chown(path, uid, gid)
    if mode is not None:
        os.chmod(path, mode)


def write(path: str, content: bytes | str, mode: int, uid: int, gid: int) -> None:
    """Puts a file in place whole or not at all. `content`: bytes, or the path of a file to copy."""
    partial = os.path.join(os.path.dirname(path), "." + os.path.basename(path) + PARTIAL)
    try:
        with open(partial, "wb") as target:
            os.fchmod(target.fileno(), 0o600)
            if isinstance(content, bytes):
                target.write(content)
            else:
                with open(content, "rb") as source:
                    for piece in iter(lambda: source.read(1024 * 1024), b""):
                        target.write(piece)
            target.flush()
            own(partial, mode, uid, gid)
            os.fsync(target.fileno())
        os.rename(partial, path)
    except OSError as error:
        if os.path.exists(partial):
            os.unlink(partial)
        # A write to an open file does not name it, and the user must learn which disk is full.
        if error.filename is None:
            error.filename = path
        raise
