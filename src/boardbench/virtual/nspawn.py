"""A board with root: a booted systemd in systemd-nspawn over an overlay of one base image.

Everything of a running board lives in one mount namespace and one pid namespace that begin with it: when the board
dies, in whatever way, its mounts and processes are gone with it. Only its control groups are folders of the host;
they are made before the boot and removed when the board goes down.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from boardbench.virtual import base_image, cgroups
from boardbench.virtual.bwrap import tool
from boardbench.virtual.sandbox import (
    Bind,
    BoardPlan,
    BootPlan,
    hosts_text,
    sshd_config,
    write_files,
    write_whole,
)

KIND = "nspawn"
SSHD_UNIT = "boardbench-sshd.service"
BINDS_UNIT = "boardbench-binds.service"
_HELD = "/run/boardbench-held"

# A constant script; the values are its arguments. It runs as PID 1 of a new pid namespace, in a new mount namespace.
# nspawn keeps lock files and a propagation folder below /run: they must not be the host's, so the board has a /run of
# its own, unless the fleet itself lies there ("-").
_BOOT_SCRIPT = """
set -e
options=$1 root=$2 hide=$3; shift 3
mount -t overlay -o "$options" boardbench "$root"
[ "$hide" = - ] || mount -t tmpfs -o mode=755 boardbench "$hide"
exec "$@"
"""
_SSHD_TEXT = """[Unit]
Description=The board's door
DefaultDependencies=no
After=systemd-remount-fs.service systemd-tmpfiles-setup.service
Before=shutdown.target
Conflicts=shutdown.target

[Service]
ExecStartPre=/bin/mkdir -p /run/sshd
ExecStart=/usr/sbin/sshd -D -e -f /etc/ssh/sshd_config
KillMode=process
Restart=always
RestartSec=0.2
StartLimitIntervalSec=0

[Install]
WantedBy=sysinit.target
"""


class Nspawn:
    """Makes nspawn boards. `cache` holds the base image, which is built when it is not there yet."""

    kind = KIND

    def __init__(self, cache: Path, on_progress: Callable[[str], None]) -> None:
        self._cache = cache
        self._on_progress = on_progress

    def prepare(self, board: BoardPlan) -> BootPlan:
        """Makes or refreshes the board's folder (what the board itself wrote stays) and says how to boot it."""
        base = base_image.ensure(self._cache, base_image.recipe_for_host(), self._on_progress)
        upper, work, root = (board.folder / name for name in ("upper", "work", "root"))
        for folder in (upper, work, root):
            folder.mkdir(parents=True, exist_ok=True)
        upper.chmod(0o755)
        _fill(upper, board)
        groups = cgroups.make(cgroups.name_of(board.address))
        options = f"lowerdir={_escaped(base)},upperdir={_escaped(upper)},workdir={_escaped(work)}"
        argv = [tool("setpriv"), "--pdeathsig", "KILL", tool("unshare"), "--mount", "--propagation", "private"]
        argv += ["--pid", "--fork", "--kill-child", "--mount-proc"]
        argv += ["/bin/sh", "-c", _BOOT_SCRIPT, "boot", options, str(root)]
        argv += [
            "-" if any(path.is_relative_to("/run") for path in (base, root)) else "/run",
            *_nspawn_argv(board, root),
        ]
        return BootPlan(
            argv=tuple(argv), address=board.address, port=board.port, cgroups=tuple(str(path) for path in groups)
        )

    def pagecache_roots(self, board: BoardPlan) -> list[Path]:
        """Folders of the host that hold the board's own files: the only ones whose page cache is the board's."""
        return [board.folder / "upper"]


def _nspawn_argv(board: BoardPlan, root: Path) -> list[str]:
    argv = [tool("systemd-nspawn"), "--quiet", "--boot", "--register=no", "--keep-unit", "--console=pipe"]
    argv += ["--machine", board.name, "--directory", str(root), "--resolv-conf=off", "--timezone=off"]
    argv += ["--link-journal=no", "--kill-signal=SIGRTMIN+3"]
    for index, bind in enumerate(board.binds):
        target = f"{_HELD}/{index}" if _is_late(bind) else bind.target
        option = "--bind-ro" if bind.read_only else "--bind"
        argv.append(f"{option}={_colons(str(bind.source))}:{_colons(target)}")
    return argv


def _fill(upper: Path, board: BoardPlan) -> None:
    write_files(
        upper,
        {
            "etc/hostname": board.name + "\n",
            "etc/hosts": hosts_text(board.name),
            "etc/machine-id": board.machine_id + "\n",
            "etc/ssh/sshd_config": sshd_config(board, "/etc/ssh/host_key", "/etc/ssh/authorized_keys"),
            "etc/ssh/authorized_keys": board.client_key + "\n",
            "etc/ssh/host_key.pub": board.host_key_file.with_name(board.host_key_file.name + ".pub").read_text(),
            f"etc/systemd/system/{SSHD_UNIT}": _SSHD_TEXT,
            f"etc/systemd/system/{BINDS_UNIT}": _binds_text(board),
            "etc/systemd/journald.conf.d/boardbench.conf": "[Journal]\nStorage=volatile\nRuntimeMaxUse=16M\n",
            "etc/systemd/system.conf.d/boardbench.conf": "[Manager]\nDefaultTimeoutStopSec=5s\n",
        },
    )
    write_whole(upper / "etc/ssh/host_key", board.host_key_file.read_text(encoding="ascii"), mode=0o600)
    wants = upper / "etc/systemd/system/sysinit.target.wants"
    wants.mkdir(exist_ok=True)
    for unit in (SSHD_UNIT, BINDS_UNIT):
        if not (wants / unit).is_symlink():
            (wants / unit).symlink_to(f"/etc/systemd/system/{unit}")


def _is_late(bind: Bind) -> bool:
    # nspawn mounts /proc after its binds, which would hide them: a unit of the board puts these into place.
    return bind.target.startswith("/proc/")


def _binds_text(board: BoardPlan) -> str:
    lines = [
        "[Unit]",
        "Description=Kernel files of this virtual board",
        "DefaultDependencies=no",
        f"Before={SSHD_UNIT}",
    ]
    lines += ["", "[Service]", "Type=oneshot", "RemainAfterExit=yes", "ExecStart=/bin/true"]
    late = [(index, bind.target) for index, bind in enumerate(board.binds) if _is_late(bind)]
    lines += [f"ExecStart=/bin/mount --bind {_HELD}/{index} {target}" for index, target in late]
    if cgroups.memory_folder(board.address) is not None:
        # What the board sees there is its own group alone: it may limit its programs' memory, as a real board may.
        lines.append("ExecStart=-/bin/mount -o remount,bind,rw /sys/fs/cgroup/memory")
    return "\n".join([*lines, "", "[Install]", "WantedBy=sysinit.target"]) + "\n"


def boot_id(init_pid: int) -> str | None:
    """The boot id that the board whose init has this host pid shows; None when it cannot be read (yet)."""
    try:
        with open(f"/proc/{init_pid}/root/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return None


def _escaped(path: Path) -> str:
    """A path as an overlay mount option takes it."""
    return str(path).replace("\\", "\\\\").replace(",", "\\,").replace(":", "\\:")


def _colons(path: str) -> str:
    return path.replace("\\", "\\\\").replace(":", "\\:")
