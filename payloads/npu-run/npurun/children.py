"""The programs that a part starts: they end with it, in order when there is time."""

import os
import signal
import subprocess
import sys

TERM_S = 8.0


def toml(tables):
    """A config file from {table: {key: bool, number or text}}."""
    lines = []
    for table, keys in tables.items():
        lines.append(f"[{table}]")
        for key, value in keys.items():
            if isinstance(value, bool):
                text = "true" if value else "false"
            elif isinstance(value, (int, float)):
                text = repr(value)
            else:
                text = '"' + str(value).replace("\\", "\\\\").replace('"', '\\"') + '"'
            lines.append(f"{key} = {text}")
    return "\n".join(lines) + "\n"


def program(payload):
    """The main program of a payload that lies beside this one."""
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    return os.path.join(here, "..", payload, "main.py")


def start(payload, argv, log, stdout=None):
    """Starts a payload's program by the Python that runs this one; its messages go to the file `log`."""
    path = os.path.realpath(program(payload))
    # An agent may need the NPU vendor's library, which the board's owner has installed; ours come before it.
    isolation = "-I" if payload == "npu-node" else "-IS"
    with open(log, "ab") as file:
        return subprocess.Popen(
            [sys.executable, isolation, path, *argv], stdin=subprocess.DEVNULL, stdout=stdout or file, stderr=file
        )


def end(child):
    """SIGTERM, and SIGKILL to one that does not listen; returns the exit code."""
    if child.poll() is None:
        child.send_signal(signal.SIGTERM)
        try:
            child.wait(TERM_S)
        except subprocess.TimeoutExpired:
            child.kill()
    return child.wait()


def last_line(log):
    """What a program said last, for a message."""
    try:
        with open(log, encoding="utf-8", errors="replace") as file:
            lines = [line.strip() for line in file if line.strip()]
    except OSError:
        return "it left no log"
    return lines[-1] if lines else "it said nothing"
