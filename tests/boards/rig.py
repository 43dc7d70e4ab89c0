"""What tests with virtual boards share: a fleet that is taken down, a command over ssh, a board for the inventory."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from boardbench import locations
from boardbench.inventory import Board, Cooling, Identity
from boardbench.virtual import doctor
from boardbench.virtual.fleet import Fleet

BOARDS = {"jetson": "jetson-orin-nano", "king": "nanopi-r76s", "queen": "nanopi-r76s", "jack": "nanopi-r76s"}
TIME_SCALE = 60.0
# The default place of tests' temporary folders, but on a real file system: page-cache tests and overlays need one.
REAL_TMP = Path("/var/tmp") if os.access("/var/tmp", os.W_OK) else None


def why_not(kind: str) -> str:
    """What is in the way of this kind of boards here; empty when it works."""
    with tempfile.TemporaryDirectory(dir=REAL_TMP) as folder:
        found = doctor.doctor(Path(folder))[kind]
    return "; ".join(str(obstacle) for obstacle in found)


def needs(kind: str) -> None:
    """Skips the test with the reason when this kind of board is not possible here."""
    reason = why_not(kind)
    if reason:
        pytest.skip(f"no {kind} boards on this machine: {reason}")


@dataclass(frozen=True)
class Ran:
    """What a command on a board gave."""

    code: int
    out: str
    err: str


def ssh(fleet: Fleet, board: str, *command: str, timeout_s: float = 20.0, stdin: str = "") -> Ran:
    """Runs a command on the board with the real ssh client: key login only, pinned host key, no question asked."""
    access = fleet.access()[board]
    argv = ["ssh", "-F", "none", "-p", str(access.port), "-i", str(access.key_file), "-o", "BatchMode=yes"]
    argv += ["-o", "IdentitiesOnly=yes", "-o", "StrictHostKeyChecking=yes", "-o", "ConnectTimeout=5"]
    argv += ["-o", f"UserKnownHostsFile={fleet.known_hosts}", "-o", "GlobalKnownHostsFile=/dev/null"]
    argv += [f"{access.user}@{access.host}", "--", *command]
    done = subprocess.run(argv, input=stdin, capture_output=True, text=True, timeout=timeout_s)
    return Ran(done.returncode, done.stdout.strip(), done.stderr.strip())


_COUNT = """
import os, sys
wanted = " ".join(sys.argv[1:]).split()
found = 0
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        with open("/proc/" + pid + "/cmdline", "rb") as file:
            found += file.read().decode(errors="replace").split("\\0")[:-1] == wanted
    except OSError:
        pass
print(found)
"""


def running(fleet: Fleet, board: str, command: str) -> int:
    """How many processes on the board run exactly this command line (words without spaces)."""
    ran = ssh(fleet, board, "python3", "-", command, stdin=_COUNT)
    assert ran.code == 0, ran.err
    return int(ran.out)


def listening(port: int) -> set[str]:
    """The addresses on which somebody listens on this port on the host, from the kernel."""
    found = set()
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        local, state = line.split()[1], line.split()[3]
        address, its_port = local.split(":")
        if state == "0A" and int(its_port, 16) == port:
            # The kernel shows addresses as little-endian hex digits.
            found.add(".".join(str(byte) for byte in reversed(bytes.fromhex(address))))
    return found


def board_of(fleet: Fleet, name: str) -> Board:
    """The inventory's view of one virtual board."""
    return Board(
        name=name,
        kind=BOARDS[name],
        access=fleet.access()[name],
        groups=(),
        capabilities=frozenset(),
        cooling=Cooling("virtual", {}),
        identity=Identity(hostname=name, machine_id=None, serial=None),
        vars={},
        where=f"tests: {name}",
    )


def fleet_of(kind: str, state_folder: Path) -> Iterator[Fleet]:
    """A fleet of all four boards that is taken down at the end."""
    needs(kind)
    # The shared cache, so that the base image is built once for all sessions.
    fleet = Fleet.open(kind, state_folder, locations.cache_dir())
    try:
        fleet.up(BOARDS, kind=kind, time_scale=TIME_SCALE, on_progress=print)
        yield fleet
    finally:
        fleet.down()
