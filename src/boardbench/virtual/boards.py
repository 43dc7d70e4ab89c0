"""The kinds of virtual boards, and which parts of a board's tree its sandbox must show at which place."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from boardbench.errors import InputError
from boardbench.virtual import jetson, r76s
from boardbench.virtual.live import LiveBoard, add_cpus
from boardbench.virtual.parts import add_vm
from boardbench.virtual.sandbox import Bind
from boardbench.virtual.thermal import make
from boardbench.virtual.tree import Tree

_KINDS = {r76s.KIND: r76s, jetson.KIND: jetson}
CTL_TARGET = "/run/boardbench-virtual"

_BPFTRACE = "usr/local/bin/bpftrace"
_BOARD_FILES = {
    r76s.KIND: ("etc/rom-version",),
    jetson.KIND: (
        "etc/nv_tegra_release",
        "etc/nvpmodel.conf",
        "usr/local/bin/tegrastats",
        "usr/local/bin/nvpmodel",
        _BPFTRACE,
    ),
}
# With systemd-nspawn a bind over all of /sys does not work; these folders exist in every kernel's sysfs.
_NSPAWN_SYS = (
    "sys/class",
    "sys/devices/system/cpu",
    "sys/devices/platform",
    "sys/firmware",
    "sys/block",
    "sys/kernel",
)
_VM_FILES = ("drop_caches", "swappiness")


def kinds() -> tuple[str, ...]:
    """The kinds of boards that can be virtual."""
    return tuple(_KINDS)


def has_bpftrace(kind: str) -> bool:
    """Whether a board of this kind has a bpftrace, for which the host traces."""
    return _BPFTRACE in _BOARD_FILES[kind]


def make_board(name: str, kind: str, serial_seed: str, time_scale: float) -> LiveBoard:
    """A board at power-on. Its serial number follows from `serial_seed`. InputError for an unknown kind."""
    if kind not in _KINDS:
        raise InputError(
            f"boards of kind {kind!r} cannot be virtual", where=name, advice=f"use one of {', '.join(_KINDS)}"
        )
    serial = hashlib.sha256(serial_seed.encode()).hexdigest()
    board: LiveBoard = _KINDS[kind].make_board(name, serial, make(kind, name), time_scale)
    return board


def make_tree(board: LiveBoard, drop: Callable[[int], None]) -> Tree:
    """All files of the board; `drop(value)` really drops its page cache."""
    tree = Tree()
    _KINDS[board.kind].add_files(board, tree)
    add_cpus(board, tree)
    add_vm(board, tree, drop)
    for folder in ("sys/devices/platform", "sys/bus", "sys/dev", "sys/fs/cgroup", "sys/kernel", "sys/module"):
        tree.directory(folder)
    return tree


def binds(kind: str, tree: Path, ctl: Path, sandbox: str) -> list[Bind]:
    """What the sandbox (`bwrap` or `nspawn`) of a board binds, in this order, after its own binds.

    `tree` and `ctl` are the board's folders of the fleet. Folders and files of the tree exist once the daemon is
    ready. The targets under `/proc` can only be bound once the sandbox has its own `/proc`.
    """
    if kind not in _KINDS:
        raise InputError(f"boards of kind {kind!r} cannot be virtual", advice=f"use one of {', '.join(_KINDS)}")
    if sandbox == "bwrap":
        found = [Bind(tree / "sys", "/sys", False)]
    elif sandbox == "nspawn":
        found = [Bind(tree / path, f"/{path}", False) for path in _NSPAWN_SYS]
    else:
        raise InputError(f"there is no sandbox {sandbox!r}", advice="use bwrap or nspawn")
    found += [Bind(tree / "proc/sys/vm" / name, f"/proc/sys/vm/{name}", False) for name in _VM_FILES]
    found += [Bind(tree / path, f"/{path}", True) for path in _BOARD_FILES[kind]]
    found.append(Bind(ctl, CTL_TARGET, False))
    return found
