"""Verbs that only the contract tests put on the board's side, beside the real wire: ways to behave well or badly."""

# ruff: noqa: ARG001, UP031 - all verbs have one signature; Python 3.8 and the style of the board's side

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from typing import Any

from .failures import Failure
from .wire import Call


def echo(args: dict[str, Any], call: Call) -> dict[str, Any]:
    return {"args": args, "pid": os.getpid(), "path_has_program": any("boardbench/programs" in p for p in sys.path)}


def tell(args: dict[str, Any], call: Call) -> dict[str, Any]:
    for number in range(args["count"]):
        call.event("step", number=number, text="naïve ✓")
    call.phase("cooling", "61.2 -> 45.0 degC")
    return {}


def take(args: dict[str, Any], call: Call) -> dict[str, Any]:
    call.need(args["blobs"])
    got = {}
    for sha in args["blobs"]:
        digest = hashlib.sha256()
        with open(call.blob(sha), "rb") as file:
            for piece in iter(lambda: file.read(1 << 20), b""):
                digest.update(piece)
        got[sha] = digest.hexdigest()
        if args.get("forget"):
            os.unlink(call.blob(sha))
    return {"got": got}


def flood(args: dict[str, Any], call: Call) -> dict[str, Any]:
    piece = bytes([args.get("byte", 0)]) * (1 << 18)
    for _ in range(args["pieces"]):
        call.data("zeros", piece)
    return {"bytes": args["pieces"] * len(piece)}


def chatter(args: dict[str, Any], call: Call) -> dict[str, Any]:
    for _ in range(args["kib"]):
        sys.stderr.write("e" * 1023 + "\n")
    print("a print of a verb must not reach the wire")
    subprocess.run(["echo", "nor one of a child"], check=True)
    return {}


def hang(args: dict[str, Any], call: Call) -> dict[str, Any]:
    """Never ends by itself, and has a child that ignores polite requests."""
    child = subprocess.Popen(
        [sys.executable, "-c", "import signal,time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"]
    )
    with open(args["pid_file"] + ".new", "w") as file:
        file.write("%d %d" % (os.getpid(), child.pid))
    os.rename(args["pid_file"] + ".new", args["pid_file"])
    time.sleep(600)
    return {}


def garbage(args: dict[str, Any], call: Call) -> dict[str, Any]:
    os.write(call._writer._fd, bytes.fromhex(args["hex"]))
    time.sleep(args.get("then_s", 0))
    return {}


def fail(args: dict[str, Any], call: Call) -> dict[str, Any]:
    raise Failure(args["fault"], "it is so", "/some/path", "do this", args.get("transient", False))


def stumble(args: dict[str, Any], call: Call) -> dict[str, Any]:
    return {"value": 1 // args["zero"]}


def die(args: dict[str, Any], call: Call) -> dict[str, Any]:
    sys.stderr.write("last words\n")
    sys.stderr.flush()
    if args.get("signal"):
        os.kill(os.getpid(), args["signal"])
    os._exit(args["code"])
