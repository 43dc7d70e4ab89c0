"""What the two kinds of virtual boards have in common: what a board is made from, and how it is booted.

A sandbox makes a board's folder and says which command boots it. Running that command again and again (a reboot), and
ending it, is the same for both and is the supervisor's work.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from boardbench.virtual import identity

SSHD_OPTIONS = (
    "PidFile none",
    "UsePAM no",
    "PasswordAuthentication no",
    "KbdInteractiveAuthentication no",
    "PermitRootLogin no",
    f"AllowUsers {identity.USER}",
    "StrictModes no",
    "UseDNS no",
    "MaxSessions 64",
    "MaxStartups 100:30:200",
    "PrintMotd no",
    "SetEnv PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "Subsystem sftp internal-sftp",
)
REBOOT_EXIT_CODE = 133
"""The exit code of a boot that wants to be followed by another one (as systemd-nspawn has it)."""


@dataclass(frozen=True)
class Bind:
    """A file or folder of the host (`source`) that the board sees at `target`."""

    source: Path
    target: str
    read_only: bool


@dataclass(frozen=True)
class BoardPlan:
    """All that decides one virtual board. `folder` holds everything of it."""

    name: str
    board_kind: str
    address: str
    port: int
    folder: Path
    machine_id: str
    client_key: str
    host_key_file: Path
    binds: tuple[Bind, ...] = ()


@dataclass(frozen=True)
class BootPlan:
    """How a board is booted, over and over: what the supervisor needs to know, as JSON in `boot-plan.json`.

    `fresh_folders` are emptied before each boot; `boot_id_file` gets a new boot id when the sandbox has none of its
    own; the boot's processes are put into `cgroups` (folders; made before, removed when the board goes down);
    `reset_mark` is a file that tells the sysfs daemon of every boot but the first.
    """

    argv: tuple[str, ...]
    address: str
    port: int
    fresh_folders: tuple[str, ...] = ()
    boot_id_file: str | None = None
    cgroups: tuple[str, ...] = ()
    reset_mark: str | None = None

    def write(self, path: Path) -> None:
        """Stores the plan so that no reader sees half of it."""
        write_whole(path, json.dumps(asdict(self), indent=1, sort_keys=True) + "\n")

    @classmethod
    def read(cls, path: Path) -> BootPlan:
        """The plan stored at `path`."""
        data = json.loads(path.read_text(encoding="utf-8"))
        return cls(
            argv=tuple(data["argv"]),
            address=data["address"],
            port=data["port"],
            fresh_folders=tuple(data["fresh_folders"]),
            boot_id_file=data["boot_id_file"],
            cgroups=tuple(data["cgroups"]),
            reset_mark=data["reset_mark"],
        )


class Sandbox(Protocol):
    """One way to make a virtual board."""

    kind: str

    def prepare(self, board: BoardPlan) -> BootPlan:
        """Makes or refreshes the board's folder (what the board itself wrote stays) and says how to boot it."""

    def pagecache_roots(self, board: BoardPlan) -> list[Path]:
        """Folders of the host that hold the board's own files: the only ones whose page cache is the board's."""


def sshd_config(board: BoardPlan, host_key: str, authorized_keys: str) -> str:
    """The board's sshd: its own loopback address only, key login only."""
    lines = [f"ListenAddress {board.address}:{board.port}", f"HostKey {host_key}"]
    lines += [f"AuthorizedKeysFile {authorized_keys}", *SSHD_OPTIONS]
    return "\n".join(lines) + "\n"


def hosts_text(name: str) -> str:
    """The board's /etc/hosts."""
    return f"127.0.0.1 localhost\n127.0.1.1 {name}\n"


def write_whole(path: Path, text: str, mode: int = 0o644) -> None:
    """Writes by rename, so that no reader sees half of it."""
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(text, encoding="utf-8")
    partial.chmod(mode)
    partial.replace(path)


def write_files(root: Path, files: Mapping[str, str]) -> None:
    """Writes each text at its path below `root`."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text)


def remove_tree(path: Path) -> None:
    """Removes a folder, also when the board left folders in it that may not be read; never crosses a mount."""
    if not path.exists():
        return
    for folder, names, _ in os.walk(path):
        for name in names:
            child = os.path.join(folder, name)
            if not os.path.islink(child) and not os.access(child, os.R_OK | os.W_OK | os.X_OK):
                os.chmod(child, 0o700)
    shutil.rmtree(path)


def mounts_below(folder: Path, mounts: Iterable[str] | None = None) -> list[str]:
    """Mount points at or below `folder` that this process sees, deepest first."""
    if mounts is None:
        mounts = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
    wanted = str(folder)
    points = [line.split()[1].encode().decode("unicode_escape") for line in mounts]
    return sorted((p for p in points if p == wanted or p.startswith(wanted + "/")), key=len, reverse=True)
