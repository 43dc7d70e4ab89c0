"""The socket of a virtual board: `python -m boardbench.virtual.power FLEET BOARD on|off|read`.

`off` is a power cut, `on` a boot; `read` prints `on` or `off`. The power driver `virtual` of an inventory uses it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from boardbench.errors import BenchError, ExitCode
from boardbench.virtual.fleet import Fleet

USAGE = "usage: python -m boardbench.virtual.power FLEET BOARD on|off|read"


def main(words: Sequence[str]) -> int:
    """Do it; returns the exit code."""
    if len(words) != 3 or words[2] not in ("on", "off", "read"):
        print(USAGE, file=sys.stderr)
        return ExitCode.INPUT
    name, board, verb = words
    try:
        fleet = Fleet.open(name)
        if verb == "off":
            fleet.kill(board)
        elif verb == "on":
            fleet.start(board)
        else:
            boards = fleet.status().boards
            print("on" if board in boards and boards[board].state != "down" else "off")
    except BenchError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return ExitCode.OK


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
