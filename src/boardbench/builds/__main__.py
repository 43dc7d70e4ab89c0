"""`python -m boardbench.builds PAYLOAD VARIANT [TARGET...]`: builds for this machine and prints the folder."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from boardbench.errors import BenchError, ExitCode
from boardbench.payload import load_payload

from . import programs
from .voice import Voice


def main(words: list[str]) -> int:
    """Exit code 0, or that of the error, which is one sentence on stderr."""
    if len(words) < 2:
        print("usage: python -m boardbench.builds PAYLOAD_FOLDER VARIANT [TARGET...]", file=sys.stderr)
        return ExitCode.INPUT

    # An orderly end: the compilers end too, and nothing half-made is left.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def step(title: str, done: int, total: int) -> None:
        print(f"\r{title} [{done}/{total}]", end="\n" if done == total else "", file=sys.stderr, flush=True)

    try:
        built = programs.built_here(load_payload(Path(words[0])), words[1], targets=words[2:], voice=Voice(say, step))
    except BenchError as error:
        say(str(error))
        return error.exit_code
    print(built.folder)
    return ExitCode.OK


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
