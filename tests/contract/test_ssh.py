"""What only a real connection can show: keys, ways to be refused, silence, loss, and Paramiko's own traps."""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import os
import shlex
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import paramiko
import pytest
from paramiko.packet import Packetizer

from boardbench import known_hosts, ssh
from boardbench.board import Door, exec_line
from boardbench.crew import each
from boardbench.errors import BenchError, DeadlineError, HostKeyError, InputError, RigError, UnreachableError
from boardbench.inventory import Board
from boardbench.program import Program
from boardbench.ssh import SshLink

from .local_sshd import Sshd, board_at, free_port, kill, make_key, running, until
from .pipe_link import PipeLink


def _door(board: Board, known: Path, app: Program, root: Path) -> Door:
    return Door(board, SshLink.open(board.access, known, where=board.name, deadline_s=20), app=app, root=str(root))


# --- who is there -----------------------------------------------------------------------------------------------------


def test_an_unknown_host_key_is_refused_with_fingerprint_and_command(sshd: Sshd, tmp_path: Path) -> None:
    shown = known_hosts.fingerprint(known_hosts.fetch_key(sshd.board().access))
    with pytest.raises(HostKeyError) as caught:
        Door.open(sshd.board(), tmp_path / "known_hosts")
    assert shown in str(caught.value)
    assert "./inv boards.trust king" in str(caught.value)
    assert not (tmp_path / "known_hosts").exists()


def test_a_changed_host_key_is_refused_with_both_fingerprints(sshd: Sshd, tmp_path: Path) -> None:
    known = tmp_path / "known_hosts"
    access = sshd.board().access
    other = paramiko.Ed25519Key.from_private_key_file(str(make_key(tmp_path / "other")))
    known_hosts.trust(known, access, other)
    with pytest.raises(HostKeyError) as caught:
        Door.open(sshd.board(), known)
    message = str(caught.value)
    assert known_hosts.fingerprint(other) in message
    assert known_hosts.fingerprint(known_hosts.fetch_key(access)) in message
    assert "./inv boards.trust king" in message
    trusted = known_hosts.trust(known, access, known_hosts.fetch_key(access))
    assert trusted.changed
    Door.open(sshd.board(), known).close()


def test_a_pinned_key_of_another_type_is_a_changed_key(sshd: Sshd, tmp_path: Path) -> None:
    known = tmp_path / "known_hosts"
    rsa = paramiko.RSAKey.from_private_key_file(str(make_key(tmp_path / "rsa", "rsa")))
    known_hosts.trust(known, sshd.board().access, rsa)
    with pytest.raises(HostKeyError, match="has changed"):
        Door.open(sshd.board(), known)


# --- ways not to get in -----------------------------------------------------------------------------------------------


def test_a_closed_port_is_one_sentence(tmp_path: Path) -> None:
    board = board_at(free_port(), make_key(tmp_path / "key"))
    with pytest.raises(
        UnreachableError, match=r"king: 127\.0\.0\.1:\d+ refuses the connection; is sshd running"
    ) as caught:
        Door.open(board, tmp_path / "known_hosts")
    assert caught.value.transient


def test_a_key_that_is_not_accepted_is_named_with_its_user(sshd: Sshd, pinned: Path, tmp_path: Path) -> None:
    key = make_key(tmp_path / "stranger")
    board = board_at(sshd.port, key, user="root")
    with pytest.raises(RigError, match=r"does not accept user root with key .*stranger") as caught:
        Door.open(board, pinned)
    assert not caught.value.transient
    assert type(caught.value) is RigError


