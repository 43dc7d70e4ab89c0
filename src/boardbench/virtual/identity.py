"""Who a virtual board is: addresses, machine ids, host keys. All of it stays the same over restarts of the fleet."""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from boardbench.errors import RigError

SSH_PORT = 2222
USER = "pi"
_FIRST_HOST = 10
_LAST_HOST = 250
MAXIMUM_BOARDS = _LAST_HOST - _FIRST_HOST + 1
_TRIES = 32


def network(folder: Path, attempt: int = 0) -> str:
    """The `127.A.B` of a fleet, from the path of its state folder, so that several fleets live side by side."""
    digest = hashlib.sha256(f"{folder}\0{attempt}".encode()).digest()
    # 127.0 and 127.1 are what other programs use by hand; stay clear of them.
    return f"127.{16 + digest[0] % 224}.{digest[1]}"


def addresses(folder: Path, names: Sequence[str], port: int = SSH_PORT) -> dict[str, str]:
    """A free loopback address for every board. Raises RigError when 32 networks in a row are in use."""
    for attempt in range(_TRIES):
        prefix = network(folder, attempt)
        chosen = {name: f"{prefix}.{_FIRST_HOST + index}" for index, name in enumerate(names)}
        if all(is_free(address, port) for address in chosen.values()):
            return chosen
    raise RigError(
        f"no free loopback network for the fleet: port {port} is in use on {_TRIES} networks",
        where=str(folder),
        advice="end other virtual fleets",
    )


def is_free(address: str, port: int) -> bool:
    """Whether nobody listens on this address and port."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True


def machine_id(folder: Path, board: str) -> str:
    """32 hex digits, the same for the same fleet folder and board name."""
    return hashlib.sha256(f"machine-id\0{folder}\0{board}".encode()).hexdigest()[:32]


def ensure_key(path: Path, comment: str) -> str:
    """An ed25519 key pair at `path` and `path.pub`, made when it is not there; returns the public line."""
    public = path.with_name(path.name + ".pub")
    if not (path.is_file() and public.is_file()):
        path.unlink(missing_ok=True)
        public.unlink(missing_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path)]
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"}
        )
        if done.returncode != 0:
            raise RigError(f"ssh-keygen failed: {done.stderr.strip() or done.stdout.strip()}", where=str(path))
    return public.read_text(encoding="ascii").strip()


def known_hosts_text(keys: Mapping[str, str], port: int = SSH_PORT) -> str:
    """The pinned host keys, address -> public line, in OpenSSH's known_hosts format."""
    lines = []
    for address, public in sorted(keys.items()):
        kind, key = public.split()[:2]
        lines.append(f"[{address}]:{port} {kind} {key}\n")
    return "".join(lines)
