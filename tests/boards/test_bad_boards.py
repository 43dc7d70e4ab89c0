"""A bad board gives one clear error and costs only itself; the other boards finish. Nothing is mocked."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import pytest

import boardbench.board
from boardbench.errors import BenchError, DeadlineError, HostKeyError, RigError, UnreachableError
from boardbench.playbook.recap import Outcome
from boardbench.virtual import links, processes
from boardbench.virtual.fleet import Fleet

from .lab import OTHERS, Lab, command_lines, one_clear_error, recap_of, replaced, until
from .rig import BOARDS, ssh

pytestmark = pytest.mark.boards

# The board that is bad.
BAD = "queen"
OPEN_S = 1.5


@pytest.fixture(scope="module")
def cleaned(bwrap_fleet: Fleet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """After the last test the boards are put back."""
    yield
    Lab(bwrap_fleet, tmp_path_factory.mktemp("lab")).clean()


@pytest.fixture
def lab(bwrap_fleet: Fleet, tmp_path: Path, cleaned: None) -> Iterator[Lab]:  # noqa: ARG001
    """At the end the bad board must take a call again, with the access that it had."""
    made = Lab(bwrap_fleet, tmp_path)
    yield made
    made.bring_up()
    with made.as_it_was().door(BAD) as door:
        door.call("scopes", {}, deadline_s=20.0)


# --- the board cannot be entered, or our program cannot be started there ----------------------------------------------


@contextmanager
def down(lab: Lab) -> Iterator[None]:
    lab.fleet.kill(BAD)
    yield


@contextmanager
def cut(lab: Lab) -> Iterator[None]:
    lab.fleet.cut(BAD)
    try:
        yield
    finally:
        lab.fleet.mend(BAD)


@contextmanager
def black_hole(lab: Lab) -> Iterator[None]:
    """An address that takes no connection and refuses none, as behind a firewall: a listener whose queue is full."""
    with ExitStack() as stack:
        full = stack.enter_context(socket.socket())
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(3):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
        lab.with_access(BAD, host="127.0.0.1", port=full.getsockname()[1])
        yield


@contextmanager
def no_sshd(lab: Lab) -> Iterator[None]:
    """The board is up, its sshd listens elsewhere."""
    config = lab.board_folder(BAD) / "root/etc/ssh/sshd_config"
    elsewhere = re.sub(r"(ListenAddress \S+):\d+", r"\1:2299", config.read_text())
    with replaced(config, elsewhere, 0o644):
        processes.send(links.sshd_processes(lab.supervisor(BAD))[0], signal.SIGHUP)
        assert until(lambda: lab.fleet.status().boards[BAD].state == "broken")
        yield
    lab.reload_sshd(BAD)


@contextmanager
def other_service(lab: Lab) -> Iterator[None]:
    """Something that is no SSH server has the port."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        going = threading.Event()

        def serve() -> None:
            while not going.is_set():
                try:
                    link, _ = server.accept()
                except OSError:
                    return
                link.sendall(b"HTTP/1.0 400 Bad Request\r\n\r\n")
                link.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        lab.with_access(BAD, host="127.0.0.1", port=server.getsockname()[1])
        try:
            yield
        finally:
            going.set()
            # `accept` is not woken by a close: one more connection is.
            with socket.create_connection(server.getsockname()):
                thread.join(5)


@contextmanager
def unknown_key(lab: Lab) -> Iterator[None]:
    lab.unpin(BAD)
    yield


@contextmanager
def changed_key(lab: Lab) -> Iterator[None]:
    lab.fleet.change_host_key(BAD)
    try:
        yield
    finally:
        lab.fleet.restore_host_key(BAD)


@contextmanager
def wrong_user(lab: Lab) -> Iterator[None]:
    lab.with_access(BAD, user="nobody-here")
    yield


@contextmanager
def wrong_key(lab: Lab) -> Iterator[None]:
    other = lab.folder / "other_key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(other)], check=True)
    lab.with_access(BAD, key_file=other)
    yield


def in_usr_local(name: str, text: str) -> Callable[[Lab], AbstractContextManager[None]]:
    """A program of the board's /usr/local, which goes before the one of /usr."""
    return lambda lab: replaced(lab.board_folder(BAD) / "local" / name, text)


