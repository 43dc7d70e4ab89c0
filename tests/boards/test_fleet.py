"""Both kinds of virtual boards do what a board must do, with a real ssh client and nothing mocked."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from boardbench.errors import InputError
from boardbench.virtual import identity
from boardbench.virtual.fleet import Fleet

from .rig import BOARDS, TIME_SCALE, listening, running, ssh

pytestmark = pytest.mark.boards

UNIT = """[Service]
ExecStart=/bin/sh -c 'echo started; exec sleep 1000'
"""


@contextlib.contextmanager
def unit_on(fleet: Fleet, board: str, name: str, text: str) -> Iterator[None]:
    """A transient unit on the board, removed again."""
    path = f"/run/systemd/system/{name}"
    assert ssh(fleet, board, "sudo mkdir -p /run/systemd/system").code == 0
    assert ssh(fleet, board, f"sudo tee {path}", stdin=text).code == 0
    try:
        assert ssh(fleet, board, "sudo systemctl daemon-reload").code == 0
        yield
    finally:
        ssh(fleet, board, f"sudo systemctl stop {name}; sudo rm -f {path}; sudo systemctl daemon-reload")


def test_all_boards_are_up_and_status_says_where(fleet: Fleet) -> None:
    status = fleet.status()
    assert status.kind == fleet.name
    assert status.time_scale == TIME_SCALE
    assert {name: board.state for name, board in status.boards.items()} == dict.fromkeys(BOARDS, "up")
    assert len({board.address for board in status.boards.values()}) == len(BOARDS)
    assert all(board.address.startswith("127.") and board.port == 2222 for board in status.boards.values())
    assert all(board.uptime_s is not None and board.uptime_s > 0 for board in status.boards.values())


def test_every_board_has_its_own_name_machine_id_boot_id_and_host_key(fleet: Fleet) -> None:
    seen = {}
    for name in BOARDS:
        ran = ssh(fleet, name, "hostname; cat /etc/machine-id /proc/sys/kernel/random/boot_id; id -un")
        assert ran.code == 0, ran.err
        hostname, machine_id, boot_id, user = ran.out.splitlines()
        assert (hostname, user) == (name, "pi")
        assert len(machine_id) == 32
        assert boot_id == fleet.status().boards[name].boot_id
        seen[name] = (machine_id, boot_id)
    assert len({machine_id for machine_id, _ in seen.values()}) == len(BOARDS)
    assert len({boot_id for _, boot_id in seen.values()}) == len(BOARDS)
    keys = [line.split()[2] for line in fleet.known_hosts.read_text().splitlines()]
    assert len(set(keys)) == len(BOARDS)


def test_sudo_gives_root_without_a_question_and_passes_code_and_streams_on(fleet: Fleet) -> None:
    assert ssh(fleet, "king", "sudo -n id -u").out == "0"
    assert ssh(fleet, "king", "sudo -n -- id -u").out == "0"
    assert ssh(fleet, "king", "sudo -n -- sh -c 'exit 7'").code == 7
    ran = ssh(fleet, "king", "sudo -n -- sh -c 'cat; echo oops >&2'", stdin="a b\nc")
    assert (ran.out, ran.err) == ("a b\nc", "oops")
    assert ssh(fleet, "king", "sudo -n -- no-such-command").code == 1


def test_root_may_look_into_what_another_login_started_as_root(fleet: Fleet) -> None:
    with unit_on(fleet, "jack", "looked-at.service", UNIT):
        assert ssh(fleet, "jack", "sudo systemctl start looked-at.service").code == 0
        pid = ssh(fleet, "jack", "sudo systemctl show -p MainPID looked-at.service").out.removeprefix("MainPID=")
        looked = ssh(fleet, "jack", f"sudo cat /proc/{pid}/maps; sudo readlink /proc/{pid}/exe")
        assert "/sleep" in looked.out, looked.err
        assert looked.code == 0, looked.err


def test_a_password_is_never_taken(fleet: Fleet) -> None:
    access = fleet.access()["king"]
    argv = ["ssh", "-F", "none", "-p", str(access.port), "-o", "BatchMode=yes", "-o", "PubkeyAuthentication=no"]
    argv += ["-o", f"UserKnownHostsFile={fleet.known_hosts}", f"pi@{access.host}", "true"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=20)
    assert done.returncode == 255
    assert "Permission denied (publickey)" in done.stderr


def test_boards_listen_on_their_own_loopback_address_only(fleet: Fleet) -> None:
    wanted = {board.address for board in fleet.status().boards.values()}
    found = listening(identity.SSH_PORT)
    assert wanted <= found
    assert all(address.startswith("127.") for address in found)


def test_a_started_unit_outlives_the_session_that_started_it(fleet: Fleet) -> None:
    with unit_on(fleet, "queen", "fleet-test.service", UNIT):
        assert ssh(fleet, "queen", "sudo systemctl start fleet-test.service").code == 0
        assert ssh(fleet, "queen", "systemctl is-active fleet-test.service").out == "active"
        assert running(fleet, "queen", "sleep 1000") == 1
        log = ssh(fleet, "queen", "sudo journalctl -u fleet-test.service -n 20 --no-pager")
        assert "started" in log.out
        assert ssh(fleet, "queen", "sudo systemctl stop fleet-test.service").code == 0
        assert ssh(fleet, "queen", "systemctl is-active fleet-test.service").out in ("inactive", "unknown")
        assert running(fleet, "queen", "sleep 1000") == 0


def test_the_hosts_kernel_settings_cannot_be_written(fleet: Fleet) -> None:
    before = Path("/proc/sys/vm/dirty_ratio").read_text()
    ran = ssh(fleet, "king", "sudo sh -c 'echo 33 > /proc/sys/vm/dirty_ratio'")
    assert ran.code != 0
    assert "Read-only file system" in ran.err
    assert Path("/proc/sys/vm/dirty_ratio").read_text() == before


def test_packages_are_told_as_they_are(fleet: Fleet) -> None:
    query = "dpkg-query -W -f '${db:Status-Status}'"
    assert ssh(fleet, "king", f"{query} openssh-server").out == "installed"
    assert ssh(fleet, "king", f"{query} no-such-package-at-all").code == 1


def test_orphans_are_taken_in_and_leave_no_zombies(fleet: Fleet) -> None:
    assert ssh(fleet, "jack", "sh -c '(sleep 0.1; exit 3) & exit 0'").code == 0
    time.sleep(0.4)
    states = ssh(fleet, "jack", "cat /proc/[0-9]*/status | grep ^State").out
    assert "sleeping" in states
    assert "zombie" not in states


def test_a_cut_link_stops_ssh_while_the_board_runs_on_and_mend_ends_it(fleet: Fleet) -> None:
    board = "jack"
    counting = "i=0; while [ $i -lt 200 ]; do i=$((i+1)); echo >> /tmp/count; sleep 0.05; done"
    assert ssh(fleet, board, f"rm -f /tmp/count; nohup sh -c '{counting}' >/dev/null 2>&1 & sleep 0.3").code == 0
    began = time.monotonic()
    fleet.cut(board)
    try:
        assert fleet.status().boards[board].cut
        assert ssh(fleet, board, "true").code == 255
    finally:
        fleet.mend(board)
    away_s = time.monotonic() - began
    assert not fleet.status().boards[board].cut
    count = int(ssh(fleet, board, "wc -l < /tmp/count").out)
    assert count > away_s * 8, "the board stood still while its link was cut"


def test_a_changed_host_key_is_refused_by_the_pinned_one(fleet: Fleet) -> None:
    fleet.change_host_key("jack")
    try:
        ran = ssh(fleet, "jack", "true")
        assert ran.code == 255
        assert "Host key verification failed" in ran.err
    finally:
        fleet.restore_host_key("jack")
    assert ssh(fleet, "jack", "true").code == 0


def test_a_reboot_over_ssh_gives_a_new_boot_id_and_ends_what_ran(fleet: Fleet) -> None:
    before = fleet.status().boards["jack"].boot_id
    assert ssh(
        fleet, "jack", "nohup sleep 987 >/dev/null 2>&1 & echo kept > /home/pi/kept; touch /run/x /tmp/x"
    ).code in (0, 1)
    ssh(fleet, "jack", "sudo -n systemctl reboot")
    deadline = time.monotonic() + 30
    while fleet.status().boards["jack"].boot_id in (before, None) or ssh(fleet, "jack", "true").code != 0:
        assert time.monotonic() < deadline, "the board did not come back"
        time.sleep(0.1)
    ran = ssh(fleet, "jack", "cat /proc/sys/kernel/random/boot_id /home/pi/kept; ls /run/x /tmp/x")
    assert ran.out.splitlines()[1:] == ["kept"]
    assert running(fleet, "jack", "sleep 987") == 0
    assert ran.out.splitlines()[0] == fleet.status().boards["jack"].boot_id != before


def test_an_enabled_unit_starts_at_boot(fleet: Fleet) -> None:
    text = UNIT.replace("1000", "1001") + "[Install]\nWantedBy=multi-user.target\n"
    assert ssh(fleet, "queen", "sudo tee /etc/systemd/system/fleet-boot.service", stdin=text).code == 0
    try:
        assert ssh(fleet, "queen", "sudo systemctl daemon-reload && sudo systemctl enable fleet-boot.service").code == 0
        fleet.reboot("queen")
        deadline = time.monotonic() + 20
        while running(fleet, "queen", "sleep 1001") == 0:
            assert time.monotonic() < deadline, "the enabled unit did not start"
            time.sleep(0.2)
    finally:
        ssh(
            fleet,
            "queen",
            "sudo systemctl disable --now fleet-boot.service; sudo rm /etc/systemd/system/fleet-boot.service",
        )


def test_a_killed_board_is_down_with_all_of_it_and_up_brings_only_it_back(fleet: Fleet) -> None:
    before = fleet.status().boards
    fleet.kill("king")
    during = fleet.status().boards
    assert during["king"].state == "down"
    assert {name: during[name].boot_id for name in ("jetson", "queen", "jack")} == {
        name: before[name].boot_id for name in ("jetson", "queen", "jack")
    }
    after = fleet.up(BOARDS, kind="auto", time_scale=TIME_SCALE).boards
    assert after["king"].state == "up"
    assert after["king"].boot_id != before["king"].boot_id
    assert after["queen"].pid == before["queen"].pid


def test_up_with_other_settings_is_refused_and_says_which(fleet: Fleet) -> None:
    with pytest.raises(InputError, match="time scale 60, not 10"):
        fleet.up(BOARDS, kind=fleet.name, time_scale=10.0)
    with pytest.raises(InputError, match="boards jack, jetson, king, queen, not king"):
        fleet.up({"king": BOARDS["king"]}, kind=fleet.name, time_scale=TIME_SCALE)


def test_faults_reach_the_board(fleet: Fleet) -> None:
    zone = "grep -l -x soc-thermal /sys/class/thermal/thermal_zone*/type"
    path = Path(ssh(fleet, "king", zone).out).parent / "temp"
    fleet.set_faults("king", {"zone_errors": {"soc-thermal": "EIO"}})
    try:
        deadline = time.monotonic() + 5
        while "Input/output error" not in ssh(fleet, "king", f"cat {path}").err:
            assert time.monotonic() < deadline, "the fault did not reach the board"
    finally:
        fleet.set_faults("king", {})
    deadline = time.monotonic() + 5
    while ssh(fleet, "king", f"cat {path}").code != 0:
        assert time.monotonic() < deadline, "the fault did not end"


def conversations(fleet: Fleet) -> set[tuple[str, str]]:
    """Both ends of every connection with a board that the host's kernel still knows, also of one that just ended."""
    ours = {f"{int.from_bytes(socket.inet_aton(at.host), sys.byteorder):08X}:" for at in fleet.access().values()}
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {(row[1], row[2]) for row in rows if row[3] != "0A" and (row[1][:9] in ours or row[2][:9] in ours)}


def test_looking_at_a_fleet_and_opening_one_that_is_up_sends_nothing_to_a_board(
    fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A board may be measured now. What the command line does before it asks a board itself is all here."""
    from tasks._boards import open_rig

    (tmp_path / "boardbench").mkdir()
    (tmp_path / "boardbench" / "fleets").symlink_to(fleet.folder.parent)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    inventory = tmp_path / "fleet.yml"
    lines = [f"virtual: {{name: {fleet.name}, kind: {fleet.name}, time_scale: {TIME_SCALE:g}}}", "boards:"]
    lines += [f"  {name}: {{kind: {kind}}}" for name, kind in BOARDS.items()]
    inventory.write_text("\n".join(["version: 1", *lines]))
    before = conversations(fleet)
    assert {board.state for board in fleet.status().boards.values()} == {"up"}
    opened = {board.name: board.access.host for board in open_rig(str(inventory), "").boards}
    assert opened == {name: at.host for name, at in fleet.access().items()}
    assert conversations(fleet) - before == set()
    assert ssh(fleet, "king", "true").code == 0
    assert conversations(fleet) - before != set(), "this test would not see a connection"
