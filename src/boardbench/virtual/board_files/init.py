"""PID 1 of a bwrap board: keeps sshd running, starts the enabled units, takes in orphans, reboots when asked.

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


def serve() -> None:
    # /run is empty after a boot; systemd would make these.
    for folder in RUN_FOLDERS:
        os.makedirs(folder, exist_ok=True)
    sshd = start(SSHD)
    if has_enabled_units():
        start(START_ENABLED)
    while True:
        pid, _status = os.waitpid(-1, 0)
        if pid == sshd:
            time.sleep(RESTART_PAUSE_S)
            sshd = start(SSHD)


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
