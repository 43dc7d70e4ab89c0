"""What a board is asked costs one SSH connection and one exec, as the board's own sshd counts them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from boardbench.virtual.fleet import Fleet

from .lab import Lab, recap_of
from .rig import BOARDS
from .sshd_logs import SshdLogs, settled, talkative_logs

pytestmark = pytest.mark.boards

ONE_OF_EACH = {name: {"connections": 1, "execs": 1} for name in BOARDS}


@pytest.fixture(scope="module")
def talkative(bwrap_fleet: Fleet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshdLogs]:
    """The boards' sshd logs, with every login and every session in them."""
    yield from talkative_logs(Lab(bwrap_fleet, tmp_path_factory.mktemp("lab")))


@pytest.fixture
def lab(bwrap_fleet: Fleet, tmp_path: Path) -> Iterator[Lab]:
    made = Lab(bwrap_fleet, tmp_path)
    yield made
    made.clean()


@pytest.fixture
def logs(lab: Lab, talkative: SshdLogs) -> SshdLogs:  # noqa: ARG001 - the lab is made first, and cleaned last
    """Those logs from here on."""
    talkative.mark()
    return talkative


def test_a_provision_costs_one_connection_and_one_exec_a_board_changed_or_not(lab: Lab, logs: SshdLogs) -> None:
    for what in ("changed", "ok"):
        logs.mark()
        done = lab.inv("provision", "--json")
        assert done.code == 0, done.err + done.out
        recap = done.document["recap"]
        assert set(recap) == set(BOARDS)
        assert all(counts[what] > 0 for counts in recap.values()), recap
        if what == "ok":
            assert [counts["changed"] for counts in recap.values()] == [0] * len(BOARDS), recap
        assert settled(logs, ONE_OF_EACH) == ONE_OF_EACH


def test_the_door_counts_as_the_board_does(lab: Lab, logs: SshdLogs) -> None:
    lab.provision()
    logs.mark()
    outcome = lab.provision()
    assert {name: counts["changed"] for name, counts in recap_of(outcome).items()} == dict.fromkeys(BOARDS, 0)
    counted = {
        name: {"connections": sum(d.connections for d in doors), "execs": sum(d.execs for d in doors)}
        for name, doors in lab.doors.items()
    }
    assert counted == ONE_OF_EACH
    assert settled(logs, ONE_OF_EACH) == ONE_OF_EACH


def test_several_calls_share_the_connection(lab: Lab, logs: SshdLogs) -> None:
    with lab.door("king") as door:
        for _ in range(3):
            door.call("facts", {"paths": []}, deadline_s=20.0)
        assert (door.connections, door.execs) == (1, 3)
    wanted = {name: {"connections": 0, "execs": 0} for name in BOARDS} | {"king": {"connections": 1, "execs": 3}}
    assert settled(logs, wanted) == wanted


def test_showing_the_boards_costs_one_connection_and_one_exec_each(lab: Lab, logs: SshdLogs) -> None:
    done = lab.inv("boards", "--json")
    assert done.code == 0, done.err
    assert set(done.document["boards"]) == set(BOARDS)
    assert settled(logs, ONE_OF_EACH) == ONE_OF_EACH


def test_what_the_boards_sshd_runs_is_a_constant(lab: Lab) -> None:
    """Nothing of a playbook is in the command line: the board's own process list shows only the stub."""
    shell = "cp /proc/$PPID/cmdline /etc/bench-faults/line"
    odd = "no-such-word; $(reboot)"
    outcome = lab.provision(f"  - command: {{argv: [sh, -c, '{shell}', '{odd}'], creates: /etc/bench-faults/line}}\n")
    assert all(not counts["failed"] for counts in recap_of(outcome).values()), outcome.as_json()
    line = (lab.board_folder("king") / "root/etc/bench-faults/line").read_text().split("\0")
    assert line[:3] == ["python3", "-IS", "-c"]
    assert len(line) == 5  # the stub, and what follows the last NUL
    assert not any("no-such-word" in word for word in line)
