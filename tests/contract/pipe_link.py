"""A board in a local process: `transport.Link` over pipes. The command line goes through a real shell, as over SSH."""

from __future__ import annotations

import os
import select
import subprocess

from boardbench.transport import LinkLost


class PipeExec:
    def __init__(self, link: PipeLink, command: str) -> None:
        self._link = link
        # As sshd: the user's shell reads the command line.
        self.process = subprocess.Popen(
            ["/bin/sh", "-c", command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
        )
        streams = (self.process.stdin, self.process.stdout, self.process.stderr)
        self._in, self._out, self._err = (stream.fileno() for stream in streams if stream is not None)
        self._open = {self._out, self._err}
        os.set_blocking(self._in, False)

    def send(self, data: memoryview, timeout_s: float) -> int:
        self._check()
        poll = select.poll()
        poll.register(self._in, select.POLLOUT)
        if not poll.poll(int(timeout_s * 1000)):
            return 0
        try:
            return os.write(self._in, data)
        except BlockingIOError:
            return 0
        except BrokenPipeError:
            raise EOFError from None

    def receive(self, timeout_s: float) -> tuple[bytes, bytes]:
        self._check()
        if not self._open:
            raise EOFError
        poll = select.poll()
        for fd in self._open:
            poll.register(fd, select.POLLIN)
        got = {self._out: b"", self._err: b""}
        for fd, _ in poll.poll(int(timeout_s * 1000)):
            got[fd] = os.read(fd, 1 << 18)
            if not got[fd]:
                self._open.discard(fd)
        if not self._open and not any(got.values()):
            raise EOFError
        return got[self._out], got[self._err]

    def exit_code(self, timeout_s: float) -> int | None:
        try:
            code = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None
        return code if code >= 0 else None

    def close(self) -> None:
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None and not stream.closed:
                stream.close()

    def _check(self) -> None:
        if self._link.closed:
            raise LinkLost("the pipes were closed")


class PipeLink:
    """`prefix` stands before every command: what a noisy login shell, or a board without Python, would do."""

    user = "root"

    def __init__(self, prefix: str = "") -> None:
        self.closed = False
        self.prefix = prefix
        self._started: list[PipeExec] = []

    def start(self, command: str, timeout_s: float) -> PipeExec:
        if self.closed:
            raise LinkLost("the pipes were closed")
        running = PipeExec(self, self.prefix + command)
        self._started.append(running)
        return running

    def alive(self) -> bool:
        return not self.closed

    def close(self) -> None:
        self.closed = True

    def reap(self) -> None:
        """For the end of a test: waits for every process; each must end by itself once its input has ended."""
        self.close()
        for running in self._started:
            running.close()
            running.process.wait(15)
