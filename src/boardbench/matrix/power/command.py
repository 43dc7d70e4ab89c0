"""A switch behind commands on the controller: argv lists, no shell."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from boardbench.errors import RigError

COMMAND_S = 60.0


def run(argv: Sequence[str], where: str) -> str:
    """What a command on the controller prints. Raises RigError when it fails or is not done within a minute."""
    try:
        done = subprocess.run(
            list(argv), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=COMMAND_S, check=True
        )
    except subprocess.TimeoutExpired:
        raise RigError(f"{argv[0]} did not end within {COMMAND_S:.0f} s", where=where) from None
    except subprocess.CalledProcessError as error:
        last = (error.stderr or "").strip()[-200:]
        raise RigError(f"{argv[0]} ended with {error.returncode}: {last}", where=where) from error
    except (OSError, ValueError) as error:
        raise RigError(f"{argv[0]} cannot be run: {error}", where=where) from error
    return done.stdout


@dataclass(frozen=True)
class CommandSwitch:
    """Three commands; `read` prints `on` or `off`."""

    on: tuple[str, ...]
    off: tuple[str, ...]
    read: tuple[str, ...]
    where: str

    def set(self, on: bool) -> None:
        """See `Switch`."""
        run(self.on if on else self.off, self.where)
        if self.get() is not on:
            raise RigError(f"{self.read[0]} says that it is still {'off' if on else 'on'}", where=self.where)

    def get(self) -> bool:
        """See `Switch`."""
        word = run(self.read, self.where).strip().casefold()
        if word not in ("on", "off"):
            raise RigError(f"{self.read[0]} prints {word[:40]!r}, not on or off", where=self.where)
        return word == "on"
