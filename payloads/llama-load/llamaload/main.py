"""Asks a fresh llama-server a fixed set of prompts, one after another, and writes down what it took.

    llama-load --out DIR --build DIR --model M.gguf --threads N --predict N [--cache-mib N] [...]

DIR/llama.jsonl gets a `start` line, a `ready` line, a `request` line per prompt with the server's own timings, the
text, the bytes that were read and the cache's counters, then `floor`, `cache` and `perplexity` lines, and an `end` line
that says why it ended. Exit code 0 only when every prompt was answered. The server is started by us, in our own control
group, and does not outlive us. Python >= 3.8, standard library only.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shlex
import signal
import sys
import time
from typing import Any

from . import counters, floor, perplexity, reads
from .asking import Asker, load_prompts
from .board import VIRTUAL_DIR, RegisteredLoad
from .raw import Log, Trouble, missing, now_s, stamp
from .server import Server, environment, free_port

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Asks a fresh llama-server a fixed set of prompts.")
    parser.add_argument("--out", required=True, help="folder for llama.jsonl and the logs")
    parser.add_argument("--build", required=True, help="folder with llama-server and llama-perplexity")
    parser.add_argument("--model", required=True, help="the GGUF file")
    parser.add_argument("--host", default="127.0.0.1", help="where the server listens; its port is a free one")
    parser.add_argument("--threads", type=int, required=True, help="threads that compute (-t)")
    parser.add_argument("--predict", type=int, required=True, help="tokens of each answer")
    parser.add_argument("--prompts", type=int, default=0, help="how many of the prompts, from the first (default: all)")
    parser.add_argument("--context", type=int, default=4096, help="context of the server, in tokens")
    parser.add_argument("--arguments", default="", help="further options of the server, in one line")
    parser.add_argument("--cache-mib", type=int, default=0, help="budget of the expert cache; 0: off")
    parser.add_argument("--readers", type=int, default=4, help="reader threads of the expert cache")
    parser.add_argument("--env", action="append", default=[], help="NAME=VALUE for the server; may be given again")
    parser.add_argument("--perplexity-chunks", type=int, default=0, help="chunks of our text; 0: no perplexity")
    parser.add_argument("--perplexity-context", type=int, default=128, help="tokens of a chunk")
    parser.add_argument("--expect-floor", choices=("up", "down"), help="what the arm wants of the GPU's lowest clock")
    parser.add_argument("--expect-cache", choices=("used", "idle"), help="what the arm wants of the expert cache")
    parser.add_argument("--lead-s", type=float, default=0.0, help="seconds from our start to the server's")
    parser.add_argument("--limit-s", type=float, default=3600.0, help="seconds that one step may take")
    options = parser.parse_args(arguments)
    for name in ("threads", "predict", "context", "perplexity_context"):
        if getattr(options, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1")
    for name in ("prompts", "cache_mib", "perplexity_chunks", "lead_s"):
        if getattr(options, name) < 0:
            parser.error(f"--{name.replace('_', '-')} must not be below 0")
    if options.limit_s <= 0:
        parser.error("--limit-s must be above 0")
    return options


class Load:
    """One run from its start to its end."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._prompts = load_prompts(os.path.join(HERE, "prompts.json"), options.prompts)
        for path in (options.model, self._program("llama-server")):
            if not os.path.isfile(path):
                raise Trouble(f"there is no {path}: run provision")
        known = json.dumps(self._prompts, ensure_ascii=False, sort_keys=True)
        self._prompts_sha256 = hashlib.sha256(known.encode()).hexdigest()
        self.log = Log(options.out)
        self.answered = self.tokens = 0
        self._server: Server | None = None
        stats = os.path.join(options.out, "cache-counters.json")
        self._cache = counters.Counters(stats if options.cache_mib else None)
        self._env = environment(self._cache.path, options.cache_mib, options.readers, options.env)
        if os.path.isdir(VIRTUAL_DIR):
            # Its cores are the host's, shared with others: threads that spin at a barrier would measure those.
            self._env.setdefault("OMP_WAIT_POLICY", "passive")

    def _program(self, name: str) -> str:
        return os.path.join(self._options.build, name)

    def _model_arguments(self) -> list[str]:
        options = self._options
        return ["-m", options.model, "-t", str(options.threads), "-tb", str(options.threads),
                *shlex.split(options.arguments)]  # fmt: skip

    def start_line(self, virtual: bool, device: reads.Device, argv: list[str]) -> None:
        """What is measured, and with what."""
        options = self._options
        with open(self._program("llama-server"), "rb") as file:
            server_sha256 = hashlib.sha256(file.read()).hexdigest()
        self.log.line(
            "start",
            stamp=stamp(),
            virtual=virtual,
            build=options.build,
            server_sha256=server_sha256,
            model={"path": options.model, "size_bytes": os.path.getsize(options.model)},
            device=device.name,
            threads=options.threads,
            predict_tokens=options.predict,
            requests=len(self._prompts),
            cache_mib=options.cache_mib,
            prompts_sha256=self._prompts_sha256,
            expect_floor=options.expect_floor,
            expect_cache=options.expect_cache,
            argv=argv,
            environment={key: value for key, value in self._env.items() if key not in ("PATH", "HOME")},
        )

    def run(self, load: RegisteredLoad) -> None:
        """Server, requests, counters, perplexity. Raises Trouble."""
        options = self._options
        device = reads.Device(options.model)
        port = free_port(options.host)
        argv = [self._program("llama-server"), *self._model_arguments(), "--host", options.host, "--port", str(port)]
        argv += ["-c", str(options.context), "-np", "1", "--no-webui", "--cache-ram", "0"]
        self.start_line(load.virtual, device, argv)
        begun_s = now_s()
        self._server = Server(argv, self._env, options.host, port, os.path.join(options.out, "llama-server.log"))
        self._server.wait_until_ready(options.limit_s)
        ready_s = now_s()
        watching = (
            floor.wait_until_watching(options.build) if options.expect_floor == "up" else missing("not asked for")
        )
        self.log.line("ready", start_monotonic_s=begun_s, ready_monotonic_s=ready_s, floor_watching_after_s=watching)
        asker = Asker(self._server, device, self._cache, floor.gpu_node(), options.limit_s)
        for index, prompt in enumerate(self._prompts):
            found = asker.ask(index, prompt, options.predict)
            self.log.line("request", **found)
            self.answered, self.tokens = index + 1, self.tokens + len(found["tokens"])
        self.log.line("floor", status=floor.status(), stamp=stamp())
        self.log.line("cache", counters=self._cache.ask(self._server.pid))
        self.end_server()
        self._perplexity()

    def _perplexity(self) -> None:
        options = self._options
        if not options.perplexity_chunks:
            self.log.line("perplexity", value=missing("not asked for in this arm"))
            return
        self.log.line(
            "perplexity",
            **perplexity.measure(
                [self._program("llama-perplexity"), *self._model_arguments()],
                {key: value for key, value in self._env.items() if key != "LLAMA_EXPERT_CACHE_STATS"},
                os.path.join(HERE, "perplexity.txt"),
                options.perplexity_chunks,
                options.perplexity_context,
                os.path.join(options.out, "llama-perplexity.log"),
                options.limit_s,
            ),
        )

    def end_server(self) -> None:
        """Ends it, if it runs."""
        if self._server is not None:
            self._server.end()

    def end_line(self, why: str) -> None:
        """The last line."""
        self.log.line("end", why=why, stamp=stamp(), requests=self.answered, tokens=self.tokens)


class Stopped(BaseException):
    """A signal asked us to end."""


def _on_stop(number: int, _: Any) -> None:
    raise Stopped(signal.Signals(number).name)


def main(arguments: list[str]) -> int:
    """Runs the load; returns the exit code."""
    options = parse(arguments)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _on_stop)
    try:
        load = Load(options)
    except Trouble as trouble:
        print(f"llama-load: {trouble}", file=sys.stderr)
        return 1
    why = "all prompts were answered"
    registered: RegisteredLoad | None = None
    try:
        time.sleep(options.lead_s)
        registered = RegisteredLoad(options.threads)
        load.run(registered)
    except Trouble as trouble:
        why = str(trouble)
    except Stopped as stopped:
        why = f"stopped by {stopped}"
    except OSError as error:
        why = f"{error.filename or 'the board'}: {error.strerror}"
    finally:
        load.end_server()
        if registered is not None:
            registered.close()
    load.end_line(why)
    good = why == "all prompts were answered"
    if not good:
        print(f"llama-load: {why}", file=sys.stderr)
    return 0 if good else 1
