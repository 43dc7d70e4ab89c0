"""A llama-server on loopback for one test: started with or without the expert cache, asked greedily, ended by pid."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROMPTS = (
    "the quick brown fox and the lazy dog",
    "once there was an inn on the hill, and in the inn they told the tale of the three rivers",
    "count: one two three four five six seven",
)


@dataclass(frozen=True)
class Answer:
    """One greedy completion: its tokens and the server's own times (milliseconds)."""

    tokens: tuple[int, ...]
    prompt_ms: float
    predicted_ms: float


class ServerError(Exception):
    """The server answered a request with an HTTP error (`status`)."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"HTTP {status}: {text}")
        self.status = status


@dataclass(frozen=True)
class Server:
    """A running llama-server."""

    port: int
    pid: int
    log: Path
    stats_path: Path

    def complete(self, prompt: str, tokens: int = 48, **extra: Any) -> Answer:
        """`tokens` greedy tokens after `prompt`, nothing reused. Raises ServerError."""
        body = {
            "prompt": prompt,
            "n_predict": tokens,
            "temperature": 0,
            "seed": 1,
            "cache_prompt": False,
            "ignore_eos": True,
            "return_tokens": True,
        }
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/completion",
            json.dumps(body | extra).encode(),
            {"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=600) as reply:
                answer = json.load(reply)
        except urllib.error.HTTPError as error:
            raise ServerError(error.code, error.read().decode(errors="replace")) from error
        timings = answer["timings"]
        return Answer(tuple(answer["tokens"]), timings["prompt_ms"], timings["predicted_ms"])

    def counters(self) -> dict[str, Any]:
        """The cache's counters now, asked for by SIGUSR1."""
        before = self.stats_path.stat().st_mtime_ns if self.stats_path.exists() else 0
        os.kill(self.pid, signal.SIGUSR1)
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            if self.stats_path.exists() and self.stats_path.stat().st_mtime_ns != before:
                return dict(json.loads(self.stats_path.read_text()))
            time.sleep(0.01)
        raise AssertionError("no counters within 30 s of SIGUSR1")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_until_healthy(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise AssertionError(f"llama-server ended with {process.returncode}:\n{log.read_text()[-3000:]}")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as reply:
                if reply.status == 200:
                    return
        except OSError:
            time.sleep(0.05)
    raise AssertionError(f"llama-server not healthy within 300 s:\n{log.read_text()[-3000:]}")


@contextmanager
def server(
    build: Path,
    model: Path,
    folder: Path,
    *,
    cache_mib: int | None = None,
    threads: int = 2,
    flags: tuple[str, ...] = (),
    env: dict[str, str] | None = None,
    before: tuple[str, ...] = (),
) -> Iterator[Server]:
    """llama-server of `build` with `model`; ended with SIGTERM, so that counters are written at exit too.

    `before` is put in front of the command (a wrapper that execs it).
    """
    port = _free_port()
    log, stats = folder / f"server-{port}.log", folder / f"counters-{port}.json"
    command = [*before, str(build / "llama-server"), "-m", str(model), "--host", "127.0.0.1", "--port", str(port)]
    command += ["-t", str(threads), "-c", "2048", "-np", "1", "--load-mode", "mmap", "--no-repack"]
    command += ["--no-webui", *flags]
    settings = dict(os.environ) | {"LD_LIBRARY_PATH": str(build), "LLAMA_EXPERT_CACHE_STATS": str(stats)} | (env or {})
    settings.pop("LLAMA_EXPERT_CACHE_MIB", None)
    if cache_mib is not None:
        settings["LLAMA_EXPERT_CACHE_MIB"] = str(cache_mib)
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, stdout=out, stderr=subprocess.STDOUT, env=settings, stdin=subprocess.DEVNULL
        )
    try:
        _wait_until_healthy(port, process, log)
        yield Server(port, process.pid, log, stats)
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
