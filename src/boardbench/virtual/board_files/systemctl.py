"""systemctl of a bwrap board: docker-systemctl-replacement, as a module so that its byte code is kept.

Going down and rebooting is PID 1's work; it takes the same signals as systemd.
"""

import os
import signal
import sys
import time

sys.path.insert(0, "/usr/local/lib/systemctl")

SIGNALS = {"reboot": signal.SIGRTMIN + 5, "poweroff": signal.SIGRTMIN + 4, "halt": signal.SIGRTMIN + 4}

# How long a start waits to see whether the program dies at once.
START_PROOF_S = 0.15


class Clock:
    """`time`, but looking for the end of a stopped unit's processes ten times a second instead of once."""

    def __getattr__(self, name: str) -> object:
        return getattr(time, name)

    def sleep(self, seconds: float) -> None:
        # Only this loop has a deadline by the clock; the other ones count their rounds as seconds.
        in_stop_loop = sys._getframe(1).f_code.co_name == "do_kill_unit_from"
        time.sleep(min(seconds, 0.1) if in_stop_loop else seconds)


def main() -> int:
    verbs = [word for word in sys.argv[1:] if not word.startswith("-")]
    if len(verbs) == 1 and verbs[0] in SIGNALS:
        os.kill(1, SIGNALS[verbs[0]])
        return 0
    import systemctl3  # type: ignore[import-not-found,import-untyped,unused-ignore]

    systemctl3.MinimumYield = START_PROOF_S
    systemctl3.time = Clock()
    return int(systemctl3.main() or 0)


if __name__ == "__main__":
    sys.exit(main())