def in_bashrc(text: str) -> Callable[[Lab], AbstractContextManager[None]]:
    """What the login shell of the board's user runs first."""
    return lambda lab: replaced(lab.board_folder(BAD) / "root/home/pi/.bashrc", text, 0o644)


SUDO_ASKS = "#!/bin/sh\necho 'sudo: a password is required' >&2\nexit 1\n"
# Runs the stub that it is given, in a Python that says that it is another.
OLD_PYTHON = "#!/usr/bin/python3 -IS\nimport sys\nsys.version_info = (3, 7, 3, 'final', 0)\nexec(sys.argv[3])\n"
NO_PYTHON = "#!/bin/sh\necho 'sudo: python3: command not found' >&2\nexit 1\n"
SHORT_FILES = '#!/bin/sh\nulimit -f 4\nexec /usr/bin/python3 "$@"\n'

Fault = Callable[[Lab], AbstractContextManager[None]]
BAD_BOARDS: dict[str, tuple[Fault, type[BenchError], str]] = {
    "down": (down, UnreachableError, r"refuses the connection; is sshd running, and is the port right\?"),
    "cut off": (cut, UnreachableError, r"accepts the connection but does not speak SSH in time"),
    "black hole": (black_hole, UnreachableError, r"does not answer \(waited .* s\); the board is down or cut off"),
    "no sshd": (no_sshd, UnreachableError, r"refuses the connection; is sshd running"),
    "other service": (other_service, UnreachableError, r"does not speak SSH in time .*another service has this port"),
    "unknown key": (unknown_key, HostKeyError, r"not known: ssh-ed25519 SHA256:\S+; .*\./inv boards\.trust queen -i /"),
    "changed key": (
        changed_key,
        HostKeyError,
        r"pinned is SHA256:\S+, the board shows SHA256:\S+; .*\.trust queen -i /",
    ),
    "wrong user": (wrong_user, RigError, r"does not accept user nobody-here with key .*; check `user` and `key`"),
    "wrong key": (wrong_key, RigError, r"does not accept user pi with key .*other_key; .*ssh-copy-id -p 2222 pi@"),
    "sudo asks": (in_usr_local("bin/sudo", SUDO_ASKS), RigError, r"sudo asks user pi for a password; .*NOPASSWD"),
    "no python3": (in_usr_local("bin/sudo", NO_PYTHON), RigError, r"there is no python3 on the board; apt-get ins"),
    "old python3": (
        in_usr_local("bin/python3", OLD_PYTHON),
        RigError,
        r"python3 is 3\.7; .*needs Python 3\.8 or later",
    ),
    "chatty login": (in_bashrc("echo Welcome\n"), RigError, r"'Welcome'; make the login of user pi silent"),
    "endless login": (in_bashrc("yes again\n"), RigError, r"'again'; make the login of user pi silent"),
    "bytes": (in_bashrc("printf '\\377\\376\\n'\n"), RigError, r"before our program does: '\\\\xff\\\\xfe'; make the"),
    "login ends": (in_bashrc("echo no home today >&2; exit 5\n"), RigError, r"exit code 5\): no home today"),
    "no room": (in_usr_local("bin/python3", SHORT_FILES), RigError, r"cannot store the program in /var/lib/boardbench"),
}


@pytest.mark.parametrize("fault", BAD_BOARDS)
def test_a_bad_board_gives_one_clear_error_and_costs_only_itself(lab: Lab, fault: str) -> None:
    make_bad, kind, words = BAD_BOARDS[fault]
    if fault == "no room":
        forget_program(lab)
    with make_bad(lab):
        began = time.monotonic()
        error = one_clear_error(lab.provision(open_s=OPEN_S), BAD)
        print(error)
        took_s = time.monotonic() - began
    assert isinstance(error, kind), repr(error)
    assert re.search(words, str(error)), str(error)
    assert took_s < OPEN_S + 6
    # Nothing goes on running there; that the board is good again by itself is proved by `lab` at its end.
    lab.bring_up()
    assert not [words for words in command_lines(lab.supervisor(BAD)) if words[0] in ("yes", "sleep")]


