"""PID 1 of a bwrap board: keeps sshd and root's namespace, starts enabled units, takes in orphans, reboots when asked.

It is copied into the board and run there by the board's Python, so it is alone: standard library, Python >= 3.8.
The signals are those that systemd takes: SIGRTMIN+4 powers off, SIGRTMIN+5 reboots.
"""

import os
import signal
import subprocess
import sys
import time

REBOOT_EXIT_CODE = 133
GRACE_S = 1.0
RESTART_PAUSE_S = 0.2
SSHD = ["/usr/sbin/sshd", "-D", "-e", "-f", "/etc/ssh/sshd_config"]
START_ENABLED = ["/usr/local/bin/sudo", "-n", "--", "/usr/local/bin/systemctl", "default"]
RUN_FOLDERS = ("/run/systemd/system", "/run/lock", "/run/sshd")
WANTS = "/etc/systemd/system"
# Root of the board is uid 0 of a user namespace. Were it a new one for every sudo, none could look into another's
# processes (the kernel asks for a capability in the namespace of the one that is looked at).
HOLDER = "hold-root"
HOLD_ROOT = ["unshare", "--user", "--map-root-user", "--", sys.executable, "-IS", os.path.abspath(__file__), HOLDER]
ROOT_HOLDER = "/run/board-root"
HOLD_TIMEOUT_S = 10.0


class Shutdown(Exception):
    """Somebody asked the board to go down."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def on_signal(number: int, _frame: object) -> None:
    raise Shutdown(REBOOT_EXIT_CODE if number == signal.SIGRTMIN + 5 else 0)


def has_enabled_units() -> bool:
    try:
        return any(os.listdir(os.path.join(WANTS, name)) for name in os.listdir(WANTS) if name.endswith(".wants"))
    except OSError:
        return False


def start(argv: "list[str]") -> int:
    null = subprocess.DEVNULL
    return subprocess.Popen(argv, stdin=null, start_new_session=True).pid


def hold_root() -> int:
    """Starts the process whose user namespace sudo enters, and writes its id down once the namespace is ready."""
    pid = start(HOLD_ROOT)
    deadline = time.monotonic() + HOLD_TIMEOUT_S
    while not is_root_of_its_own(pid):
        if time.monotonic() > deadline or os.waitpid(pid, os.WNOHANG)[0] == pid:
            sys.exit("no user namespace for root could be made")
        time.sleep(0.002)
    with open(f"{ROOT_HOLDER}.new", "w", encoding="ascii") as file:
        file.write(f"{pid}\n")
    os.replace(f"{ROOT_HOLDER}.new", ROOT_HOLDER)
    return pid


def is_root_of_its_own(pid: int) -> bool:
    """Whether it is user and group 0 of its namespace; the map of groups is written last."""
    try:
        with open(f"/proc/{pid}/gid_map", encoding="ascii") as file:
            return file.read().split()[:1] == ["0"]
    except OSError:
        return False


def serve() -> None:
    # /run is empty after a boot; systemd would make these.
    for folder in RUN_FOLDERS:
        os.makedirs(folder, exist_ok=True)
    root = hold_root()
    sshd = start(SSHD)
    if has_enabled_units():
        start(START_ENABLED)
    while True:
        pid, _status = os.waitpid(-1, 0)
        if pid == sshd:
            time.sleep(RESTART_PAUSE_S)
            sshd = start(SSHD)
        if pid == root:
            # What is root already stays in the namespace of before.
            root = hold_root()


def go_down() -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.kill(-1, signal.SIGCONT)
            os.kill(-1, number)
        except ProcessLookupError:
            return
        deadline = time.monotonic() + GRACE_S
        while time.monotonic() < deadline:
            try:
                if os.waitpid(-1, os.WNOHANG)[0] == 0:
                    time.sleep(0.01)
            except ChildProcessError:
                return


def main() -> int:
    if sys.argv[1:] == [HOLDER]:
        signal.pause()  # until a signal ends it
        return 0
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGRTMIN + 4, signal.SIGRTMIN + 5):
        signal.signal(number, on_signal)
    code = 0
    try:
        serve()
    except Shutdown as shutdown:
        code = shutdown.code
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGRTMIN + 4, signal.SIGRTMIN + 5):
        signal.signal(number, signal.SIG_IGN)
    go_down()
    return code


if __name__ == "__main__":
    sys.exit(main())
