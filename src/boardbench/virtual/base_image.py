"""The tree that nspawn boards boot from: built once by debootstrap, kept in the cache under the hash of its recipe.

A board mounts it read-only below an overlay of its own, so nothing in it belongs to one board: no host key, no
machine id, no address.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from boardbench.errors import RigError

RECIPE_VERSION = 1
PACKAGES = (
    "systemd",
    "systemd-sysv",
    "dbus",
    "openssh-server",
    "sudo",
    "python3",
    "iproute2",
    "procps",
)
# What a board has no use for, or what would touch the network or the host. Masked units are never started.
MASKED_UNITS = (
    "ssh.service",
    "ssh.socket",
    "sshd.service",
    "systemd-logind.service",
    "systemd-networkd.service",
    "systemd-networkd.socket",
    "systemd-resolved.service",
    "systemd-timesyncd.service",
    "systemd-udevd.service",
    "console-getty.service",
    "getty@tty1.service",
    "getty.target",
    "remote-fs.target",
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "dpkg-db-backup.timer",
    "e2scrub_all.timer",
    "e2scrub_reap.service",
    "fstrim.timer",
    "motd-news.timer",
    "systemd-update-utmp.service",
    "systemd-update-utmp-runlevel.service",
)
_DEFAULT_SUITE = "bookworm"
_MINIMUM_FREE_BYTES = 1_000_000_000

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Recipe:
    """All that decides what is in the tree. Two recipes with the same key make the same tree.

    `mirror` is the host's own, from its apt sources; empty: the one that debootstrap knows for the suite.
    """

    suite: str
    mirror: str
    components: str
    packages: tuple[str, ...] = PACKAGES
    masked_units: tuple[str, ...] = MASKED_UNITS
    version: int = RECIPE_VERSION

    @property
    def key(self) -> str:
        """A short hash over everything but the mirror: the same packages come from every mirror."""
        known = {name: value for name, value in asdict(self).items() if name != "mirror"}
        return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()[:16]


def recipe_for_host(etc: Path = Path("/etc")) -> Recipe:
    """The recipe for this host: its own Debian or Ubuntu suite and mirror; Debian bookworm where it is neither."""
    release = _os_release(etc / "os-release")
    distribution = release.get("ID", "")
    suite = release.get("VERSION_CODENAME", "")
    if distribution not in ("debian", "ubuntu") or not suite:
        return Recipe(_DEFAULT_SUITE, "", "main")
    return Recipe(suite, _host_mirror(etc / "apt", suite), "main,universe" if distribution == "ubuntu" else "main")


def _os_release(path: Path) -> dict[str, str]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError:
        return {}
    pairs = (line.split("=", 1) for line in text.splitlines() if "=" in line and not line.startswith("#"))
    return {key.strip(): value.strip().strip("\"'") for key, value in pairs}


def parse_apt_sources(text: str) -> list[tuple[str, str]]:
    """`(mirror, suite)` of every binary source in a one-line or deb822 apt source file; options are ignored."""
    found: list[tuple[str, str]] = []
    for stanza in re.split(r"\n\s*\n", text):
        fields = dict(re.findall(r"^(Types|URIs|Suites|Enabled):[ \t]*(.+)$", stanza, re.MULTILINE))
        if "deb" in fields.get("Types", "").split() and fields.get("Enabled", "yes").strip() != "no":
            found += [(uri, s) for uri in fields.get("URIs", "").split() for s in fields.get("Suites", "").split()]
    for line in text.splitlines():
        match = re.match(r"deb\s+(?:\[[^\]]*\]\s+)?(\S+)\s+(\S+)\s", line + " ")
        if match:
            found.append((match[1], match[2]))
    return found


def _host_mirror(apt: Path, suite: str) -> str:
    """The mirror that the host itself takes `suite` from; empty when it does not say."""
    folder = apt / "sources.list.d"
    files = [apt / "sources.list", *sorted(folder.glob("*.list")), *sorted(folder.glob("*.sources"))]
    for file in files:
        if not file.is_file():
            continue
        for mirror, its_suite in parse_apt_sources(file.read_text(encoding="utf-8", errors="replace")):
            if its_suite == suite and mirror.startswith(("http://", "https://", "file:/")):
                return mirror
    return ""


def image_path(cache: Path, recipe: Recipe) -> Path:
    """Where the tree of `recipe` lies, or will lie, in the cache folder."""
    return cache / "images" / recipe.key / "tree"


def ensure(cache: Path, recipe: Recipe, on_progress: Progress) -> Path:
    """The tree of `recipe`, built first when it is not there (about two minutes, once).

    The build happens beside its place and is renamed when whole, so a tree that exists is complete. Two builders
    wait for each other. Raises RigError when the build fails; the log of it is kept and named.
    """
    tree = image_path(cache, recipe)
    if tree.is_dir():
        return tree
    images = cache / "images"
    images.mkdir(parents=True, exist_ok=True)
    with _locked(images / f"{recipe.key}.lock"):
        if tree.is_dir():
            return tree
        free = shutil.disk_usage(images).free
        if free < _MINIMUM_FREE_BYTES:
            raise RigError(
                f"the base image needs 1 GB and only {free // 1_000_000} MB are free",
                where=str(images),
                advice="free some space, or set XDG_CACHE_HOME to a larger disk",
            )
        _build(tree, recipe, on_progress)
    return tree


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build(tree: Path, recipe: Recipe, on_progress: Progress) -> None:
    images = tree.parent.parent
    log = images / f"{recipe.key}.log"
    partial = Path(tempfile.mkdtemp(prefix=f"{recipe.key}.partial-", dir=images))
    try:
        target = partial / "tree"
        source = recipe.mirror or "debootstrap's own mirror"
        on_progress(f"building the base image ({recipe.suite} from {source}), about two minutes, once")
        _debootstrap(target, recipe, log, on_progress)
        _make_neutral(target, recipe)
        (partial / "recipe.json").write_text(json.dumps(asdict(recipe), indent=1, sort_keys=True) + "\n")
        partial.chmod(0o755)
        partial.rename(tree.parent)
        log.unlink(missing_ok=True)
        on_progress("base image ready")
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _debootstrap(target: Path, recipe: Recipe, log: Path, on_progress: Progress) -> None:
    argv = [
        "debootstrap",
        "--variant=minbase",
        f"--components={recipe.components}",
        f"--include={','.join(recipe.packages)}",
        recipe.suite,
        str(target),
        *([recipe.mirror] if recipe.mirror else []),
    ]
    # Its own mount and pid namespace: whatever a build mounts or starts ends with it, also when it is interrupted.
    argv = ["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc", *argv]
    environment = {**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive", "SYSTEMD_OFFLINE": "1"}
    environment["PATH"] = f"{environment.get('PATH', '')}:/usr/sbin:/sbin"
    with log.open("w", encoding="utf-8") as out:
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
        )
        try:
            assert process.stdout is not None
            for line in process.stdout:
                out.write(line)
                step = _progress_of(line)
                if step:
                    on_progress(step)
            code = process.wait()
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    if code != 0:
        raise RigError(
            f"debootstrap failed with exit code {code}: {_last_error(log)}",
            where=str(log),
            advice="check that the Debian mirror can be reached, or use `kind: bwrap`, which needs no image",
        )


_STEPS = {
    "I: Retrieving Packages": "image: fetching the package list",
    "I: Resolving dependencies": "image: resolving dependencies",
    "I: Unpacking required": "image: unpacking the required packages",
    "I: Configuring required": "image: configuring the required packages",
    "I: Unpacking the base": "image: unpacking the other packages",
    "I: Configuring the base": "image: configuring the other packages",
}


def _progress_of(line: str) -> str | None:
    return next((text for start, text in _STEPS.items() if line.startswith(start)), None)


def _last_error(log: Path) -> str:
    lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(("E:", "W: Failure"))]
    return (errors or lines or ["it said nothing"])[-1]


def _make_neutral(tree: Path, recipe: Recipe) -> None:
    """Takes out what belongs to one machine or to the build, and sets what all boards share."""
    for key in (tree / "etc/ssh").glob("ssh_host_*"):
        key.unlink()
    for name in ("etc/machine-id", "var/lib/dbus/machine-id", "etc/hostname", "etc/resolv.conf"):
        (tree / name).unlink(missing_ok=True)
    for name in ("var/cache/apt/archives", "var/lib/apt/lists", "usr/share/doc", "usr/share/locale"):
        shutil.rmtree(tree / name, ignore_errors=True)
        (tree / name).mkdir(parents=True, exist_ok=True)
    (tree / "etc/apt/apt.conf").unlink(missing_ok=True)
    system = tree / "etc/systemd/system"
    for unit in recipe.masked_units:
        link = system / unit
        link.unlink(missing_ok=True)
        link.symlink_to("/dev/null")
    (system / "default.target").unlink(missing_ok=True)
    (system / "default.target").symlink_to("/lib/systemd/system/multi-user.target")
    _add_user(tree)


def _add_user(tree: Path) -> None:
    # An unlocked account without a password ("*"): sshd without PAM refuses a locked one ("!").
    _append(tree / "etc/passwd", "pi:x:1000:1000:pi:/home/pi:/bin/bash")
    _append(tree / "etc/group", "pi:x:1000:")
    _append(tree / "etc/shadow", "pi:*:19000:0:99999:7:::")
    home = tree / "home/pi"
    home.mkdir(parents=True, exist_ok=True)
    os.chown(home, 1000, 1000)
    sudoers = tree / "etc/sudoers.d/pi"
    sudoers.write_text("pi ALL=(ALL) NOPASSWD: ALL\n")
    sudoers.chmod(0o440)


def _append(path: Path, line: str) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(line + "\n")
