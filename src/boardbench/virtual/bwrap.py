"""A board without root: sshd and all that it starts inside one bubblewrap sandbox over the host's /usr.

The board has its own root folder on a real file system, pid, uts, ipc and user namespace, and its own service
manager (PyPI docker-systemctl-replacement). It shares the host's network and kernel, and may change neither: /proc/sys
is read-only whoever runs the controller, except for the files that are bound over it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path

from boardbench.errors import RigError
from boardbench.virtual import identity
from boardbench.virtual.sandbox import BoardPlan, BootPlan, hosts_text, sshd_config, write_files, write_whole

KIND = "bwrap"
_UID = 1000
_FILES = Path(__file__).parent / "board_files"
_FOLDERS = (
    "etc/ssh", "etc/systemd/system", "etc/apt", "etc/alternatives", "opt", "var/log/journal", "var/lib/dpkg/info",
    "var/cache/apt/archives", "var/lib/apt/lists/partial", "var/tmp", "run", "tmp", "home/pi", "root", "srv", "mnt",
    "usr", "proc", "dev", "sys",
)  # fmt: skip
_LOCAL_FOLDERS = ("bin", "sbin", "lib/systemctl", "libexec", "share", "etc")
_HOST_ETC = (
    "ld.so.cache", "ld.so.conf", "os-release", "debian_version", "profile", "bash.bashrc", "login.defs",
    "localtime", "timezone", "services", "protocols", "mime.types",
)  # fmt: skip
_USERS = {"root": (0, "/root", "/bin/bash"), identity.USER: (_UID, f"/home/{identity.USER}", "/bin/bash")}
_SYSTEM_USERS = {"daemon": 1, "bin": 2, "www-data": 33, "sshd": 100, "nobody": 65534}
_SYSTEM_GROUPS = {"daemon": 1, "bin": 2, "adm": 4, "tty": 5, "sudo": 27, "shadow": 42, "video": 44, "nogroup": 65534}
_HOST_UNITS = ("/usr/lib/systemd/system",)
BOOT_ID = "/proc/sys/kernel/random/boot_id"


class Bwrap:
    """Makes bwrap boards. `cache` holds the service manager, compiled once for the board's Python."""

    kind = KIND

    def __init__(self, cache: Path) -> None:
        self._cache = cache

    def prepare(self, board: BoardPlan) -> BootPlan:
        """Makes or refreshes the board's folder (what the board itself wrote stays) and says how to boot it."""
        root, local = board.folder / "root", board.folder / "local"
        for base, names in ((root, _FOLDERS), (local, _LOCAL_FOLDERS)):
            for name in names:
                (base / name).mkdir(parents=True, exist_ok=True)
        (root / "tmp").chmod(0o1777)
        (board.folder / "no-units").mkdir(exist_ok=True)
        _link(root / "var/run", "/run")
        for host in _host_roots():
            if host.is_symlink():
                _link(root / host.name, os.readlink(host))
        _fill_etc(root / "etc", board)
        _fill_dpkg(root / "var/lib/dpkg")
        python = board_python()
        _fill_local(local, python.path)
        boot_id = board.folder / "boot_id"
        if not boot_id.exists():
            boot_id.touch()
        systemctl = ensure_systemctl(self._cache, python.path)
        return BootPlan(
            argv=tuple(_argv(board, python, systemctl)),
            address=board.address,
            port=board.port,
            fresh_folders=(str(root / "run"), str(root / "tmp")),
            boot_id_file=str(boot_id),
        )

    def pagecache_roots(self, board: BoardPlan) -> list[Path]:
        """Folders of the host that hold the board's own files: the only ones whose page cache is the board's."""
        return [board.folder / "root", board.folder / "local"]


class BoardPython:
    """The Python that boards run: the host's /usr/bin/python3, else the one that runs the controller."""

    def __init__(self, path: str, binds: tuple[tuple[str, str], ...]) -> None:
        self.path = path
        self.binds = binds


