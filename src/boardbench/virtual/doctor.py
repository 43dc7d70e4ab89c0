"""Which kind of virtual board is possible on this machine, and what is missing for the other one.

Nothing is guessed from versions: what matters is tried for real (a sandbox, an overlay, a control group).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from boardbench.errors import InputError, RigError
from boardbench.virtual import cgroups

KINDS = ("bwrap", "nspawn")
_TRIAL_TIMEOUT_S = 20.0
_PATH = f"{os.environ.get('PATH', '')}:/usr/local/sbin:/usr/sbin:/sbin"
_OVERLAY_TRIAL = "mkdir l u w m && mount -t overlay -o lowerdir=l,upperdir=u,workdir=w trial m && touch m/file"


@dataclass(frozen=True)
class Obstacle:
    """One thing that stands in the way of a kind of board, and how to get it out of the way."""

    what: str
    advice: str

    def __str__(self) -> str:
        return f"{self.what}: {self.advice}"


@dataclass(frozen=True)
class Choice:
    """The kind of board to use, and why that one."""

    kind: str
    why: str


def doctor(state_dir: Path) -> dict[str, list[Obstacle]]:
    """For each kind of board what is missing on this machine; an empty list means that the kind works."""
    return {"bwrap": bwrap_obstacles(), "nspawn": nspawn_obstacles(state_dir)}


def choose_kind(wanted: str, state_dir: Path) -> Choice:
    """The kind for `wanted` ("auto", "bwrap" or "nspawn"). Auto prefers nspawn (real systemd) where it is possible.

    Raises InputError for another word, RigError when the wanted kind is not possible, with what to do.
    """
    if wanted not in ("auto", *KINDS):
        raise InputError(f"there is no kind of virtual board named {wanted!r}", advice="use auto, bwrap or nspawn")
    if wanted != "bwrap":
        in_the_way = nspawn_obstacles(state_dir)
        if not in_the_way:
            return Choice("nspawn", "asked for" if wanted == "nspawn" else "root, and systemd-nspawn works here")
        if wanted == "nspawn":
            raise _impossible("nspawn", in_the_way)
    obstacles = bwrap_obstacles()
    if obstacles:
        raise _impossible("bwrap", obstacles)
    return Choice("bwrap", "asked for" if wanted == "bwrap" else f"nspawn is not possible: {in_the_way[0].what}")


def _impossible(kind: str, obstacles: list[Obstacle]) -> RigError:
    return RigError(
        f"virtual boards of kind {kind} are not possible here: {'; '.join(o.what for o in obstacles)}",
        advice="; ".join(o.advice for o in obstacles),
    )


def bwrap_obstacles() -> list[Obstacle]:
    """What is missing for bwrap boards."""
    tools = {
        "sshd": "openssh-server",
        "ssh-keygen": "openssh-client",
        "bwrap": "bubblewrap",
        "unshare": "util-linux",
        "nsenter": "util-linux",
    }
    missing = _missing_tools(tools)
    return missing or _user_namespace_obstacles()


def nspawn_obstacles(state_dir: Path) -> list[Obstacle]:
    """What is missing for nspawn boards whose folders lie below `state_dir`."""
    if os.geteuid() != 0:
        return [Obstacle("not root", "run as root, or use kind bwrap")]
    tools = {
        "systemd-nspawn": "systemd-container",
        "debootstrap": "debootstrap",
        "ssh-keygen": "openssh-client",
        "unshare": "util-linux",
        "setpriv": "util-linux",
    }
    missing = _missing_tools(tools)
    if missing:
        return missing
    return [*_cgroup_obstacles(), *_overlay_obstacles(state_dir)]


def _missing_tools(tools: dict[str, str]) -> list[Obstacle]:
    return [
        Obstacle(f"{name} is not installed", f"apt-get install {package}")
        for name, package in tools.items()
        if shutil.which(name, path=_PATH) is None
    ]


def _try(argv: list[str], folder: Path | None = None) -> str | None:
    """None when the command works, else the last line that it said."""
    environment = {**os.environ, "LC_ALL": "C", "PATH": _PATH}
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environment, cwd=folder,
            timeout=_TRIAL_TIMEOUT_S,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"no answer in {_TRIAL_TIMEOUT_S:g} s"
    if done.returncode == 0:
        return None
    said = (done.stderr or done.stdout).strip().splitlines()
    return said[-1] if said else f"exit code {done.returncode}"


def _user_namespace_obstacles(read: Callable[[str], str | None] | None = None) -> list[Obstacle]:
    # Both steps that a board takes: the sandbox, and in it the user namespace that stands in for sudo.
    sandbox = ["bwrap", "--unshare-user", "--unshare-pid", "--unshare-uts", "--uid", "1000", "--gid", "1000"]
    sandbox += ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
    said = _try([*sandbox, "--", "unshare", "--user", "--map-root-user", "--", "true"])
    if said is None:
        return []
    return [Obstacle(f"user namespaces do not work here ({said})", _user_namespace_advice(read or _sysctl))]


def _user_namespace_advice(read: Callable[[str], str | None]) -> str:
    if read("kernel/apparmor_restrict_unprivileged_userns") == "1":
        return (
            "AppArmor restricts them (Ubuntu 24.04 and later): "
            "as root, sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or run as root"
        )
    if read("kernel/unprivileged_userns_clone") == "0":
        return "as root: sysctl -w kernel.unprivileged_userns_clone=1"
    if read("user/max_user_namespaces") == "0":
        return "as root: sysctl -w user.max_user_namespaces=10000"
    return "in a container, start it with user namespaces allowed (for example --security-opt seccomp=unconfined)"


def _sysctl(name: str) -> str | None:
    try:
        return (Path("/proc/sys") / name).read_text(encoding="ascii").strip()
    except OSError:
        return None


def _cgroup_obstacles() -> list[Obstacle]:
    found = cgroups.trees()
    if not found:
        return [Obstacle("control groups are not mounted on /sys/fs/cgroup", "mount them, or use kind bwrap")]
    for tree in found:
        folder = tree / f"boardbench-trial-{os.getpid()}"
        try:
            folder.mkdir()
            folder.rmdir()
        except OSError as error:
            return [Obstacle(f"{tree} is not writable ({error.strerror})", "use kind bwrap, or a privileged container")]
    return []


def _overlay_obstacles(state_dir: Path) -> list[Obstacle]:
    state_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".trial-", dir=state_dir) as folder:
        said = _try(["unshare", "--mount", "--propagation", "private", "sh", "-c", _OVERLAY_TRIAL], folder=Path(folder))
    if said is None:
        return []
    return [Obstacle(f"no overlay can be mounted in {state_dir} ({said})", "set XDG_STATE_HOME to a real file system")]
