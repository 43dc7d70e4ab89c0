"""Fleets come up fast, side by side and only once, and leave nothing: after `down`, and after crashes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from boardbench import locations
from boardbench.errors import InputError, RigError
from boardbench.virtual import cgroups, identity, processes
from boardbench.virtual.fleet import Fleet
from boardbench.virtual.processes import Mark

from .rig import BOARDS, REAL_TMP, listening, needs, ssh

pytestmark = pytest.mark.boards

KINDS = ["bwrap", pytest.param("nspawn", marks=pytest.mark.nspawn)]
PAIR = {"ann": "nanopi-r76s", "bob": "jetson-orin-nano"}
# Longest time to ssh on four boards. Far above what was measured (about 1 s), so that a busy machine does not fail it.


@pytest.fixture
def own() -> Iterator[Fleet]:
    """A fleet of the test's own, not started, gone afterwards in any case."""
    with tempfile.TemporaryDirectory(prefix="boardbench-life-", dir=REAL_TMP) as folder:
        fleet = Fleet.open("own", Path(folder), locations.cache_dir())
        try:
            yield fleet
        finally:
            fleet.down()


def recorded(fleet: Fleet) -> list[Mark]:
    """The daemon and the supervisors of the fleet, from its own records."""
    files = [fleet.folder / "daemon-started.json", *fleet.folder.glob("boards/*/supervisor.json")]
    return [Mark(**json.loads(path.read_text())) for path in files]


def all_processes(fleet: Fleet) -> list[Mark]:
    """Every process of the fleet."""
    marks = recorded(fleet)
    return marks + [below for mark in marks for below in processes.descendants(mark.pid)]


def assert_nothing_left(fleet: Fleet, marks: list[Mark], addresses: list[str]) -> None:
    assert not fleet.folder.exists()
    assert [mark for mark in marks if processes.alive(mark)] == []
    assert str(fleet.folder) not in Path("/proc/mounts").read_text()
    assert cgroups.left_by(addresses) == []
    assert listening(identity.SSH_PORT).isdisjoint(addresses)


@pytest.mark.parametrize("kind", KINDS)
def test_four_boards_come_up_and_down_leaves_nothing(own: Fleet, kind: str) -> None:
    needs(kind)
    progress: list[str] = []
    status = own.up(BOARDS, kind=kind, on_progress=progress.append)
    assert {board.state for board in status.boards.values()} == {"up"}
    assert all(any(line.startswith(f"{name}: ") for line in progress) for name in BOARDS)
    marks = all_processes(own)
    assert len(marks) > 2 * len(BOARDS)
    addresses = [board.address for board in status.boards.values()]
    own.down()
    assert_nothing_left(own, marks, addresses)
    assert own.status().boards == {}


@pytest.mark.parametrize("kind", KINDS)
def test_a_board_dies_with_its_supervisor_and_down_cleans_up_after_a_crash(own: Fleet, kind: str) -> None:
    needs(kind)
    status = own.up(PAIR, kind=kind)
    marks = all_processes(own)
    for mark in recorded(own):
        processes.send(mark, signal.SIGKILL)
    assert processes.wait_gone(marks, 5.0) == []
    assert {board.state for board in own.status().boards.values()} == {"down"}
    own.down()
    assert_nothing_left(own, marks, [board.address for board in status.boards.values()])


@pytest.mark.parametrize("kind", KINDS)
def test_up_after_a_crash_starts_anew(own: Fleet, kind: str) -> None:
    needs(kind)
    own.up(PAIR, kind=kind)
    marks = all_processes(own)
    for mark in marks:
        processes.send(mark, signal.SIGKILL)
    assert processes.wait_gone(marks, 5.0) == []
    status = own.up({"ann": "nanopi-r76s"}, kind=kind, time_scale=10.0)
    assert list(status.boards) == ["ann"]
    assert ssh(own, "ann", "hostname").out == "ann"


