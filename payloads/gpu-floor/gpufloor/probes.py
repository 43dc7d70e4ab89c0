"""The bpftrace program for one library, and the reader of what it prints. Both pure.

The program keeps the depth of every thread in the kernel. A frame that was left without a return (an exception, a long
jump) is noticed by the stack pointer of the next call, which then lies above it.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Sequence

from .calls import Event
from .faults import BoardError

ENTRY_POINTS = ("llama_process", "llama_decode", "llama_synchronize")
TRACEFS = ("/sys/kernel/tracing", "/sys/kernel/debug/tracing")
_EXIT_POINT = "events/sched/sched_process_exit"
# bpftrace reads these as patterns or as the end of the quoted path.
_UNUSABLE = re.compile(r'[*?\[\]"\\\n\x00-\x1f]')
_LINE = re.compile(r"(call|done|gone) ([0-9]+) ([0-9]+) ([0-9]+) ([0-9]+)\Z")
_TICK = re.compile(r"tick [0-9]+\Z")
_LOST = re.compile(r"Lost ([0-9]+) events\Z")

_PROGRAM = """\
%(entries)s {
  if (@depth[tid] > 0 && reg("sp") > @sp[tid]) { @depth[tid] = 0; }
  if (@depth[tid] == 0) { @sp[tid] = reg("sp"); }
  @depth[tid] = @depth[tid] + 1;
  printf("call %%d %%d %%d %%llu\\n", pid, tid, @depth[tid], nsecs);
}
%(returns)s /@depth[tid] > 0/ {
  @depth[tid] = @depth[tid] - 1;
  printf("done %%d %%d %%d %%llu\\n", pid, tid, @depth[tid], nsecs);
  if (@depth[tid] == 0) { delete(@depth[tid]); delete(@sp[tid]); }
}
interval:s:1 { printf("tick %%llu\\n", nsecs); }
"""
_EXITS = """\
tracepoint:sched:sched_process_exit /@depth[tid] > 0/ {
  printf("gone %d %d 0 %llu\\n", pid, tid, nsecs);
  delete(@depth[tid]); delete(@sp[tid]);
}
"""


@dataclass(frozen=True)
class Tick:
    """The program runs: all its probes are in place."""


@dataclass(frozen=True)
class Lost:
    """Events came faster than they were read."""

    count: int


def tracefs_mounted() -> bool:
    """Whether the kernel's trace points can be used: without them a death in a call is noticed a little later."""
    return any(os.path.isdir(os.path.join(at, _EXIT_POINT)) for at in TRACEFS)


def program(path: str, symbols: Sequence[str], *, exits: bool) -> str:
    """The bpftrace program for these functions of the library; `exits`: the trace point of ends can be had."""
    if not symbols:
        raise BoardError(f"{path} has none of {', '.join(ENTRY_POINTS)}")
    if _UNUSABLE.search(path):
        raise BoardError(f'{path!r} cannot be given to bpftrace; use a path without any of * ? [ ] " \\')

    def probes(kind: str) -> str:
        return ",\n".join(f'{kind}:"{path}":"{symbol}"' for symbol in symbols)

    text = _PROGRAM % {"entries": probes("uprobe"), "returns": probes("uretprobe")}
    return text + (_EXITS if exits else "")


def parse_line(line: str) -> Event | Tick | Lost | None:
    """What a line of the program says; None for a line that it did not print."""
    found = _LINE.match(line)
    if found:
        depth = 0 if found.group(1) == "gone" else int(found.group(4))
        return Event(int(found.group(2)), int(found.group(3)), depth, int(found.group(5)) / 1e9)
    if _TICK.match(line):
        return Tick()
    lost = _LOST.match(line)
    return Lost(int(lost.group(1))) if lost else None


def reason(stderr: str) -> str:
    """The last thing that bpftrace complained of, in one line, with what to do where that is known."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip() and "RLIMIT_MEMLOCK" not in line]
    errors = [line for line in lines if "ERROR" in line] or lines
    said = errors[-1] if errors else "it said nothing"
    for words, advice in _ADVICE:
        if words in stderr:
            return f"{said[:200]}; {advice}"
    return said[:200]


_ADVICE = (
    ("Operation not permitted", "the kernel or a sandbox forbids BPF here"),
    ("Permission denied", "the kernel or a sandbox forbids BPF here"),
    ("tracepoint not found", "mount it: mount -t tracefs tracefs /sys/kernel/tracing"),
    ("requires the kernel to be built", "this kernel has no uprobes"),
)
