"""A file system of the test's own on a loop device, so that its read-ahead can be Linux's default on any host."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

READ_AHEAD_KIB = (
    128  # Linux's default; hosts of virtual machines often set many times as much, which ruins random reads
)
_TOOLS = ("losetup", "mkfs.ext4", "mount", "umount")


def can_make_disks() -> bool:
    """Whether loop devices can be set up here (root, the tools, the device)."""
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    tools = all(shutil.which(tool, path=path) for tool in _TOOLS)
    return os.geteuid() == 0 and tools and Path("/dev/loop-control").exists()


def _run(*argv: str) -> str:
    env = dict(os.environ) | {"PATH": os.environ.get("PATH", "") + ":/usr/sbin:/sbin", "LC_ALL": "C"}
    return subprocess.run(argv, check=True, capture_output=True, text=True, env=env).stdout.strip()


@contextmanager
def own_disk(folder: Path, size_bytes: int) -> Iterator[Path]:
    """An empty ext4 of about `size_bytes`, mounted in `folder`, read past the host's page cache; gone afterwards."""
    image, place = folder / "disk.ext4", folder / "disk"
    place.mkdir(parents=True)
    with image.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, size_bytes)
    device = ""
    mounted = False
    try:
        _run("mkfs.ext4", "-q", "-F", "-m", "0", str(image))
        device = _run("losetup", "--find", "--show", "--direct-io=on", str(image))
        Path(f"/sys/block/{Path(device).name}/queue/read_ahead_kb").write_text(str(READ_AHEAD_KIB))
        _run("mount", device, str(place))
        mounted = True
        yield place
    finally:
        if mounted:
            _run("umount", str(place))
        if device:
            _run("losetup", "--detach", device)
        image.unlink(missing_ok=True)