def board_python(system: Path = Path("/usr/bin/python3")) -> BoardPython:
    """The board's Python, and what must be bound into the board (read-only) for it."""
    if system.exists():
        return BoardPython("/usr/bin/python3", ())
    prefix, real = Path(sys.base_prefix), Path(sys.executable).resolve()
    if prefix == Path("/usr/local"):
        # The board has a /usr/local of its own, so the parts of this Python are bound into it one by one.
        parts = (("/usr/local/lib", "/usr/local/lib"), (str(real), "/usr/local/bin/python3"))
        return BoardPython("/usr/local/bin/python3", parts)
    if real.is_relative_to("/usr"):
        return BoardPython(str(real), ())
    return BoardPython(str(real), ((str(prefix), str(prefix)),))


def _argv(board: BoardPlan, python: BoardPython, systemctl: Path) -> list[str]:
    root, local = board.folder / "root", board.folder / "local"
    argv = [tool("bwrap"), "--die-with-parent", "--unshare-user", "--unshare-pid", "--unshare-uts", "--unshare-ipc"]
    argv += ["--as-pid-1", "--hostname", board.name, "--uid", str(_UID), "--gid", str(_UID), "--clearenv"]
    argv += ["--setenv", "PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]
    argv += ["--setenv", "LANG", "C.UTF-8", "--setenv", "HOME", f"/home/{identity.USER}"]
    argv += ["--bind", str(root), "/", "--ro-bind", "/usr", "/usr"]
    for host in _host_roots():
        if host.is_dir() and not host.is_symlink():
            argv += ["--ro-bind", str(host), str(host)]
    # Only links into /usr, so it belongs to /usr.
    argv += ["--ro-bind-try", "/etc/alternatives", "/etc/alternatives"]
    argv += ["--bind", str(local), "/usr/local"]
    # The host's units are not the board's: they must neither be listed nor started there.
    for units in (folder for folder in _HOST_UNITS if Path(folder).is_dir()):
        argv += ["--ro-bind", str(board.folder / "no-units"), units]
    argv += ["--ro-bind", str(systemctl), "/usr/local/lib/systemctl"]
    for source, target in python.binds:
        argv += ["--ro-bind", source, target]
    argv += ["--dev", "/dev", "--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys"]
    argv += ["--ro-bind", str(board.folder / "boot_id"), BOOT_ID]
    for bind in board.binds:
        argv += ["--ro-bind" if bind.read_only else "--bind", str(bind.source), bind.target]
    return [*argv, "--chdir", "/", "--", python.path, "-IS", "/usr/local/libexec/board-init"]


def _host_roots() -> list[Path]:
    names = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
    return [path for path in (Path("/") / name for name in names) if path.exists()]


def _fill_etc(etc: Path, board: BoardPlan) -> None:
    for name in _HOST_ETC:
        _copy(Path("/etc") / name, etc / name)
    users = [f"{name}:x:{uid}:{uid}::{home}:{shell}" for name, (uid, home, shell) in _USERS.items()]
    users += [f"{name}:x:{uid}:{uid}::/nonexistent:/usr/sbin/nologin" for name, uid in _SYSTEM_USERS.items()]
    groups = [f"{name}:x:{uid}:" for name, (uid, _, _) in _USERS.items()]
    groups += [f"{name}:x:{gid}:" for name, gid in _SYSTEM_GROUPS.items()]
    accounts = {
        "passwd": "\n".join(users) + "\n",
        "group": "\n".join(groups) + "\n",
        "shadow": "".join(f"{name}:*:19000:0:99999:7:::\n" for name in (*_USERS, *_SYSTEM_USERS)),
    }
    # What a playbook changed (a user, say) must stay, so accounts are written once.
    write_files(etc, {name: text for name, text in accounts.items() if not (etc / name).exists()})
    write_files(
        etc,
        {
            "hostname": board.name + "\n",
            "hosts": hosts_text(board.name),
            "machine-id": board.machine_id + "\n",
            "nsswitch.conf": "passwd: files\ngroup: files\nshadow: files\nhosts: files\n",
            "ssh/sshd_config": sshd_config(board, "/etc/ssh/host_key", "/etc/ssh/authorized_keys"),
            "ssh/authorized_keys": board.client_key + "\n",
        },
    )
    key = board.host_key_file
    write_whole(etc / "ssh/host_key", key.read_text(encoding="ascii"), mode=0o600)
    _copy(key.with_name(key.name + ".pub"), etc / "ssh/host_key.pub")


def _fill_dpkg(dpkg: Path) -> None:
    # The board shares the host's /usr, so the host's list of packages is the truth about the board too.
    status = Path("/var/lib/dpkg/status")
    if status.is_file():
        _copy(status, dpkg / "status")
    else:
        write_whole(dpkg / "status", "")


def _fill_local(local: Path, python: str) -> None:
    for name, target in (("init.py", "libexec/board-init"), ("sudo", "bin/sudo"), ("apt-get", "bin/apt-get")):
        write_whole(local / target, (_FILES / name).read_text(encoding="utf-8"), mode=0o755)
    for name in ("reboot", "poweroff"):
        write_whole(local / "sbin" / name, (_FILES / name).read_text(encoding="utf-8"), mode=0o755)
    for name in ("systemctl", "journalctl"):
        text = f"#!{python} -IS\n" + (_FILES / f"{name}.py").read_text(encoding="utf-8")
        write_whole(local / "bin" / name, text, mode=0o755)
    if python != "/usr/local/bin/python3" and not python.startswith("/usr/bin/"):
        _link(local / "bin/python3", python)


def ensure_systemctl(cache: Path, python: str) -> Path:
    """A folder with the service manager as an importable module, compiled for `python`, made once.

    Compiled code matters: the module has 345 kB, and compiling it takes a second at every call otherwise.
    """
    source = systemctl_source()
    real = Path(python).resolve()
    mark = f"{hashlib.sha256(source.read_bytes()).hexdigest()}\0{real}\0{real.stat().st_mtime_ns}"
    folder = cache / "systemctl" / hashlib.sha256(mark.encode()).hexdigest()[:16]
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=".partial-", dir=folder.parent))
    try:
        shutil.copyfile(source, partial / "systemctl3.py")
        argv = [python, "-IS", "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", str(partial)]
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode != 0:
            raise RigError(f"{python} cannot compile the boards' service manager: {done.stdout}{done.stderr}".strip())
        partial.chmod(0o755)
        try:
            partial.rename(folder)
        except OSError:
            if not folder.is_dir():  # somebody else was faster, which is fine; everything else is not
                raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return folder


