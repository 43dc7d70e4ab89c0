"""The controller's compilers: which there are for a machine, by which name they are known, and what is missing."""

from __future__ import annotations

import os
import platform
import shutil
from dataclasses import dataclass

from boardbench.apt import install, may_install
from boardbench.errors import RigError

from . import steps
from .voice import Voice

_TRIPLES = {"x86_64": "x86_64-linux-gnu", "aarch64": "aarch64-linux-gnu"}
_TOOLS = {"cmake": "cmake", "ninja": "ninja-build", "ccache": "ccache"}


@dataclass(frozen=True)
class Toolchain:
    """Compilers for one machine. `version` names the compiler as far as it decides what it makes."""

    arch: str
    cc: str
    cxx: str
    readelf: str
    version: str
    cmake: tuple[tuple[str, str], ...]


def controller_arch() -> str:
    """The machine of the controller, as `uname -m` says it."""
    return platform.machine()


def tools_for(arch: str) -> dict[str, str]:
    """Every tool that a build for `arch` needs here, and the Debian package that brings it."""
    prefix = _prefix(arch)
    if not prefix:
        return {**_TOOLS, "gcc": "gcc", "g++": "g++", "readelf": "binutils"}
    triple = prefix.rstrip("-")
    return {**_TOOLS, f"{prefix}gcc": f"gcc-{triple}", f"{prefix}g++": f"g++-{triple}",
            f"{prefix}readelf": f"binutils-{triple}"}  # fmt: skip


def missing(arch: str) -> list[str]:
    """Debian packages that a build for `arch` lacks on this machine, sorted."""
    return sorted({package for tool, package in tools_for(arch).items() if shutil.which(tool) is None})


def find(arch: str, voice: Voice, *, may: bool = True) -> Toolchain:
    """The compilers for a machine; what is missing is installed when we may, else RigError names it."""
    packages = missing(arch)
    if packages and may and may_install():
        voice.say(f"installing with apt for builds: {' '.join(packages)}")
        install(packages)
        packages = missing(arch)
    if packages:
        raise RigError(
            f"building for {arch} needs {', '.join(packages)} on this machine",
            advice=f"as root: apt-get install {' '.join(packages)}",
        )
    prefix = _prefix(arch)
    cc, cxx = f"{prefix}gcc", f"{prefix}g++"
    try:
        version = steps.compiler_version(cxx)
    except steps.BuildFailed as error:
        raise RigError(f"the compiler does not work: {error.what}", where=cxx) from None
    options = {"CMAKE_C_COMPILER": cc, "CMAKE_CXX_COMPILER": cxx}
    if prefix:
        root = f"/usr/{_TRIPLES[arch]}"
        options |= {
            "CMAKE_SYSTEM_NAME": "Linux",
            "CMAKE_SYSTEM_PROCESSOR": arch,
            # Nothing of this machine may be found and linked; programs to run while building are this machine's.
            "CMAKE_FIND_ROOT_PATH": root,
            "CMAKE_FIND_ROOT_PATH_MODE_PROGRAM": "NEVER",
            "CMAKE_FIND_ROOT_PATH_MODE_LIBRARY": "ONLY",
            "CMAKE_FIND_ROOT_PATH_MODE_INCLUDE": "ONLY",
            "CMAKE_FIND_ROOT_PATH_MODE_PACKAGE": "ONLY",
        }
    return Toolchain(arch, cc, cxx, f"{prefix}readelf", version, tuple(sorted(options.items())))


def cores() -> int:
    """How many compilers run at once here."""
    return max(1, len(os.sched_getaffinity(0)))


def _prefix(arch: str) -> str:
    if arch == controller_arch():
        return ""
    if arch not in _TRIPLES:
        raise RigError(f"this machine has no compiler for {arch}", advice=f"known: {', '.join(sorted(_TRIPLES))}")
    return f"{_TRIPLES[arch]}-"
