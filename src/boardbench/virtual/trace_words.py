"""What a board asks of its host's bpftrace and what it gets back: the program made fit, process ids made the board's.

A program may put uprobes on the board's own files and print plain numbers; all else that bpftrace can do reaches
beyond the board and is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from boardbench.errors import InputError

_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')
_COMMENT = re.compile(r"//|/\*")
_FILE_PROBE = re.compile(r'\b(u(?:ret)?probe):"(/[^"*?\[\]\\]*)":"[A-Za-z0-9_]+"')
_OTHER_PROBE = re.compile(r"\b(\w+):")
_NAMED = re.compile(r"[A-Za-z_$]\w*")
_NAMES = {"uprobe", "uretprobe", "interval", "s", "if", "printf", "reg", "delete", "pid", "tid", "nsecs"}
_ABOUT_A_THREAD = re.compile(r"([a-z]+) ([0-9]+) ([0-9]+) (.*)\Z", re.DOTALL)
_ENTERS = "call"
_REMEMBERED = 4096


def program_for_host(program: str, root: str) -> str:
    """The program with the board's paths below `root`, the board's root folder as the host sees it.

    Raises InputError for a program that could look at more than the calls of the board's own files.
    """
    bare = _TEXT.sub('""', program)
    if _COMMENT.search(bare) or "->" in bare or "*" in bare:
        raise InputError("a virtual board's bpftrace knows no comments and no pointers")
    # What follows an @ is the name of a map, which is the program's own.
    for name in _NAMED.findall(re.sub(r"@\w+", "", bare)):
        if name not in _NAMES:
            raise InputError(f"a virtual board's bpftrace does not know {name!r}")
    rest = _TEXT.sub('""', _FILE_PROBE.sub("", program))
    for kind in _OTHER_PROBE.findall(rest):
        if kind not in ("interval", "s"):
            raise InputError(f"a virtual board's bpftrace has no {kind} of this form")
    if any(".." in found.group(2).split("/") for found in _FILE_PROBE.finditer(program)):
        raise InputError("a virtual board's bpftrace takes no path with '..'")
    return _FILE_PROBE.sub(lambda found: found.group(0).replace(':"', f':"{root}', 1), program)


class BoardIds:
    """Turns the host's process and thread ids in lines of `WORD PID TID ...` into those of one board.

    `namespace`: the board's pid namespace, as the link /proc/PID/ns/pid names it.
    """

    def __init__(self, namespace: str, look: Callable[[int], tuple[str, int, int] | None] | None = None) -> None:
        self._namespace = namespace
        self._look = look or ids_in_namespace
        self._known: dict[int, tuple[int, int]] = {}

    def line(self, text: str) -> str | None:
        """The line as the board is to read it; None when it is about a process that is not the board's."""
        found = _ABOUT_A_THREAD.match(text)
        if found is None:
            return text
        word, thread = found.group(1), int(found.group(3))
        # A thread that enters may be a new one with an old one's id; one that leaves may be gone already.
        ids = None if word == _ENTERS else self._known.get(thread)
        if ids is None:
            ids = self._of(thread)
        if ids is None:
            return None
        return f"{word} {ids[0]} {ids[1]} {found.group(4)}"

    def _of(self, thread: int) -> tuple[int, int] | None:
        found = self._look(thread)
        if found is None or found[0] != self._namespace:
            self._known.pop(thread, None)
            return None
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        self._known[thread] = found[1:]
        return found[1:]


def ids_in_namespace(thread: int) -> tuple[str, int, int] | None:
    """(pid namespace, process id in it, thread id in it) of a thread of the host; None when it is gone."""
    folder = Path("/proc") / str(thread)
    try:
        namespace = str((folder / "ns/pid").readlink())
        status = (folder / "status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    ids = {name: rest.split() for name, _, rest in (line.partition(":") for line in status.splitlines())}
    return namespace, int(ids["NStgid"][-1]), int(ids["NSpid"][-1])
