"""A real sshd on the loopback, started and stopped by a test, with its own keys and nothing of the host's."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

from boardbench.inventory import Access, Board, Cooling, Identity

_CONFIG = """\
ListenAddress 127.0.0.1
Port {port}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/authorized_keys
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
PermitUserEnvironment no
UseDNS no
{more}
"""

# For who runs the tests without being root: the door asks for sudo, and the "board" is this user's own folder.
_SUDO = """\
#!/bin/sh
[ "$1" = -n ] && shift
[ "$1" = -- ] && shift
exec "$@"
"""


def make_key(path: Path, kind: str = "ed25519") -> Path:
    """A key pair without a passphrase."""
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-C", "test", "-f", str(path)], check=True)
    return path


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def board_at(port: int, key_file: Path, *, name: str = "king", user: str | None = None) -> Board:
    """A board of the inventory that is this sshd."""
    access = Access("127.0.0.1", port, user or getpass.getuser(), key_file)
    return Board(name, "host", access, (), frozenset(), Cooling(), Identity(), {}, "test.yml:1")


class Sshd:
    """Runs from `with` to its end."""

    def __init__(self, folder: Path, more: str = "") -> None:
        self.folder = folder
        self.more = more
        self.port = free_port()
        self.key_file = make_key(folder / "user_key")
        make_key(folder / "host_key")
        (folder / "authorized_keys").write_text((folder / "user_key.pub").read_text())

    def board(self, name: str = "king") -> Board:
        return board_at(self.port, self.key_file, name=name)

    def __enter__(self) -> Sshd:
        config = self.folder / "sshd_config"
        more = self.more
        if os.geteuid() != 0:
            sudo = self.folder / "bin" / "sudo"
            sudo.parent.mkdir(exist_ok=True)
            sudo.write_text(_SUDO)
            sudo.chmod(0o755)
            more += f"\nSetEnv PATH={sudo.parent}:{os.environ.get('PATH', os.defpath)}"
        config.write_text(_CONFIG.format(port=self.port, folder=self.folder, more=more))
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)  # sshd of root refuses to start without
        program = shutil.which("sshd", path=os.environ.get("PATH", "") + ":/usr/sbin")
        assert program, "this test needs OpenSSH's sshd"
        with (self.folder / "sshd.log").open("w") as log:
            self.process = subprocess.Popen([program, "-D", "-e", "-f", str(config)], stderr=log, stdin=-3)
        end = time.monotonic() + 10
        while time.monotonic() < end:
            assert self.process.poll() is None, (self.folder / "sshd.log").read_text()
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
            except OSError:
                time.sleep(0.02)
            else:
                return self
        raise AssertionError("sshd does not listen")

    def __exit__(self, *_: object) -> None:
        for pid in self.sessions():
            kill(pid)
        self.process.terminate()
        self.process.wait(10)

    def sessions(self) -> list[int]:
        """The pids of the processes that serve a connection now.

        Where the user is not root, sshd splits in two: a monitor, and below it the one that holds the connection.
        """
        monitors = children(self.process.pid)
        return [pid for monitor in monitors for pid in (monitor, *(c for c in children(monitor) if is_sshd(c)))]


def is_sshd(pid: int) -> bool:
    """Whether the process is one of sshd's own, and not what it has started for its user."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip().startswith("sshd")
    except OSError:
        return False


def children(parent: int) -> list[int]:
    """The pids of the direct children."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == parent:
                found.append(int(entry.name))
    return found


def kill(pid: int) -> None:
    """SIGKILL to one process; gone already is as good."""
    try:
        os.kill(pid, 9)
    except ProcessLookupError:
        pass


def running(pid: int) -> bool:
    """Whether the process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def until(condition: object, timeout_s: float = 10.0) -> bool:
    """Waits for `condition()`; False when it did not come true in time."""
    assert callable(condition)
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return False
