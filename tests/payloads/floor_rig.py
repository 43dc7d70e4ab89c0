"""A rig for the GPU floor service: a library with llama.cpp's entry points, programs that call it, a virtual Jetson."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from boardbench.virtual import sysfs

from .sensors import ROOT, children, until

SERVICE = ROOT / "payloads/gpu-floor/gpu-floor"
LOWEST, HIGHEST = 306_000_000, 1_020_000_000
# Long enough for a busy machine: a test that waits in vain fails, no test measures with it.
PATIENCE_S = 30.0
# With trace points, as on a board; in a mount namespace of its own, so that nothing of it stays.
_WITH_TRACEFS = 'mount -t tracefs none /sys/kernel/tracing 2>/dev/null; exec "$@"'

# Other tests run models with experts on the CPU at the same time; those of this process are told by a flag of its own.
OURS = f"--cpu-moe-of-{os.getpid()}"
FLAGS = f"GPU_FLOOR_FLAGS={OURS}\nGPU_FLOOR_OVERRIDE_TENSOR=no\n"

LIBRARY_C = """
#include <unistd.h>
int llama_synchronize(int ms) { usleep(ms * 1000); return 0; }
int llama_decode(int ms) { usleep(ms * 1000); return llama_synchronize(0); }
#ifndef OLD
int llama_process(int ms) { return llama_decode(ms) + 1; }
#endif
"""
# Reads lines "FUNCTION MS" or "thread MS"; answers "in T" and "out T", T being monotonic nanoseconds.
CALLER_C = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
static void *library;
static void say(const char *word) {
  struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t);
  printf("%s %lld\\n", word, t.tv_sec * 1000000000LL + t.tv_nsec); fflush(stdout);
}
static void *call(void *ms) { ((int (*)(int))dlsym(library, "llama_decode"))((int)(long)ms); return 0; }
int main(int argc, char **argv) {
  char name[64]; int ms;
  library = dlopen(argv[1], RTLD_NOW);
  if (!library) { puts(dlerror()); return 1; }
  say("ready");
  while (scanf("%63s %d", name, &ms) == 2) {
    say("in");
    if (!strcmp(name, "thread")) {
      pthread_t t; pthread_create(&t, 0, call, (void *)(long)ms); pthread_detach(t);
      continue;
    }
    ((int (*)(int))dlsym(library, name))(ms);
    say("out");
  }
  return 0;
}
"""


def build(folder: Path, *options: str, name: str = "libllama.so") -> Path:
    """The library; a build that replaces another one is a new file, as a linker makes it."""
    folder.mkdir(parents=True, exist_ok=True)
    new = folder / f".{name}.new"
    _compile(LIBRARY_C, ["-shared", "-fPIC", "-O1", *options], new)
    new.rename(folder / name)
    return folder / name


def build_caller(folder: Path) -> Path:
    """The program that calls the library."""
    folder.mkdir(parents=True, exist_ok=True)
    _compile(CALLER_C, ["-O1", "-pthread"], folder / "llama-server")
    return folder / "llama-server"


def _compile(text: str, options: Sequence[str], target: Path) -> None:
    argv = ["gcc", "-x", "c", "-", *options, "-o", str(target), "-ldl"]
    subprocess.run(argv, input=text, text=True, check=True, capture_output=True)


