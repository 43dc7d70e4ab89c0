"""Calls of a llama.cpp library on a virtual board: a small library with its symbols, and a program that calls it."""

from __future__ import annotations

import base64
import subprocess
import time
from pathlib import Path

from boardbench.virtual.fleet import Fleet

from .rig import ssh

LOWEST, HIGHEST = 306_000_000, 1_020_000_000
PATIENCE_S = 60.0
FOLDER = "/tmp/floor-calls"
LIBRARY = f"{FOLDER}/libllama.so"
_LIBRARY_C = """
#include <unistd.h>
int llama_synchronize(int ms) { usleep(ms * 1000); return 0; }
int llama_decode(int ms) { usleep(ms * 1000); return llama_synchronize(0); }
int llama_process(int ms) { return llama_decode(ms) + 1; }
"""
# Says its pid; then for each line with a number of ms it calls, and says "in T" and "out T", T monotonic nanoseconds.
_CALLER_C = """
#include <stdio.h>
#include <time.h>
#include <unistd.h>
int llama_process(int ms);
static void say(const char *word) {
  struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t);
  printf("%s %lld\\n", word, t.tv_sec * 1000000000LL + t.tv_nsec); fflush(stdout);
}
int main(void) {
  int ms;
  printf("pid %d\\n", getpid()); fflush(stdout);
  while (scanf("%d", &ms) == 1) { say("in"); llama_process(ms); say("out"); }
  return 0;
}
"""


def put_on(fleet: Fleet, folder: Path) -> None:
    """Builds library and program in `folder`, and puts them on the Jetson."""
    library, program = folder / "libllama.so", folder / "llama-server"
    _compile(_LIBRARY_C, "-shared", "-fPIC", "-O1", "-o", str(library))
    _compile(_CALLER_C, "-O1", "-o", str(program), f"-L{folder}", "-lllama", "-Wl,-rpath,$ORIGIN")
    assert ssh(fleet, "jetson", "mkdir", "-p", FOLDER).code == 0
    for path in (library, program):
        target = f"{FOLDER}/{path.name}"
        text = base64.b64encode(path.read_bytes()).decode()
        done = ssh(fleet, "jetson", "base64", "--decode", ">", target, "&&", "chmod", "755", target, stdin=text)
        assert done.code == 0, done.err


def _compile(text: str, *options: str) -> None:
    subprocess.run(["gcc", "-x", "c", "-", "-x", "none", *options], input=text, text=True, check=True)


class Caller:
    """The program on the Jetson, through a session of its own that ends it. `pid` is the board's."""

    def __init__(self, fleet: Fleet, *flags: str, root: bool = False) -> None:
        access = fleet.access()["jetson"]
        argv = ["ssh", "-F", "none", "-p", str(access.port), "-i", str(access.key_file), "-o", "BatchMode=yes"]
        argv += ["-o", f"UserKnownHostsFile={fleet.known_hosts}", "-o", "IdentitiesOnly=yes"]
        argv += [f"{access.user}@{access.host}", "--", *(("sudo", "-n") if root else ())]
        argv += [f"{FOLDER}/llama-server", *flags]
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self.pid = self._heard("pid")

    def call(self, ms: int) -> float:
        """Starts a call; returns its monotonic time in seconds."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{ms}\n")
        self.process.stdin.flush()
        return self._heard("in") / 1e9

    def ended(self) -> float:
        """Waits for the end of the call; returns its time."""
        return self._heard("out") / 1e9

    def _heard(self, word: str) -> int:
        assert self.process.stdout is not None
        line = self.process.stdout.readline().split()
        assert line[:1] == [word], line
        return int(line[1])

    def end(self) -> None:
        """Ends the program by the end of its input, after the call that it is in."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(PATIENCE_S)
        self.process.stdout.close()


def min_hz(fleet: Fleet) -> int:
    """The Jetson's GPU floor, read from the fleet's side, which takes no session."""
    return int((fleet.folder / "tree/jetson/sys/class/devfreq/17000000.gpu/min_freq").read_text())


def until_hz(fleet: Fleet, hz: int) -> float:
    """Waits until that floor is in force; returns when that was seen, in monotonic seconds."""
    deadline = time.monotonic() + PATIENCE_S
    while min_hz(fleet) != hz:
        assert time.monotonic() < deadline, f"the floor is {min_hz(fleet)} Hz and not {hz}"
        time.sleep(0.002)
    return time.monotonic()
