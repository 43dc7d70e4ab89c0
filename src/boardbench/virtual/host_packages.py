"""The Debian packages that virtual boards need on the controller: named when missing, installed when we may.

Installing `openssh-server` would start a daemon on port 22, open to the network. It is kept from starting at install
(`policy-rc.d`) and from starting at the next boot (`systemctl disable`), unless it was installed before.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from ctypes.util import find_library
from pathlib import Path

from boardbench import apt
from boardbench.errors import RigError

POLICY = Path("/usr/sbin/policy-rc.d")

_TOOLS = {
    "sshd": "openssh-server",
    "ssh-keygen": "openssh-client",
    "bwrap": "bubblewrap",
}
_ROOT_TOOLS = {"systemd-nspawn": "systemd-container", "debootstrap": "debootstrap"}


def _have(tool: str) -> bool:
    # sbin is not in every user's PATH.
    return shutil.which(tool, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin") is not None


def missing(kind: str) -> list[str]:
    """Packages that this machine lacks for virtual boards of `kind` (`auto`, `bwrap`, `nspawn`), sorted."""
    tools = dict(_TOOLS)
    if os.geteuid() == 0 and kind != "bwrap":
        tools |= _ROOT_TOOLS
    lacking = {package for tool, package in tools.items() if not _have(tool)}
    if os.geteuid() == 0 and find_library("fuse3") is None:
        lacking.add("fuse3")
    return sorted(lacking)


def ensure(kind: str, say: Callable[[str], None]) -> None:
    """Install what is missing as root with apt, else say what to install.

    Errors: RigError when a package is missing that no virtual board can do without and it cannot be installed here.
    """
    packages = missing(kind)
    if not packages:
        return
    if not apt.may_install():
        raise RigError(
            f"virtual boards need {', '.join(packages)} on this machine",
            advice=f"as root: apt-get install {' '.join(packages)}",
        )
    say(f"installing with apt for the virtual boards: {' '.join(packages)}")
    _install(packages)


BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


def ensure_browser(say: Callable[[str], None]) -> None:
    """Install Chromium for the tests of the report's pages, where we may; else say that they will be left out.

    Debian only: elsewhere a package of that name may be a stub that starts nothing. Never an error: no verb needs it.
    """
    if any(_have(name) for name in BROWSERS):
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None or not _is_debian():
        say("no Chromium here: the tests that look at report pages in it are left out (apt-get install chromium)")
        return
    say("installing with apt for the tests of report pages: chromium")
    try:
        _install(["chromium"])
    except RigError as error:
        say(f"{error}; the tests that look at report pages in Chromium are left out")


def _is_debian() -> bool:
    try:
        return "ID=debian" in Path("/etc/os-release").read_text(encoding="utf-8").split()
    except OSError:
        return False


def _install(packages: list[str]) -> None:
    fresh_sshd = "openssh-server" in packages
    guard = fresh_sshd and not POLICY.exists()
    if guard:
        POLICY.write_text("#!/bin/sh\nexit 101\n", encoding="ascii")
        POLICY.chmod(0o755)
    try:
        apt.install(packages)
    finally:
        if guard:
            POLICY.unlink()
    if fresh_sshd and Path("/run/systemd/system").is_dir():
        subprocess.run(
            ["systemctl", "disable", "--quiet", "ssh.service", "ssh.socket"], capture_output=True, check=False
        )
