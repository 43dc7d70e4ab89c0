"""Pinned host keys: a known_hosts file of the inventory that only `boards.trust` changes.

The file has the format of OpenSSH (plain names, no hashes), so `ssh -o UserKnownHostsFile=FILE` works with it too.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

import paramiko

from boardbench import ssh
from boardbench.errors import InputError
from boardbench.inventory import Access, Inventory

fingerprint = ssh.fingerprint


@dataclass(frozen=True)
class Pin:
    """One line of the file: under which name, which kind of key, the key, and its SHA256 fingerprint."""

    name: str
    key_type: str
    key_base64: str
    fingerprint: str


@dataclass(frozen=True)
class Trusted:
    """What `trust` did: the fingerprints that were pinned before, and the one that is now."""

    name: str
    before: tuple[str, ...]
    after: str

    @property
    def changed(self) -> bool:
        """False when exactly this key was pinned already."""
        return self.before != (self.after,)


def fetch_key(access: Access, *, where: str = "", deadline_s: float = 10.0) -> paramiko.PKey:
    """The key that the board shows now. Connects for the key exchange only. Raises UnreachableError."""
    return ssh.host_key(access, where=where or access.host, deadline_s=deadline_s)


def read(path: Path) -> tuple[Pin, ...]:
    """All pins of the file; none when there is no file. Raises InputError at a line that is no pin."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read: {error}", where=str(path)) from error
    pins: list[Pin] = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            pins.extend(_parse(line, f"{path}:{number}"))
    return tuple(pins)


def pins(path: Path, access: Access) -> tuple[Pin, ...]:
    """The pins of one board."""
    name = ssh.pin_name(access)
    return tuple(pin for pin in read(path) if pin.name == name)


def trust(path: Path, access: Access, key: paramiko.PKey) -> Trusted:
    """Pins `key` for the board and drops every other key of it, in one atomic change. Comments stay."""
    name = ssh.pin_name(access)
    before = tuple(pin.fingerprint for pin in pins(path, access))
    _rewrite(path, name, f"{name} {key.get_name()} {key.get_base64()}")
    return Trusted(name, before, fingerprint(key))


def forget(path: Path, access: Access) -> tuple[Pin, ...]:
    """Drops the board's pins and gives those that were there."""
    gone = pins(path, access)
    if gone:
        _rewrite(path, ssh.pin_name(access), None)
    return gone


def duplicates(inventory: Inventory) -> tuple[tuple[str, ...], ...]:
    """Groups of boards (names, sorted) that have one host key: cloned images, or one machine under two names."""
    return tuple(tuple(sorted(names)) for names in _boards_by_key(inventory).values() if len(names) > 1)


def _boards_by_key(inventory: Inventory) -> dict[str, set[str]]:
    by_name: dict[str, list[str]] = {}
    for board in inventory.boards.values():
        by_name.setdefault(ssh.pin_name(board.access), []).append(board.name)
    found: dict[str, set[str]] = {}
    for pin in read(inventory.known_hosts):
        found.setdefault(pin.key_base64, set()).update(by_name.get(pin.name, ()))
    return found


def _parse(line: str, where: str) -> list[Pin]:
    try:
        entry = paramiko.hostkeys.HostKeyEntry.from_line(line)
    except Exception as error:
        raise InputError(f"is no host key: {error}", where=where, advice="`host type base64`") from error
    if entry is None or entry.key is None or entry.hostnames is None:
        raise InputError("is no host key", where=where, advice="`host type base64`")
    key = entry.key
    return [Pin(name, key.get_name(), key.get_base64(), fingerprint(key)) for name in entry.hostnames]


def _rewrite(path: Path, name: str, new_line: str | None) -> None:
    old = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    kept = [line for line in (_without(line, name) for line in old) if line is not None]
    if new_line is not None:
        kept.append(new_line)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, partial = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".partial")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write("".join(line + "\n" for line in kept))
            file.flush()
            os.fsync(file.fileno())
        os.chmod(partial, 0o644)
        os.replace(partial, path)
    except BaseException:
        os.unlink(partial)
        raise


def _without(line: str, name: str) -> str | None:
    """The line without the name; None when nothing is left of it."""
    if not line.strip() or line.lstrip().startswith("#"):
        return line
    names, _, rest = line.lstrip().partition(" ")
    left = [each for each in names.split(",") if each != name]
    return f"{','.join(left)} {rest}" if left else None
