"""Control groups of nspawn boards: one per board in every hierarchy that counts, made before and removed after.

Two layouts are known: pure version 2 (one tree) and version 1 or hybrid (a tree per controller). In the second one the
board's systemd needs its own group in the `systemd` and `unified` trees, and its memory is accounted in `memory`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

from boardbench.errors import RigError

ROOT = Path("/sys/fs/cgroup")
_LEGACY_TREES = ("systemd", "unified", "memory")
_CONTROLLERS = ("cpu", "memory", "pids", "io", "cpuset")
_REMOVE_TIMEOUT_S = 5.0


def trees(root: Path = ROOT) -> list[Path]:
    """The hierarchies in which a board gets a group. Empty when control groups are not mounted."""
    if (root / "cgroup.controllers").exists():
        return [root]
    return [root / name for name in _LEGACY_TREES if (root / name / "cgroup.procs").exists()]


def make(name: str, root: Path = ROOT) -> list[Path]:
    """Makes the group in every hierarchy and returns the folders. Raises RigError when it is not allowed."""
    folders = []
    for tree in trees(root):
        if (tree / "cgroup.controllers").exists() and tree == root:
            _delegate(tree)
        folder = tree / name
        try:
            folder.mkdir(exist_ok=True)
        except OSError as error:
            raise RigError(
                f"cannot make a control group: {error.strerror}",
                where=str(folder),
                advice="use kind bwrap, which needs none",
            ) from error
        folders.append(folder)
    return folders


def _delegate(tree: Path) -> None:
    """Lets groups below the root of version 2 use the controllers that there are."""
    available = (tree / "cgroup.controllers").read_text().split()
    for controller in _CONTROLLERS:
        if controller in available:
            try:
                (tree / "cgroup.subtree_control").write_text(f"+{controller}")
            except OSError:
                # A board runs without the controller too; only its limits are then not enforced.
                continue


def name_of(address: str) -> str:
    """The name of the group of the board at this loopback address: no two boards of a host share one."""
    return f"boardbench-{address}"


def memory_folder(address: str, root: Path = ROOT) -> Path | None:
    """The version 1 memory group of the board at this address; None where there is no such hierarchy."""
    tree = root / "memory"
    return tree / name_of(address) if tree in trees(root) else None


def left_by(addresses: Iterable[str], root: Path = ROOT) -> list[Path]:
    """The groups that boards at these addresses left in any hierarchy."""
    found = [tree / name_of(address) for tree in trees(root) for address in addresses]
    return [folder for folder in found if folder.is_dir()]


def remove(folder: Path) -> list[Path]:
    """Removes a group with all below it, waiting for dying processes; returns what would not go."""
    deadline = time.monotonic() + _REMOVE_TIMEOUT_S
    while folder.exists():
        below = [path for path in folder.rglob("*") if path.is_dir()]
        for path in [*sorted(below, key=lambda p: len(p.parts), reverse=True), folder]:
            try:
                path.rmdir()
            except OSError:
                pass  # still in use: tried again until the deadline, then returned
        if time.monotonic() > deadline:
            return [folder] if folder.exists() else []
        if folder.exists():
            time.sleep(0.05)
    return []