@pytest.mark.parametrize("kind", KINDS)
def test_up_again_after_the_sysfs_daemon_died_gives_the_boards_live_files(own: Fleet, kind: str) -> None:
    needs(kind)
    own.up(PAIR, kind=kind)
    daemon = Mark(**json.loads((own.folder / "daemon-started.json").read_text()))
    processes.end([daemon], grace_s=0.0)
    assert own.status().sysfs == "none"
    assert own.up(PAIR, kind=kind).sysfs in ("fuse", "plain")
    assert ssh(own, "ann", "cat /sys/class/thermal/thermal_zone0/type").code == 0


def test_host_keys_and_addresses_stay_the_same_when_boards_are_killed(own: Fleet) -> None:
    needs("bwrap")
    own.up(PAIR, kind="bwrap")
    before = own.known_hosts.read_text()
    for name in PAIR:
        own.kill(name)
        own.up(PAIR, kind="bwrap")
    assert own.known_hosts.read_text() == before
    assert ssh(own, "bob", "true").code == 0


def test_two_commands_start_one_fleet_only_once(own: Fleet) -> None:
    needs("bwrap")
    code = (
        "import sys; from pathlib import Path; from boardbench.virtual.fleet import Fleet\n"
        "fleet = Fleet.open('own', Path(sys.argv[1]), Path(sys.argv[2]))\n"
        f"status = fleet.up({PAIR!r}, kind='bwrap')\n"
        "print(sorted((n, b.pid, b.boot_id) for n, b in status.boards.items()))\n"
    )
    argv = [sys.executable, "-c", code, str(own.folder.parent), str(locations.cache_dir())]
    both = [subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = [process.communicate(timeout=60)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert said[0] == said[1] != ""


def test_several_fleets_live_side_by_side(own: Fleet) -> None:
    needs("bwrap")
    other = Fleet.open("other", own.folder.parent, locations.cache_dir())
    try:
        first, second = own.up(PAIR, kind="bwrap"), other.up(PAIR, kind="bwrap")
        assert {b.address for b in first.boards.values()}.isdisjoint({b.address for b in second.boards.values()})
        assert ssh(own, "ann", "cat /etc/machine-id").out != ssh(other, "ann", "cat /etc/machine-id").out
        other.down()
        assert ssh(own, "ann", "true").code == 0
    finally:
        other.down()


def test_names_and_kinds_that_cannot_be_are_refused_before_anything_starts(own: Fleet) -> None:
    with pytest.raises(InputError, match="cannot be the name of a virtual board"):
        own.up({"a/b": "nanopi-r76s"}, kind="bwrap")
    with pytest.raises(InputError, match="cannot be virtual"):
        own.up({"ann": "host"}, kind="bwrap")
    with pytest.raises(InputError, match="no kind of virtual board named 'docker'"):
        own.up(PAIR, kind="docker")
    with pytest.raises(InputError, match="time scale"):
        own.up(PAIR, kind="bwrap", time_scale=0.0)
    with pytest.raises(InputError, match="is not up"):
        own.access()
    assert not own.folder.exists()


def test_what_a_board_wrote_stays_over_a_power_cut_of_all_boards(own: Fleet) -> None:
    needs("bwrap")
    own.up(PAIR, kind="bwrap")
    assert ssh(own, "ann", "echo kept > /home/pi/kept; echo gone > /run/gone").code == 0
    for name in PAIR:
        own.kill(name)
    own.up(PAIR, kind="bwrap")
    assert ssh(own, "ann", "cat /home/pi/kept; ls /run/gone").out == "kept"


def test_a_board_that_cannot_come_up_leaves_nothing_and_says_why(own: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    needs("bwrap")
    broken = ["/bin/sh", "-c", "echo no sandbox today >&2; exit 1"]
    monkeypatch.setattr("boardbench.virtual.bwrap._argv", lambda *_: broken)
    with pytest.raises(RigError, match=r"went down while booting: .*no sandbox today"):
        own.up(PAIR, kind="bwrap")
    assert not own.folder.exists()
