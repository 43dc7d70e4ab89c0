"""test: run the project's own tests."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from invoke import Context

from boardbench.locations import project_dir
from tasks._verb import emit, note, verb

TESTS_FAILED = 1
"""Pytest's exit code for it; others are not about tests."""


@verb(
    help={
        "only": "a file or folder of tests, or a pytest node id",
        "match": "only tests whose name fits this pytest -k expression",
        "full": "also the long ones and the timed ones",
    }
)
def test(c: Context, only: str = "tests", match: str = "", full: bool = False, json: bool = False) -> int:
    """Run the tests: style, types, import rule, units, the door, virtual boards, the demo."""
    from boardbench.virtual.host_packages import ensure, ensure_browser

    ensure("auto", note)
    ensure_browser(note)
    with _llama_ahead(only == "tests" and not match):
        code = _run(only, match, full, json)
    if json:
        emit({"exit_code": code, "passed": code == 0})
    return code


def _run(only: str, match: str, full: bool, json: bool) -> int:
    # Most tests wait for boards: more workers than cores. A file's tests share its fleet, so they stay together.
    arguments = [sys.executable, "-m", "pytest", only, "-n", "4", "--dist", "loadfile"]
    if match:
        arguments += ["-k", match]
    arguments += ["-m", "not perf" if full else "not slow and not perf"]
    code = _pytest(arguments, quiet=json)
    if code == TESTS_FAILED:
        # Real processes beside three other workers on two cores: a failure there is looked at again, alone and aloud.
        note("inv: running what failed once more, alone; what passes only now fails under load, which is a fault too")
        code = _pytest([sys.executable, "-m", "pytest", only, "--last-failed", "--last-failed-no-failures=none"],
                       quiet=json)  # fmt: skip
    if full:
        # What is timed runs alone.
        code = _pytest([sys.executable, "-m", "pytest", only, "-m", "perf"], quiet=json) or code
    return code


@contextmanager
def _llama_ahead(whole: bool) -> Iterator[None]:
    """On a fresh machine llama.cpp takes ten minutes to build: begun now, it is there when its tests want it.

    Whether it can be built here is the tests' matter: they wait for the same build, and say what is missing.
    """
    code = (
        "import sys\nfrom boardbench.builds.__main__ import main\n"
        "sys.exit(main([sys.argv[1], 'stock']) or main([sys.argv[1], 'patched']))"
    )
    argv = [sys.executable, "-c", code, str(project_dir() / "payloads" / "llama-expert-cache")]
    ahead = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) if whole else None
    try:
        yield
    finally:
        if ahead is not None:
            ahead.terminate()
            ahead.wait()


def _pytest(arguments: list[str], *, quiet: bool) -> int:
    """Runs pytest; `quiet` sends what it prints to stderr, so that stdout keeps the one document."""
    output = sys.stderr if quiet else None
    environment = {**os.environ, "LC_ALL": "C.UTF-8"}
    return subprocess.run(arguments, cwd=project_dir(), env=environment, stdout=output).returncode


VERBS = (test,)
