"""A server of the cluster as a program: read the config, start, serve until a signal comes, drain, end.

Exit codes: 0 ended after SIGTERM or SIGINT, 2 the config is wrong, 3 what it needs (a port, a backend) cannot be had.
"""

import abc
import argparse
import asyncio
import logging
import os
import signal
import sys

from npuforge import loop, memory, security
from npuforge.config import ConfigError


class Program(abc.ABC):
    """What is started and drained, once each and in one event loop."""

    @abc.abstractmethod
    async def start(self):
        """Serves; returns where, in words for the log. OSError when that cannot be."""

    @abc.abstractmethod
    async def drain(self):
        """Takes no more requests, lets those that are here end, and ends."""


def command_line(what, whose):
    """A parser with the option that every program has: `whose` config it is. `what`: what the program does."""
    parser = argparse.ArgumentParser(description=what)
    parser.add_argument("--config", required=True, help=f"{whose} TOML file")
    return parser


async def serve(program, log):
    """Runs a `Program` until SIGTERM or SIGINT."""
    ended = asyncio.Event()
    running = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        running.add_signal_handler(number, ended.set)
    log.info("serving at %s on %s", await program.start(), loop.NAME)
    await ended.wait()
    log.info("draining")
    await program.drain()


def run(name, config, load_settings, act, faults=()):
    """Runs the coroutine function `act(settings, folder of the config)` in an event loop; returns the exit code.

    `faults`: exceptions of the program, beside OSError, that say what it needs and cannot have.
    """
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    memory.keep_freed_memory()
    try:
        settings = load_settings(config)
        loop.run(act(settings, os.path.dirname(os.path.abspath(config))))
    except (ConfigError, security.SecurityError) as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 2
    except (OSError, *faults) as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 3
    return 0