def forget_program(lab: Lab) -> None:
    """The board has never seen our program."""
    assert ssh(lab.fleet, BAD, "sudo rm -rf /var/lib/boardbench/programs").code == 0


# --- the board is lost, or hangs, in mid-call -------------------------------------------------------------------------

HANGS = "bench-faults-hang"
# A step that never ends by itself and ignores polite requests. `$0` names it in the board's process list.
HANG_STEP = (
    "  - command:\n"
    f"      argv: [sh, -c, 'trap \"\" TERM HUP; while :; do sleep 0.2; done', {HANGS}]\n"
    "      creates: /etc/bench-faults/never\n"
    f"    boards: [{BAD}]\n"
)


def hanging(supervisor: int) -> bool:
    """Whether that step runs on the board, seen from the host."""
    return any(HANGS in words for words in command_lines(supervisor))


class InBackground:
    """A provision with the step that hangs, running."""

    def __init__(self, lab: Lab, deadline_s: float = 60.0) -> None:
        self.lab = lab
        self.supervisor = lab.supervisor(BAD)
        self._outcomes: list[Outcome] = []
        self._thread = threading.Thread(
            target=lambda: self._outcomes.append(lab.provision(HANG_STEP, deadline_s=deadline_s))
        )
        self._thread.start()
        assert until(lambda: hanging(self.supervisor)), "the step did not start"

    def outcome(self, within_s: float) -> Outcome:
        """What became of it, in time."""
        self._thread.join(within_s)
        assert not self._thread.is_alive(), f"provision was not done {within_s} s after the fault"
        return self._outcomes[0]


def assert_works_again(lab: Lab) -> None:
    """The board takes a provision, and nothing of the lost call is in its way."""
    recap = recap_of(lab.provision())
    assert recap[BAD] == {"ok": 2, "changed": 0, "skipped": 0, "failed": 0, "unreachable": 0}, recap


def test_a_step_that_hangs_ends_at_the_deadline_on_the_board_too(lab: Lab) -> None:
    lab.clean()
    began = time.monotonic()
    running = InBackground(lab, deadline_s=2.0)
    error = one_clear_error(running.outcome(15), BAD)
    assert isinstance(error, DeadlineError)
    assert str(error) == f"{BAD}: `apply` was not done within 2 s; its work on the board has ended"
    assert time.monotonic() - began < 8
    assert not hanging(running.supervisor)
    steps = lab_steps(running.outcome(0))
    assert [state for _, state in steps] == ["changed", "changed"], "what was done before is told"
    assert_works_again(lab)


def lab_steps(outcome: Outcome) -> list[tuple[str, str]]:
    return [(step.id, step.state) for step in outcome.boards[BAD].steps]


