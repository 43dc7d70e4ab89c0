"""`inv` as a user types it, for every test that runs it: with folders of the test's own, and what came of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Done:
    """A finished command."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """The last JSON document on stdout."""
        last: dict[str, Any] = json.loads(self.out.strip().splitlines()[-1])
        return last


def environment(state: Path, results: Path) -> dict[str, str]:
    """This process's environment, with these folders for fleets and for campaigns."""
    return {**os.environ, "XDG_STATE_HOME": str(state), "BOARDBENCH_RESULTS": str(results), "LC_ALL": "C.UTF-8"}


def start(words: tuple[str, ...], environment: dict[str, str]) -> subprocess.Popen[str]:
    """The command, running; nobody answers its questions."""
    return subprocess.Popen(
        [sys.executable, "-m", "tasks", *words],
        cwd=PROJECT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
