"""The command line as a user types it, with state and results of the test's own."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from ..command_line import Done, environment, start


@dataclass(frozen=True)
class Bench:
    """`inv` with a state folder and a results folder of its own."""

    state: Path
    results: Path

    @property
    def environment(self) -> dict[str, str]:
        return environment(self.state, self.results)

    def start(self, *words: str) -> subprocess.Popen[str]:
        """The command, running."""
        return start(words, self.environment)

    def inv(self, *words: str, timeout_s: float = 300.0) -> Done:
        """The command, finished."""
        process = self.start(*words)
        try:
            out, err = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            process.terminate()
            out, err = process.communicate(timeout=30)
            raise AssertionError(f"inv {' '.join(words)} took longer than {timeout_s} s:\n{out}\n{err}") from None
        return Done(process.returncode, out, err)


@contextmanager
def own_bench() -> Iterator[Bench]:
    """A bench whose virtual fleets are stopped and whose folders are removed at the end.

    Not below /tmp: where that is a file system in memory, the boards' page caches can never be dropped.
    """
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="boardbench-e2e-") as folder:
        made = Bench(Path(folder) / "state", Path(folder) / "results")
        try:
            yield made
        finally:
            made.inv("virtual.down")


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    """One bench a module."""
    with own_bench() as made:
        yield made