def test_a_key_file_that_is_missing_is_the_users_mistake(sshd: Sshd, pinned: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nowhere does not exist"):
        Door.open(board_at(sshd.port, tmp_path / "nowhere"), pinned)


def test_a_name_that_does_not_resolve_is_named(tmp_path: Path) -> None:
    board = board_at(22, make_key(tmp_path / "key"))
    lost = Board(**{**vars(board), "access": type(board.access)("no-such-host.invalid", key_file=tmp_path / "key")})
    with pytest.raises(UnreachableError, match=r"no-such-host\.invalid cannot be resolved"):
        Door.open(lost, tmp_path / "known_hosts")


@pytest.fixture
def silent() -> Iterator[int]:
    """The port of a server that accepts and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield int(server.getsockname()[1])


def test_a_silent_server_costs_no_more_than_the_deadline(silent: int, tmp_path: Path) -> None:
    board = board_at(silent, make_key(tmp_path / "key"))
    began = time.monotonic()
    with pytest.raises(UnreachableError, match="accepts the connection but does not speak SSH"):
        Door.open(board, tmp_path / "known_hosts", deadline_s=1.5)
    assert time.monotonic() - began < 4


class _HangingServer(paramiko.ServerInterface):
    """Lets everybody in; then never answers the request named."""

    def __init__(self, hang_at: str, over: threading.Event) -> None:
        self.hang_at = hang_at
        self.over = over

    def get_allowed_auths(self, username: str) -> str:
        return "publickey"

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        return paramiko.AUTH_SUCCESSFUL  # type: ignore[attr-defined, no-any-return]

    def check_channel_request(self, kind: str, chanid: int) -> int:
        if self.hang_at == "open":
            self.over.wait(30)
        return paramiko.OPEN_SUCCEEDED  # type: ignore[attr-defined, no-any-return]

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        if self.hang_at == "exec":
            self.over.wait(30)
        return True


@pytest.mark.parametrize("hang_at", ["open", "exec", "answer"])
def test_a_server_that_hangs_after_the_login_costs_no_more_than_the_deadline(hang_at: str, tmp_path: Path) -> None:
    over = threading.Event()
    host_key = paramiko.Ed25519Key.from_private_key_file(str(make_key(tmp_path / "host")))
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            transport = paramiko.Transport(server.accept()[0])
            transport.add_server_key(host_key)
            transport.start_server(server=_HangingServer(hang_at, over))
            over.wait(30)
            transport.close()

        thread = threading.Thread(target=serve)
        thread.start()
        board = board_at(server.getsockname()[1], make_key(tmp_path / "key"))
        known_hosts.trust(tmp_path / "known", board.access, host_key)
        try:
            with Door.open(board, tmp_path / "known") as door:
                began = time.monotonic()
                with pytest.raises(DeadlineError, match=r"`ended` was not done within 1\.5 s"):
                    door.call("ended", {"call": "x"}, deadline_s=1.5)
                assert time.monotonic() - began < 4
        finally:
            over.set()
            thread.join(10)


def test_an_sshd_that_drops_newcomers_is_asked_again(tmp_path: Path, app: Program) -> None:
    with Sshd(tmp_path, more="MaxStartups 2:100:2") as server:
        board = server.board()
        known_hosts.trust(tmp_path / "known", board.access, known_hosts.fetch_key(board.access))
        boards = [Board(**{**vars(board), "name": f"b{n}"}) for n in range(6)]

        def come_in(one: Board) -> str:
            with _door(one, tmp_path / "known", app, tmp_path / one.name) as door:
                return str(door.call("echo", {}, deadline_s=30)["args"])

        assert each(boards, come_in) == {f"b{n}": "{}" for n in range(6)}


def test_a_broken_pin_file_is_named(sshd: Sshd, tmp_path: Path) -> None:
    known = tmp_path / "known_hosts"
    known.write_text("127.0.0.1 ssh-ed25519 AAA\n")
    with pytest.raises(InputError, match=r"known_hosts: cannot be read"):
        Door.open(sshd.board(), known)


def test_doors_that_are_closed_leave_no_descriptor_and_no_thread(
    sshd: Sshd, pinned: Path, app: Program, tmp_path: Path
) -> None:
    def once() -> None:
        with _door(sshd.board(), pinned, app, tmp_path / "root") as door:
            door.call("echo", {}, deadline_s=20)
            door.call("echo", {}, deadline_s=20)
        with pytest.raises(HostKeyError):
            Door.open(sshd.board(), tmp_path / "nothing is pinned here")

    def held() -> tuple[int, int]:
        return len(os.listdir("/proc/self/fd")), threading.active_count()

    once()
    before = held()
    for _ in range(5):
        once()
    assert until(lambda: held() <= before, 5), f"{before} descriptors and threads became {held()}"


# --- losing it --------------------------------------------------------------------------------------------------------


def test_a_lost_connection_is_told_and_ends_the_work_on_the_board(tmp_path: Path, app: Program) -> None:
    with Sshd(tmp_path) as server:
        board = server.board()
        known_hosts.trust(tmp_path / "known", board.access, known_hosts.fetch_key(board.access))
        with _door(board, tmp_path / "known", app, tmp_path / "root") as door:
            pid_file = tmp_path / "pids"
            caught: list[BenchError] = []

            def call() -> None:
                try:
                    door.call("hang", {"pid_file": str(pid_file)}, deadline_s=60)
                except BenchError as error:
                    caught.append(error)

            thread = threading.Thread(target=call)
            thread.start()
            assert until(pid_file.exists)
            pids = [int(word) for word in pid_file.read_text().split()]
            assert all(map(running, pids))
            for session in server.sessions():
                kill(session)
            thread.join(10)
            assert not thread.is_alive()
            assert isinstance(caught[0], UnreachableError)
            assert "link was lost during `hang`" in str(caught[0])
            assert not door.alive()
            assert until(lambda: not any(map(running, pids)), 15)
            with pytest.raises(UnreachableError, match="link was lost"):
                door.call("echo", {}, deadline_s=5)


# --- what stands between the login and our program --------------------------------------------------------------------


def _prefixed(tmp_path: Path, prefix: str) -> tuple[Door, PipeLink]:
    link = PipeLink(prefix)
    return Door(board_at(1, tmp_path / "none"), link, root=str(tmp_path / "root")), link


@pytest.mark.parametrize(
    ("prefix", "words"),
    [
        ("echo Welcome to Armbian; ", "says something before our program does: 'Welcome to Armbian'; make the login"),
        ("printf '\\377\\376\\n'; ", r"says something before our program does: .*xff"),
        ("PATH=/nowhere; ", "there is no python3 on the board; apt-get install python3"),
        ("echo 'sudo: a password is required' >&2; exit 1; ", "sudo asks user root for a password; allow it"),
        ("echo 'sudo: command not found' >&2; exit 127; ", "there is no sudo on the board"),
        ("echo 'king is not in the sudoers file.' >&2; exit 1; ", "may not use sudo: king is not in the sudoers file"),
        ("echo 'fork: no memory' >&2; exit 254; ", r"did not start \(exit code 254\): fork: no memory"),
        ("exit 3; ", r"did not start \(exit code 3\)"),
    ],
)
def test_what_keeps_the_program_from_starting_is_one_sentence(tmp_path: Path, prefix: str, words: str) -> None:
    door, link = _prefixed(tmp_path, prefix)
    try:
        with pytest.raises(RigError, match=words) as caught:
            door.call("ended", {"call": "x"}, deadline_s=20)
        assert str(caught.value).startswith("king: ")
        assert "\n" not in str(caught.value)
    finally:
        link.reap()


def test_a_board_whose_disk_takes_no_program_is_told(tmp_path: Path) -> None:
    (tmp_path / "root").write_text("a file where a folder must be")
    door, link = _prefixed(tmp_path, "")
    try:
        with pytest.raises(RigError, match=r"king: start: cannot store the program in .*programs: "):
            door.call("ended", {"call": "x"}, deadline_s=20)
    finally:
        link.reap()


def test_a_board_whose_disk_is_full_is_told_to_make_room(tmp_path: Path) -> None:
    # The file size limit of the shell stands for the full disk; Python ignores its signal and gets EFBIG.
    door, link = _prefixed(tmp_path, "ulimit -f 4; ")
    try:
        with pytest.raises(RigError, match=r"cannot store the program in .*: File too large"):
            door.call("ended", {"call": "x"}, deadline_s=20)
        programs = tmp_path / "root/var/lib/boardbench/programs"
        assert list(programs.iterdir()) == []
    finally:
        link.reap()


# --- Paramiko's traps -------------------------------------------------------------------------------------------------


def test_the_socket_has_no_nagle_and_notices_a_dead_peer(sshd: Sshd, pinned: Path) -> None:
    with SshLink_open(sshd, pinned) as transport:
        sock = transport.sock
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 5
        assert transport.remote_cipher == "aes128-gcm@openssh.com"
        assert transport.local_cipher == "aes128-gcm@openssh.com"


class SshLink_open:  # noqa: N801 - reads as a verb
    """The Paramiko transport of an open link, for as long as the block lasts."""

    def __init__(self, sshd: Sshd, pinned: Path) -> None:
        self.link = SshLink.open(sshd.board().access, pinned, where="king", deadline_s=20)

    def __enter__(self) -> paramiko.Transport:
        return self.link._transport

    def __exit__(self, *_: object) -> None:
        self.link.close()


def test_the_private_names_that_raise_paramikos_rekey_limits_are_still_the_ones_it_reads(
    sshd: Sshd, pinned: Path, app: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("REKEY_BYTES", "REKEY_PACKETS"):
        assert isinstance(getattr(Packetizer, name), int)
        assert f"self.{name}" in inspect.getsource(Packetizer)
    with _door(sshd.board(), pinned, app, tmp_path / "root") as door:
        transport = door._link._transport  # type: ignore[attr-defined]
        assert transport.packetizer.REKEY_BYTES == ssh.REKEY_BYTES
        assert transport.packetizer.REKEY_PACKETS == ssh.REKEY_PACKETS
        exchanges: list[float] = []
        original = transport._send_kex_init
        monkeypatch.setattr(transport, "_send_kex_init", lambda: (exchanges.append(time.monotonic()), original()))
        door.call("flood", {"pieces": 8}, deadline_s=20, on_data=lambda *_: None)
        assert exchanges == []
        # With the names set low it must re-key: so they are what decides.
        transport.packetizer.REKEY_BYTES = 1 << 20
        # And the call may die of it: that is paramiko #822, for which they are raised.
        with contextlib.suppress(RigError):
            door.call("flood", {"pieces": 16}, deadline_s=30, on_data=lambda *_: None)
        assert exchanges


@pytest.mark.slow
def test_more_than_512_mib_each_way_over_one_connection_does_not_lock_up(
    sshd: Sshd, pinned: Path, app: Program, tmp_path: Path
) -> None:
    sizes = {"down": 0}

    def count(_: str, piece: bytes) -> None:
        sizes["down"] += len(piece)

    sparse = tmp_path / "zeros"
    with sparse.open("wb") as file:
        file.truncate(140 << 20)
    sha = _sha_of_zeros(140 << 20)
    with _memory_folder() as root, _door(sshd.board(), pinned, app, root) as door:
        for _ in range(4):
            door.call("flood", {"pieces": 560}, deadline_s=60, on_data=count)
        for _ in range(4):
            got = door.call("take", {"blobs": [sha], "forget": True}, deadline_s=60, blobs={sha: sparse})
            assert got == {"got": {sha: sha}}
        assert (door.connections, door.execs) == (1, 8)
    assert sizes["down"] == 560 << 20


def _sha_of_zeros(count: int) -> str:
    digest, piece = hashlib.sha256(), bytes(1 << 20)
    for _ in range(count >> 20):
        digest.update(piece)
    return digest.hexdigest()


class _memory_folder:  # noqa: N801
    """A folder in memory where the system has one: this test is about the link, not about the disk."""

    def __enter__(self) -> Path:
        base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.folder = tempfile.TemporaryDirectory(dir=base)
        return Path(self.folder.name)

    def __exit__(self, *_: object) -> None:
        self.folder.cleanup()


# --- the way there ----------------------------------------------------------------------------------------------------


def test_a_gateway_is_jumped_through_and_its_key_is_pinned_too(
    sshd: Sshd, app: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "gateway"
    folder.mkdir()
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    with Sshd(folder) as gateway:
        user = gateway.board().access.user
        (home / ".ssh/config").write_text(
            f"Host jump\n HostName 127.0.0.1\n Port {gateway.port}\n User {user}\n IdentityFile {gateway.key_file}\n"
            f"Host inner\n HostName 127.0.0.1\n Port {sshd.port}\n User {user}\n IdentityFile {sshd.key_file}\n"
        )
        known = tmp_path / "known"
        inner = type(sshd.board().access)("unused.invalid", alias="inner", gateway="jump")
        board = Board(**{**vars(sshd.board()), "access": inner})
        known_hosts.trust(known, sshd.board().access, known_hosts.fetch_key(sshd.board().access))
        with pytest.raises(
            HostKeyError, match=r"king: gateway 127\.0\.0\.1: the host key .* is not known: .*trust it: ssh -p"
        ):
            Door.open(board, known)
        known_hosts.trust(known, gateway.board().access, known_hosts.fetch_key(gateway.board().access))
        with _door(board, known, app, tmp_path / "root") as door:
            assert door.call("echo", {"x": 1}, deadline_s=20)["args"] == {"x": 1}
            assert gateway.sessions()


def test_the_command_line_works_behind_sudo(tmp_path: Path) -> None:
    sudo = tmp_path / "bin/sudo"
    sudo.parent.mkdir()
    sudo.write_text(f'#!/bin/sh\necho "$1 $2 $3" > {tmp_path}/said\nshift 2\nexec "$@"\n')
    sudo.chmod(0o755)
    link = PipeLink(f"PATH={sudo.parent}:$PATH; ")
    link.user = "pi"
    (tmp_path / "root").mkdir()
    (tmp_path / "root/proc").symlink_to("/proc")
    try:
        answer = Door(board_at(1, tmp_path / "none"), link, root=str(tmp_path / "root")).call(
            "ended", {"call": "x"}, deadline_s=20
        )
        assert answer == {"ended": True, "pids": []}
        assert (tmp_path / "said").read_text() == "-n -- python3\n"
    finally:
        link.reap()


def test_a_user_who_is_not_root_gets_sudo_that_never_asks() -> None:
    assert exec_line("root").startswith("python3 -IS -c '")
    words = shlex.split(exec_line("pi"))
    assert words[:6] == ["sudo", "-n", "--", "python3", "-IS", "-c"]
    assert len(words) == 7
