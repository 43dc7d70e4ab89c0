"""Finds the GPU's devfreq folder: by what the device tree calls it, never by a fixed path."""

from __future__ import annotations

import os
from dataclasses import dataclass

from .faults import BoardError

# Names of GPU nodes in the device trees of NVIDIA's boards, and of others that say just "gpu".
NAMES = ("gpu", "ga10b", "gv11b", "gp10b", "gb10b", "gm20b")
_COMPATIBLE_ENDS = ("ga10b", "gv11b", "gp10b", "gb10b", "gm20b")
_FILES = ("min_freq", "max_freq", "available_frequencies")


@dataclass(frozen=True)
class Node:
    """The devfreq folder of the GPU."""

    path: str

    def file(self, name: str) -> str:
        """The path of one of its files."""
        return os.path.join(self.path, name)


def _device_tree_words(folder: str, name: str) -> tuple[str, ...]:
    try:
        with open(os.path.join(folder, "device/of_node", name), "rb") as file:
            return tuple(word.decode(errors="replace").strip() for word in file.read(4096).split(b"\0") if word.strip())
    except OSError:
        return ()


def is_gpu(folder: str) -> bool:
    """Whether the device tree calls this device a GPU."""
    if any(word in NAMES for word in _device_tree_words(folder, "name")):
        return True
    compatible = _device_tree_words(folder, "compatible")
    return any(word.rpartition(",")[2] in _COMPATIBLE_ENDS for word in compatible)


def candidates(sys_root: str) -> list[str]:
    """The devfreq folders of GPUs."""
    at = os.path.join(sys_root, "class/devfreq")
    try:
        names = sorted(os.listdir(at))
    except OSError:
        return []
    return [os.path.join(at, name) for name in names if is_gpu(os.path.join(at, name))]


def find(sys_root: str, configured: str | None) -> Node:
    """The GPU's folder; BoardError says why there is none (yet) and what to do."""
    if configured is not None:
        found = [configured]
    else:
        found = candidates(sys_root)
    if not found:
        raise BoardError(
            f"no GPU below {os.path.join(sys_root, 'class/devfreq')}: the kernel may show it only after the GPU was "
            "powered; start a program that uses the GPU, or set GPU_FLOOR_NODE"
        )
    if len(found) > 1:
        raise BoardError(f"there are several GPUs ({', '.join(found)}); set GPU_FLOOR_NODE to one of them")
    lacking = [name for name in _FILES if not os.path.exists(os.path.join(found[0], name))]
    if lacking:
        raise BoardError(f"{found[0]} has no {', '.join(lacking)}: it is no devfreq folder, or its driver is not ready")
    return Node(found[0])
