"""The small protocol between the door and whatever carries its bytes, so that the carrier can be changed.

An `Exec` is one running program on a board with its three streams; a `Link` starts them. `ssh.py` is the carrier for
boards; tests bring one of local processes.
"""

from __future__ import annotations

from typing import Protocol


class LinkLost(Exception):
    """The carrier itself is gone (not: the program on the board has ended). The text says how, without the board."""


class Exec(Protocol):
    """One program on the board. Not thread-safe: one caller uses it."""

    def send(self, data: memoryview, timeout_s: float) -> int:
        """Hands over as many bytes as fit now; 0 when none fitted within the time. Raises LinkLost or EOFError."""

    def receive(self, timeout_s: float) -> tuple[bytes, bytes]:
        """What came on standard output and standard error, both empty when nothing came within the time.

        Raises EOFError when the program has ended and all is read, LinkLost when the carrier is gone.
        """

    def exit_code(self, timeout_s: float) -> int | None:
        """The exit code after the end, None when it was ended by a signal or did not come within the time."""

    def close(self) -> None:
        """Ends the program's input and forgets it. Never blocks, never raises."""


class Link(Protocol):
    """A connection to one board."""

    user: str

    def start(self, command: str, timeout_s: float) -> Exec:
        """Runs a command line of the user's login shell. Raises LinkLost, or TimeoutError when nothing answers."""

    def alive(self) -> bool:
        """False once the connection is known to be gone."""

    def close(self) -> None:
        """Ends the connection; a call that waits on it ends with LinkLost. Never raises."""
