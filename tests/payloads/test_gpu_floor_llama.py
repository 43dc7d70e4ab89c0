"""The GPU floor service on a real llama-server: generating with experts on the CPU, idle, and without such experts."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from boardbench.moe.make_model import make_model

from .floor_rig import FLAGS, HIGHEST, LOWEST, OURS, PATIENCE_S, Floor, Jetson, virtual_jetson
from .sensors import until

LACKING = [name for name in ("bpftrace", "unshare") if shutil.which(name) is None]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="probes and clocks need root"),
    pytest.mark.skipif(bool(LACKING), reason=f"needs {', '.join(LACKING)}"),
]


class Server:
    """A llama-server on loopback."""

    def __init__(self, programs: Path, model: Path, log: Path, *flags: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        argv = [str(programs / "llama-server"), "-m", str(model), "--host", "127.0.0.1", "--port", str(self.port)]
        argv += ["-c", "512", "-t", "2", "--no-warmup", *flags]
        with log.open("wb") as out:
            self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        until(self._healthy, 120.0)

    @property
    def pid(self) -> int:
        return self.process.pid

    def _healthy(self) -> bool:
        assert self.process.poll() is None, "llama-server has ended"
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def generate(self, tokens: int) -> int:
        """Returns how many tokens came."""
        body = {"prompt": "one two three", "n_predict": tokens, "temperature": 0, "ignore_eos": True}
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/completion",
            json.dumps({**body, "cache_prompt": False}).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=120) as answer:
            found: int = json.load(answer)["tokens_predicted"]
        return found


@contextmanager
def _server(programs: Path, model: Path, log: Path, *flags: str) -> Iterator[Server]:
    server = Server(programs, model, log, *flags)
    try:
        yield server
    finally:
        server.process.kill()
        server.process.wait(10)


@pytest.fixture
def jetson(tmp_path: Path) -> Iterator[Jetson]:
    with virtual_jetson(tmp_path / "fleet") as found:
        yield found


def test_only_generating_with_experts_on_the_cpu_raises_the_floor(
    tmp_path: Path, jetson: Jetson, llama_build: Callable[[str], Path]
) -> None:
    programs, model = llama_build("stock"), tmp_path / "moe.gguf"
    make_model(model)
    library = (programs / "libllama.so.0").resolve()
    with (
        Floor(tmp_path / "floor", jetson.sys, FLAGS) as service,
        # The name is what this test counts by: other tests have servers, too.
        _server(programs, model, tmp_path / "moe.log", "--cpu-moe", "--alias", OURS) as moe,
    ):
        service.await_watching(library)
        symbols = next(one["symbols"] for one in service.status()["libraries"] if one["path"] == str(library))
        assert set(symbols) == {"llama_process", "llama_decode", "llama_synchronize"}
        with _server(programs, model, tmp_path / "dense.log") as dense:
            # A server calls while it starts, too (it synchronizes its new context): if that was seen, it is over now.
            until(lambda: jetson.read("min_freq") == LOWEST, PATIENCE_S)
            time.sleep(1.5)
            before = [line for line in service.lines if line.startswith("floor ")]
            assert dense.generate(24) == 24
            time.sleep(0.5)
            assert [line for line in service.lines if line.startswith("floor ")] == before
            assert jetson.read("min_freq") == LOWEST
            raises = service.status()["raises"]
            assert moe.generate(24) == 24
            service.await_status(lambda status: status.get("raises", 0) > raises)
            service.await_line(f"floor 1020 MHz (pid {moe.pid} inference)")
            until(lambda: jetson.read("min_freq") == LOWEST, PATIENCE_S)
            raised = {line for line in service.lines if line.startswith("floor 1020")}
            assert raised == {f"floor 1020 MHz (pid {moe.pid} inference)"}, f"the dense server is {dense.pid}"
            # By the flags that count without settings.
            found = Floor(tmp_path / "check", jetson.sys).command("--check").stdout
            assert f"  {moe.pid}: --cpu-moe" in found
            assert f"  {dense.pid}: {programs}/llama-server" in found
        assert service.status()["floor_hz"] == HIGHEST
        moe.process.kill()
        until(lambda: not service.status().get("processes"), PATIENCE_S)
