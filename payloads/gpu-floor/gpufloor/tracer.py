"""One bpftrace for one library file: started, listened to without waiting, ended."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
from typing import IO, Callable

from .calls import Event
from .probes import Lost, Tick, parse_line, reason

_PR_SET_PDEATHSIG = 1
_END_S = 3.0
_libc = ctypes.CDLL(None, use_errno=True)


def _die_with(parent: int) -> Callable[[], None]:
    def prepare() -> None:
        # Also after kill -9 of the service no probe may stay in the kernel.
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return prepare


class Tracer:
    """`state` is "starting", "watching" (all probes are in place) or "failed" (then `why` says why)."""

    def __init__(self, bpftrace: str, text: str) -> None:
        self.state = "starting"
        self.why = ""
        self.lost = 0
        self._rest = b""
        # In memory: the unit may write to no folder but its own.
        self._complaints: IO[bytes] = os.fdopen(os.memfd_create("bpftrace-complaints"), "w+b")
        environment = {**os.environ, "LC_ALL": "C"}
        self._process = subprocess.Popen(
            [bpftrace, "-q", "-B", "line", "-e", text],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            env=environment,
            preexec_fn=_die_with(os.getpid()),
        )
        assert self._process.stdout is not None
        self._out = self._process.stdout
        os.set_blocking(self._out.fileno(), False)

    @property
    def pid(self) -> int:
        """The pid of bpftrace."""
        return self._process.pid

    def fileno(self) -> int:
        """What to wait on."""
        return self._out.fileno()

    def read(self) -> list[Event]:
        """The events since the last call; none when it has failed."""
        try:
            data = os.read(self._out.fileno(), 1 << 20)
        except BlockingIOError:
            return []
        if not data:
            self._fail()
            return []
        *lines, self._rest = (self._rest + data).split(b"\n")
        found: list[Event] = []
        for line in lines:
            said: Event | Tick | Lost | None = parse_line(line.decode(errors="replace"))
            if isinstance(said, Event):
                found.append(said)
            elif isinstance(said, Lost):
                self.lost += said.count
            if said is not None:
                self.state = "watching"
        return found

    def _fail(self) -> None:
        try:
            code: int | None = self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            code = None
        self._complaints.seek(0)
        said = self._complaints.read(65536).decode(errors="replace")
        self.state, self.why = "failed", f"bpftrace ended with {code}: {reason(said)}"

    def ask_to_end(self) -> None:
        """The polite half of `close`, so that many can end at once."""
        if self._process.poll() is None:
            self._process.terminate()

    def close(self) -> None:
        """Ends it: its probes are out of the kernel when this returns."""
        self.ask_to_end()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(_END_S)
        self._out.close()
        self._complaints.close()