class Caller:
    """A running program with the library loaded, that calls when it is told to."""

    def __init__(self, program: Path, library: Path, *flags: str) -> None:
        self.process = subprocess.Popen(
            [program, library, *flags], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self.heard("ready")

    @property
    def pid(self) -> int:
        return self.process.pid

    def call(self, function: str, ms: int) -> float:
        """Starts a call; returns its monotonic time in seconds, just before it."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{function} {ms}\n")
        self.process.stdin.flush()
        return self.heard("in")

    def heard(self, word: str) -> float:
        """Waits for the program's next word, and returns its time."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline().split()
        assert line[:1] == [word], line
        return int(line[1]) / 1e9

    def end(self, number: signal.Signals = signal.SIGKILL) -> None:
        self.process.send_signal(number)
        self.process.wait(10)
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


@dataclass
class Jetson:
    """A virtual Jetson's files, served as on a virtual board."""

    sys: Path
    gpu: Path = field(init=False)

    def __post_init__(self) -> None:
        self.gpu = self.sys / "class/devfreq/17000000.gpu"

    def read(self, name: str) -> int:
        return int((self.gpu / name).read_text())

    def write(self, name: str, value: int) -> None:
        handle = os.open(self.gpu / name, os.O_WRONLY | os.O_TRUNC)
        try:
            os.write(handle, str(value).encode())
        finally:
            os.close(handle)


@contextmanager
def virtual_jetson(folder: Path) -> Iterator[Jetson]:
    """The product's own virtual board, without a board around it."""
    own = folder / "own"
    own.mkdir(parents=True)
    sysfs.start(folder, "floor", 60.0, {"orin": sysfs.Entry("jetson-orin-nano", "bwrap", (str(own),), None)})
    try:
        yield Jetson(folder / "tree/orin/sys")
    finally:
        assert sysfs.stop(folder) == []


class Floor:
    """The service as a process. `lines`: what it has logged."""

    def __init__(self, folder: Path, sys_root: Path, settings: str = "", environment: dict[str, str] | None = None):
        self.folder, self.sys_root, self.environment = folder, sys_root, environment or {}
        folder.mkdir(parents=True, exist_ok=True)
        self.settings = folder / "default"
        self.settings.write_text(settings)
        self.log = folder / "log"
        self.process: subprocess.Popen[bytes] | None = None

    def options(self) -> list[str]:
        return [
            *("--settings", str(self.settings), "--sys", str(self.sys_root)),
            *("--run-dir", str(self.folder / "run")),
        ]

    def start(self) -> Floor:
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(
                [
                    # The niceness of its unit.
                    *("nice", "-n", "-10"),
                    *("unshare", "--mount", "--propagation", "private", "sh", "-c", _WITH_TRACEFS, "sh"),
                    *(sys.executable, "-IS", str(SERVICE), *self.options()),
                ],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self.environment},
                process_group=0,
            )
        return self

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def lines(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Another command of the payload, on the same board."""
        argv = [sys.executable, "-IS", str(SERVICE), *words, *self.options()]
        return subprocess.run(argv, capture_output=True, text=True, timeout=60)

    def status(self) -> dict[str, Any]:
        """`--status`; empty while the service does not answer."""
        try:
            found: dict[str, Any] = json.loads((self.folder / "run/status.json").read_text())
        except FileNotFoundError:
            return {}
        return found

    def await_status(self, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The first status that fulfils the condition."""
        try:
            until(lambda: condition(self.status() or {"libraries": []}), PATIENCE_S)
        except AssertionError:
            raise AssertionError(f"{self.status()}\n{self.lines}") from None
        return self.status()

    def await_watching(self, library: Path) -> None:
        """Until the library that lies there now is watched."""
        self.await_status(
            lambda status: any(
                (one["path"], one["inode"]) == (str(library.resolve()), library.stat().st_ino)
                and one["state"] == "watching"
                for one in status["libraries"]
            )
        )

    def await_line(self, text: str) -> None:
        try:
            until(lambda: any(text in line for line in self.lines), PATIENCE_S)
        except AssertionError:
            raise AssertionError(f"'{text}' is not in {self.lines}") from None

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)

    def interrupt(self) -> int:
        """Ctrl-C in its terminal, which reaches its helpers too."""
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGINT)
        return self.process.wait(PATIENCE_S)

    def __enter__(self) -> Floor:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        if self.process is not None and self.process.poll() is None:
            tracers = children(self.process.pid)
            self.process.terminate()
            try:
                self.process.wait(PATIENCE_S)
            finally:
                self.process.kill()
                self.process.wait()
                for pid in tracers:
                    try:
                        os.kill(pid, signal.SIGKILL)
                    except ProcessLookupError:
                        pass  # as it should be
