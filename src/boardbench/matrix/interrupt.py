"""Ctrl-C, SIGTERM and SIGHUP while a campaign runs: once ends it in good order, Ctrl-C twice ends it now.

The handler writes to the error stream by itself: it may have stopped the program inside of whatever prints else.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Self

EXIT_CODE = 130
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SHOW_CURSOR = "\x1b[?25h"


class Stops:
    """What a stop means at this moment. Use as a context manager; outside of the main thread it does nothing.

    `resume_command` is what a user types to go on.
    """

    def __init__(self, resume_command: str) -> None:
        self.wanted: str | None = None
        self.doing = ""
        self._resume_command = resume_command
        self._finishing = ""
        self._before: dict[int, object] = {}

    @contextmanager
    def finishing(self, what: str) -> Iterator[None]:
        """A first stop inside does not end this: `what` is brought to its end. `check` tells of it afterwards."""
        before, self._finishing = self._finishing, what
        try:
            yield
        finally:
            self._finishing = before

    def check(self) -> None:
        """Raises KeyboardInterrupt when a stop was asked for."""
        if self.wanted is not None:
            raise KeyboardInterrupt

    def _stop(self, number: int, _: FrameType | None) -> None:
        name = signal.Signals(number).name
        if number == signal.SIGHUP:
            _leave_terminal()
        if self.wanted is None:
            self.wanted = name
            then = f"finishing: {self._finishing}" if self._finishing else f"abandoning {self.doing or 'the start'}"
            _say(f"{name}: {then}; then the boards are put back. Ctrl-C again ends it now.")
            if not self._finishing:
                raise KeyboardInterrupt
        elif number == signal.SIGINT:
            _say(
                "aborted. The boards are as they are; they are put back at the next contact: by"
                f" '{self._resume_command}', by the next bench or provision, or by teardown."
            )
            # As if killed: everything that is needed to go on is on disk, here and on the boards.
            os._exit(EXIT_CODE)

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                self._before[number] = signal.signal(number, self._stop)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            if callable(handler) or isinstance(handler, signal.Handlers):
                signal.signal(number, handler)
        self._before.clear()


def _say(text: str) -> None:
    show = SHOW_CURSOR if _is_terminal() else ""
    try:
        os.write(2, f"{show}\ninv: {text}\n".encode())
    except OSError:
        pass  # nobody is there to read it


def _is_terminal() -> bool:
    try:
        return os.isatty(2)
    except OSError:
        return False


def _leave_terminal() -> None:
    """The terminal is gone: a write to it must not stop the boards from being put back."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        if os.isatty(stream) or stream == 0:
            os.dup2(nowhere, stream)
    os.close(nowhere)