def test_a_link_that_stands_still_in_mid_call_costs_the_deadline_and_the_board_ends_the_call_by_itself(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(boardbench.board, "_PROOF_S", 1.0)
    running = InBackground(lab, deadline_s=2.5)
    lab.fleet.cut(BAD)
    try:
        error = one_clear_error(running.outcome(15), BAD)
        assert isinstance(error, DeadlineError)
        assert re.search(
            r"`apply` was not done within 2.5 s; whether call \w+ has ended there is not known", str(error)
        )
        # No word gets to the board, and still the step is gone: its own deadline ended it.
        assert until(lambda: not hanging(running.supervisor), 3.0)
    finally:
        lab.fleet.mend(BAD)
    assert_works_again(lab)


def test_a_connection_that_breaks_in_mid_call_ends_the_work_on_the_board(lab: Lab) -> None:
    running = InBackground(lab)
    for session in links.sshd_processes(running.supervisor)[1:]:
        processes.send(session, 9)
    error = one_clear_error(running.outcome(5), BAD)
    assert isinstance(error, UnreachableError)
    assert re.search(
        r"the link was lost during `apply` \(call \w+\): .*; the board ends that call by itself", str(error)
    )
    assert until(lambda: not hanging(running.supervisor), 5.0)
    assert_works_again(lab)


def test_a_power_cut_in_mid_call_is_told_at_once(lab: Lab) -> None:
    running = InBackground(lab)
    lab.fleet.kill(BAD)
    error = one_clear_error(running.outcome(5), BAD)
    assert isinstance(error, UnreachableError)
    assert "the link was lost during `apply`" in str(error)
    lab.bring_up()
    assert_works_again(lab)


def test_a_reboot_in_mid_call_is_told_and_the_board_can_still_be_put_back(lab: Lab) -> None:
    running = InBackground(lab)
    lab.fleet.reboot(BAD)
    error = one_clear_error(running.outcome(5), BAD)
    assert isinstance(error, UnreachableError)
    assert "the link was lost during `apply`" in str(error)
    assert not hanging(running.supervisor)
    assert_works_again(lab)
    lab.clean()
    assert ssh(lab.fleet, BAD, "ls /etc/bench-faults").code != 0


def test_a_login_that_hangs_costs_the_deadline_and_is_told(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boardbench.board, "_PROOF_S", 1.0)
    with in_bashrc("sleep 4\n")(lab):
        error = one_clear_error(lab.provision(deadline_s=1.5), BAD)
    assert isinstance(error, DeadlineError)
    assert re.search(r"`apply` was not done within 1.5 s; whether call \w+ has ended there is not known", str(error))


def test_two_provisions_at_once_one_waits_its_turn_in_words(lab: Lab) -> None:
    """The second one is told that the board is being changed; the first is not disturbed."""
    running = InBackground(lab, deadline_s=2.5)
    other = Lab(lab.fleet, lab.folder)
    error = one_clear_error(other.provision(), BAD)
    assert re.search(r"another call is changing this board; wait for it, then try again", str(error))
    assert error.transient
    assert isinstance(running.outcome(15).errors[BAD], DeadlineError)


# --- the board answers, with something odd in it ----------------------------------------------------------------------


def test_output_that_is_not_utf8_fails_its_own_step_readably(lab: Lab) -> None:
    printf = r"printf 'caf\\351 \\377\\376 oops'; exit 3"
    more = (
        f"  - name: bytes\n    boards: [{BAD}]\n"
        f'    command: {{argv: [sh, -c, "{printf}"], creates: /etc/bench-faults/x}}\n'
    )
    done = lab.inv("provision", "--json", "--playbook", str(lab.playbook_file(more)))
    assert (done.code, done.err) == (1, "")
    recap = done.document["recap"]
    assert {name: recap[name]["failed"] for name in BOARDS} == {**dict.fromkeys(OTHERS, 0), BAD: 1}
    events = [json.loads(line) for line in done.out.splitlines()]
    (event,) = [event for event in events if event.get("id") == "bytes"]
    assert event["message"] == "sh: ended with exit code 3: caf\ufffd \ufffd\ufffd oops"


@pytest.mark.parametrize("years", [-20, 20])
def test_a_clock_that_is_years_off_changes_nothing_and_shows_in_the_facts(lab: Lab, years: int) -> None:
    shift_s = years * 31557600
    shim = f"""#!/usr/bin/python3 -IS
import sys, time
real, real_ns, real_clock = time.time, time.time_ns, time.clock_gettime
time.time = lambda: real() + {shift_s}
time.time_ns = lambda: real_ns() + {shift_s} * 10**9
time.clock_gettime = lambda which: real_clock(which) + ({shift_s} if which == time.CLOCK_REALTIME else 0)
exec(sys.argv[3])
"""
    lab.clean()
    with replaced(lab.board_folder(BAD) / "local/bin/python3", shim):
        for state in ("changed", "ok"):
            outcome = lab.provision()
            assert {name: counts[state] for name, counts in recap_of(outcome).items()} == dict.fromkeys(BOARDS, 2)
        with lab.door(BAD) as door:
            facts = door.call("facts", {"paths": []}, deadline_s=20.0)["facts"]
            assert isinstance(facts, dict)
            assert abs(facts["clock"]["wall_unix_s"] - time.time() - shift_s) < 60
            holder = {"owner": "ada", "host": "desk", "campaign": "c1", "ttl_s": 60.0}
            assert door.call("lease", {"action": "take", **holder}, deadline_s=20.0)["held"] is True
            assert door.call("lease", {"action": "renew", **holder}, deadline_s=20.0)["held"] is True
            assert door.call("lease", {"action": "release", **holder}, deadline_s=20.0)["held"] is False
        lab.clean()
