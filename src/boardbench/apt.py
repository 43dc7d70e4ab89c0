"""Debian packages of the controller: installed with apt where we may."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence

from boardbench.errors import RigError


def may_install() -> bool:
    """Whether this user can install Debian packages on this machine."""
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def install(packages: Sequence[str]) -> None:
    """Install packages without what they merely recommend; RigError with apt's own last word when it fails."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
    subprocess.run(["apt-get", "update", "-qq"], env=environment, capture_output=True, check=False)
    done = subprocess.run(
        ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise RigError(
            f"apt could not install {' '.join(packages)}: {last}", advice="install them by hand and try again"
        )
