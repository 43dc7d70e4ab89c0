"""One llama-server for one run: started, waited for, ended by its own process id."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import time
from typing import Any, Sequence

from .raw import Trouble

PAUSE_S = 0.02
END_S = 60.0


def free_port(host: str) -> int:
    """A port of this address that nobody has now."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


class Server:
    """A running server. `argv` and `env` as they were given to the kernel."""

    def __init__(self, argv: Sequence[str], env: dict[str, str], host: str, port: int, log_path: str) -> None:
        self._host, self._port = host, port
        try:
            with open(log_path, "ab") as log:
                self._process = subprocess.Popen(
                    list(argv), env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, cwd="/"
                )
        except OSError as error:
            raise Trouble(f"cannot start {argv[0]}: {error.strerror}") from None

    @property
    def pid(self) -> int:
        """The server's process id."""
        return self._process.pid

    def how_it_ended(self) -> str:
        """Empty while it runs."""
        code = self._process.poll()
        if code is None:
            return ""
        return f"the server ended by {signal.Signals(-code).name}" if code < 0 else f"the server ended with code {code}"

    def wait_until_ready(self, limit_s: float) -> None:
        """Until its health check says ok. Raises Trouble."""
        until = time.monotonic() + limit_s
        while True:
            if ended := self.how_it_ended():
                raise Trouble(f"{ended} before it was ready; see llama-server.log")
            try:
                if self._call("GET", "/health", None, 5.0)[0] == 200:
                    return
            except (OSError, http.client.HTTPException):
                pass
            if time.monotonic() > until:
                raise Trouble(f"the server was not ready within {limit_s:g} s; see llama-server.log")
            time.sleep(PAUSE_S)

    def complete(self, body: dict[str, Any], limit_s: float) -> dict[str, Any]:
        """One completion. Raises Trouble for anything but an answer."""
        try:
            code, data = self._call("POST", "/completion", json.dumps(body).encode(), limit_s)
            answer = json.loads(data.decode("utf-8", "replace"))
        except (OSError, ValueError, http.client.HTTPException) as error:
            ended = self._ended_soon()
            raise Trouble(ended or f"no answer of the server ({error})") from None
        if code != 200 or not isinstance(answer, dict):
            raise Trouble(f"the server answered {code}: {data[:200].decode('utf-8', 'replace')}")
        return answer

    def _ended_soon(self) -> str:
        """How it ended, when the broken connection was its death: a moment passes until that is known."""
        for _ in range(50):
            if ended := self.how_it_ended():
                return ended
            time.sleep(PAUSE_S)
        return ""

    def _call(self, method: str, path: str, body: bytes | None, limit_s: float) -> tuple[int, bytes]:
        # No proxy of the environment: this is this machine.
        connection = http.client.HTTPConnection(self._host, self._port, timeout=limit_s)
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"} if body else {})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def end(self) -> str:
        """Ends it and returns how; killed when it does not go."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(END_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        return self.how_it_ended()


def environment(stats: str | None, cache_mib: int, readers: int, more: Sequence[str]) -> dict[str, str]:
    """Of ours only what a program needs, so that no variable of whoever started us changes the measurement."""
    env = {key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ}
    env["LC_ALL"] = "C.UTF-8"
    if stats is not None:
        env["LLAMA_EXPERT_CACHE_MIB"] = str(cache_mib)
        env["LLAMA_EXPERT_CACHE_READERS"] = str(readers)
        env["LLAMA_EXPERT_CACHE_STATS"] = stats
    for entry in more:
        name, equals, value = entry.partition("=")
        if not equals or not name:
            raise Trouble(f"--env {entry!r} is not NAME=VALUE")
        env[name] = value
    return env
