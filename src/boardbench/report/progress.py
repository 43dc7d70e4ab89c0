"""Live progress of a campaign: one line per board with what it does and why it waits, and the time that is left.

On a terminal the lines are redrawn in place; elsewhere every change is one plain line. Both go to stderr.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TextIO

from rich.console import Console
from rich.live import Live
from rich.table import Table

from boardbench.matrix.progress import Phase, Progress

# A phase that only counts down (cooling) would flood a log: its messages come at most this often as plain lines.
PLAIN_REPEAT_S = 5.0
EVERYBODY = "all boards"

STYLES = {
    Phase.COOLING: "cyan",
    Phase.MEASURE: "bold green",
    Phase.RETRY: "yellow",
    Phase.LOST: "bold red",
    Phase.DONE: "dim",
}


def clock(seconds: float) -> str:
    """Seconds as m:ss, or h:mm:ss from an hour on."""
    whole = max(0, round(seconds))
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


@dataclass
class _Line:
    phase: Phase
    message: str
    since: float


class PlainProgress:
    """Progress as lines: for logs, pipes and `--json`."""

    def __init__(self, stream: TextIO, now: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._now = now
        self._began = now()
        self._said: dict[str, tuple[Phase, str, float]] = {}
        self._lock = threading.Lock()

    def __call__(self, news: Progress) -> None:
        """Write one line, unless it says again what was just said."""
        board = news.board or EVERYBODY
        with self._lock:
            at = self._now()
            before = self._said.get(board)
            if before is not None and before[0] is news.phase:
                if before[1] == news.message:
                    return
                if news.phase is Phase.COOLING and at - before[2] < PLAIN_REPEAT_S:
                    return
            self._said[board] = (news.phase, news.message, at)
            wave = f" [{news.wave}/{news.waves}]" if news.wave is not None and news.waves is not None else ""
            left = f" ({clock(news.eta_s)} left)" if news.eta_s is not None else ""
            print(
                f"{clock(at - self._began):>7}{wave} {board}: {news.phase.value}: {news.message}{left}",
                file=self._stream,
                flush=True,
            )


class LiveProgress:
    """Progress as a table that is redrawn in place."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._began = now()
        self._lines: dict[str, _Line] = {}
        self._wave = ""
        self._end_at: float | None = None
        self._lock = threading.Lock()

    def __call__(self, news: Progress) -> None:
        """Take the news; the next redraw shows it."""
        with self._lock:
            for board in [news.board] if news.board else self._all():
                old = self._lines.get(board)
                since = old.since if old is not None and old.phase is news.phase else self._now()
                self._lines[board] = _Line(news.phase, news.message, since)
            if news.wave is not None and news.waves is not None:
                self._wave = f"wave {news.wave} of {news.waves}"
            if news.eta_s is not None:
                self._end_at = self._now() + news.eta_s

    def _all(self) -> list[str]:
        """Whom news about all boards is about: every board but the lost ones; before any is known, one line for all."""
        self._lines.pop(EVERYBODY, None)
        known = [board for board, line in self._lines.items() if line.phase is not Phase.LOST]
        return known if self._lines else [EVERYBODY]

    def __rich__(self) -> Table:
        """The table as it stands now."""
        with self._lock:
            now = self._now()
            left = "" if self._end_at is None else f", about {clock(self._end_at - now)} left"
            title = f"{self._wave or 'campaign'}: {clock(now - self._began)} gone{left}"
            table = Table(title=title, title_justify="left", box=None, pad_edge=False)
            for name in ("board", "phase", "for", "what"):
                table.add_column(name, no_wrap=name != "what")
            for board, line in sorted(self._lines.items(), key=lambda item: (item[0] == EVERYBODY, item[0])):
                style = STYLES.get(line.phase, "")
                table.add_row(board, f"[{style}]{line.phase.value}[/]" if style else line.phase.value,
                              clock(now - line.since), line.message)  # fmt: skip
            return table


@contextmanager
def progress_display(*, plain: bool = False) -> Iterator[Callable[[Progress], None]]:
    """A callback for a campaign's news: a live table on a terminal, plain lines elsewhere or when asked for."""
    if plain or not sys.stderr.isatty():
        yield PlainProgress(sys.stderr)
        return
    display = LiveProgress()
    with Live(display, console=Console(stderr=True), refresh_per_second=4, transient=True):
        yield display
