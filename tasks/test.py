"""test: run the project's own tests."""

from __future__ import annotations

import os
import subprocess
import sys

from invoke import Context

from boardbench.locations import project_dir
from tasks._verb import note, verb


@verb(
    help={
        "only": "a file or folder of tests, or a pytest node id",
        "match": "only tests whose name fits this pytest -k expression",
        "full": "also the long ones and the timed ones",
    }
)
def test(c: Context, only: str = "tests", match: str = "", full: bool = False) -> int:
    """Run the tests: style, types, import rule, units, the door, virtual boards, the demo."""
    from boardbench.virtual.host_packages import ensure

    ensure("auto", note)
    arguments = [sys.executable, "-m", "pytest", only]
    if match:
        arguments += ["-k", match]
    if not full:
        arguments += ["-m", "not slow and not perf"]
    return subprocess.run(arguments, cwd=project_dir(), env={**os.environ, "LC_ALL": "C.UTF-8"}).returncode


VERBS = (test,)