def systemctl_source() -> Path:
    """The single file of docker-systemctl-replacement, as installed beside boardbench."""
    name = "docker-systemctl-replacement"
    try:
        files = metadata.distribution(name).files or []
    except metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.name == "systemctl3.py" and file.parent.name == "systemctl2":
            return Path(str(file.locate()))
    raise RigError(f"the Python package {name} is not installed", advice="install boardbench again: ./inv --help")


def tool(name: str) -> str:
    """The path of a program; /usr/sbin and /sbin are looked into also where PATH lacks them."""
    path = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/local/sbin:/usr/sbin:/sbin")
    if path is None:
        raise RigError(f"{name} is not installed on this machine")
    return path


def _copy(source: Path, target: Path) -> None:
    """Copies a file of the host into the board; what the host lacks, the board lacks."""
    if source.exists() or source.is_symlink():
        target.unlink(missing_ok=True)
        shutil.copyfile(source, target, follow_symlinks=not _stays_in_usr(source))


def _stays_in_usr(path: Path) -> bool:
    return path.is_symlink() and path.resolve().is_relative_to("/usr")


def _link(path: Path, target: str) -> None:
    if path.is_symlink() and os.readlink(path) == target:
        return
    path.unlink(missing_ok=True)
    path.symlink_to(target)
