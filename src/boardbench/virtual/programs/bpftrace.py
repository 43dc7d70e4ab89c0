#!/usr/bin/env python3
"""The bpftrace of a virtual board: its host's bpftrace, for the files and the processes of this board.

The host takes programs of uprobes on the board's own files that print; it turns process ids into the board's.
"""

from __future__ import annotations

import argparse
import array
import json
import signal
import socket
import sys

DOOR = "/run/boardbench-virtual/bpftrace.sock"
ABOUT = "/run/boardbench-virtual/bpftrace.json"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bpftrace", description="Traces calls of this virtual board's own files, by way of its host."
    )
    parser.add_argument("-q", action="store_true", required=True, help="say nothing but what the program prints")
    parser.add_argument("-B", choices=("line", "none"), default="line", help="how the output is buffered")
    parser.add_argument("-e", metavar="PROGRAM", required=True)
    return parser.parse_args()


def why_not() -> str:
    """What the host says about why it cannot trace."""
    try:
        with open(ABOUT, encoding="utf-8") as file:
            return str(json.load(file)["why"]) or "its daemon does not answer"
    except (OSError, ValueError, KeyError):
        return "its daemon does not say why"


def main() -> int:
    args = arguments()
    door = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        door.connect(DOOR)
    except OSError:
        print(f"ERROR: the host of this virtual board cannot trace for it: {why_not()}", file=sys.stderr)
        return 1

    def stop(_number: int, _frame: object) -> None:
        # The answer that follows says that all probes are out of the kernel.
        door.shutdown(socket.SHUT_WR)

    request = json.dumps({"program": args.e, "buffering": args.B}).encode()
    handles = array.array("i", [1, 2])
    door.sendmsg([request], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, handles)])
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    answer = door.recv(64)
    return int(answer) if answer else 1


if __name__ == "__main__":
    sys.exit(main())
