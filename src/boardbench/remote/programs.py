"""Running a program of the board: argument lists only, plain locale, empty input, bounded in time."""

from __future__ import annotations

import os
import subprocess
from typing import Mapping

from .failures import RIG, Failure

_KEEP_CHARACTERS = 64 * 1024


class Answer:
    """What a program left: its exit code (negative: the signal) and the end of its output and error stream together."""

    __slots__ = ("code", "output")

    def __init__(self, code: int, output: str) -> None:
        self.code = code
        self.output = output

    def last_lines(self, count: int = 3) -> str:
        """The end of the output, on one line, for a message."""
        return " | ".join(line.strip() for line in self.output.strip().splitlines()[-count:] if line.strip())


def run(argv: list[str], *, deadline_s: float, cwd: str | None = None, env: Mapping[str, str] | None = None) -> Answer:
    """Runs a program to its end. Failure `rig` when it cannot be started or is not done within `deadline_s`."""
    environment = dict(os.environ, LC_ALL="C", LANG="C")
    environment.setdefault("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
    environment.update(env or {})
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=cwd,
            env=environment,
            timeout=max(0.1, deadline_s),
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise Failure(RIG, f"not done within {deadline_s:g} s", argv[0], transient=True) from error
    except OSError as error:
        raise Failure(RIG, f"cannot be started: {error.strerror}", argv[0]) from error
    return Answer(done.returncode, done.stdout.decode("utf-8", "replace")[-_KEEP_CHARACTERS:])
