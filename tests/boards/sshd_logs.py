"""What the boards' own sshd processes saw: logins, and sessions in them."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import ExitStack

from .lab import Lab, replaced
from .rig import BOARDS


class SshdLogs:
    """What the boards' sshd processes wrote since the last `mark`."""

    def __init__(self, lab: Lab) -> None:
        self._paths = {name: lab.board_folder(name) / "board.log" for name in BOARDS}
        self._seen = dict.fromkeys(BOARDS, 0)

    def mark(self) -> None:
        """From here on it counts."""
        self._seen = {name: path.stat().st_size for name, path in self._paths.items()}

    def counts(self) -> dict[str, dict[str, int]]:
        """Logins, and started sessions of any kind (command, shell, subsystem), by board."""
        found = {}
        for name, path in self._paths.items():
            text = path.read_bytes()[self._seen[name] :].decode(errors="replace")
            found[name] = {
                "connections": len(re.findall(r"^Accepted publickey for pi ", text, re.MULTILINE)),
                "execs": len(re.findall(r"^Starting session: ", text, re.MULTILINE)),
            }
        return found


def talkative_logs(lab: Lab) -> Iterator[SshdLogs]:
    """The logs, for a while with every login and every session in them."""
    with ExitStack() as stack:
        for name in BOARDS:
            config = lab.board_folder(name) / "root/etc/ssh/sshd_config"
            stack.enter_context(replaced(config, config.read_text() + "LogLevel VERBOSE\n", 0o644))
        lab.reload_sshd(*BOARDS)
        yield SshdLogs(lab)
    lab.reload_sshd(*BOARDS)


def settled(logs: SshdLogs, wanted: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
    """The counts, when sshd has had the time to write them; more than wanted are never taken for wanted."""
    until = time.monotonic() + 3
    while logs.counts() != wanted and time.monotonic() < until:
        time.sleep(0.05)
    return logs.counts()
