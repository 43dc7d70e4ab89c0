"""A switch, and boards on cables of their own: network namespaces, for a program that runs in one of its own (`ALONE`).

The program's own namespace is the switch and the host at it. A cable that is pulled drops all that is on it, both ways,
without a word: neither end hears of it but by silence.
"""

from __future__ import annotations

import shutil
import subprocess

# Its own users, network, processes and /proc: all ends with its first process.
ALONE = ("unshare", "-rnpf", "--kill-child", "--mount-proc")
HOST = "10.77.0.1"
_SWITCH = "switch"


def missing() -> str:
    """Why such a network cannot be had here; "" when it can."""
    for tool in ("ip", "unshare", "nsenter"):
        if shutil.which(tool) is None:
            return f"there is no '{tool}'"
    bare = ["ip", "link", "add", "probe", "type", "veth", "peer", "name", "other"]
    done = subprocess.run([*ALONE, *bare], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else f"network namespaces cannot be made: {done.stderr.strip()[:200]}"


def _do(*argv: str) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(argv)}: {done.stderr.strip()}"


def make_switch() -> None:
    """Makes this namespace a switch with a host at it (HOST)."""
    _do("ip", "link", "set", "lo", "up")
    _do("ip", "link", "add", _SWITCH, "type", "bridge")
    _do("ip", "address", "add", f"{HOST}/24", "dev", _SWITCH)
    _do("ip", "link", "set", _SWITCH, "up")


class Board:
    """A board on a cable: a network of its own, with one address that it keeps over its boots."""

    def __init__(self, name: str, number: int) -> None:
        self.name, self.address = name, f"10.77.0.{10 + number}"
        self._mac = f"02:00:00:00:00:{10 + number:02x}"
        self._port = f"{name}-port"
        self._holder: subprocess.Popen[str] | None = None

    def power_on(self) -> None:
        """Its network is there, and knows of nothing that was before."""
        holder = subprocess.Popen(
            ["unshare", "-n", "sh", "-c", "echo up; exec cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert holder.stdout is not None
        assert holder.stdout.readline() == "up\n"
        self._holder = holder
        peer = ("peer", "name", "eth0", "address", self._mac, "netns", str(holder.pid))
        _do("ip", "link", "add", self._port, "type", "veth", *peer)
        for words in (("link", "set", "lo", "up"), ("address", "add", f"{self.address}/24", "dev", "eth0"),
                      ("link", "set", "eth0", "up")):  # fmt: skip
            _do(*self.within(), "ip", *words)
        _do("ip", "link", "set", self._port, "master", _SWITCH, "up")

    def power_off(self) -> None:
        """Its network is gone without a word; end its programs between `pull` and this."""
        assert self._holder is not None
        _do("ip", "link", "delete", self._port)
        assert self._holder.stdin is not None
        self._holder.stdin.close()
        self._holder.wait()

    def within(self) -> tuple[str, ...]:
        """The words that start a program on this board."""
        assert self._holder is not None
        return ("nsenter", "-t", str(self._holder.pid), "-n")

    def pull(self) -> None:
        """Pulls the cable."""
        _do("ip", "link", "set", self._port, "down")

    def plug(self) -> None:
        """Puts the cable back."""
        _do("ip", "link", "set", self._port, "up")
