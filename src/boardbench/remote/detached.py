"""A program that outlives the call which starts it: a session of its own, no ties to us, its words in a file."""

from __future__ import annotations

import os
import struct
from typing import Mapping, Sequence

MOST_FILES = 4096


def start(argv: Sequence[str], env: Mapping[str, str], log: str) -> int:
    """Starts the program, leading a session of its own as a child of the board's first process; its process id.

    `log`: where both its output streams are added. OSError when it cannot be started.
    """
    read, write = os.pipe()  # closed by the program's own start: nothing in it then but its pid
    child = os.fork()
    if child == 0:
        _leave(argv, env, log, write)
    os.close(write)
    try:
        os.waitpid(child, 0)
        said = b""
        while piece := os.read(read, 64):
            said += piece
    finally:
        os.close(read)
    pid, error = struct.unpack_from("=i", said)[0], said[4:]
    if error:
        number = struct.unpack("=i", error)[0]
        raise OSError(number, os.strerror(number), argv[0])
    return int(pid)


def _leave(argv: Sequence[str], env: Mapping[str, str], log: str, write: int) -> None:
    """In the child, which does nothing but system calls: other threads of the parent may hold any lock."""
    try:
        if os.fork() != 0:
            os._exit(0)  # the grandchild has no parent of ours any more
        os.setsid()
        os.write(write, struct.pack("=i", os.getpid()))
        empty = os.open(os.devnull, os.O_RDONLY)
        words = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        for source, target in ((empty, 0), (words, 1), (words, 2)):
            os.dup2(source, target)
        # What whoever called us left open is none of the program's; our pipe closes by itself.
        os.closerange(3, write)
        os.closerange(write + 1, MOST_FILES)
        os.chdir("/")
        os.execve(argv[0], list(argv), dict(env))
    except OSError as error:
        os.write(write, struct.pack("=i", error.errno or 0))
    finally:
        os._exit(127)
