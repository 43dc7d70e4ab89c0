"""Progress as people and logs see it."""

from __future__ import annotations

import io

from rich.console import Console

from boardbench.matrix.progress import Phase, Progress
from boardbench.report.progress import LiveProgress, PlainProgress, clock


class Now:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.s = 100.0

    def __call__(self) -> float:
        return self.s


def test_durations_are_shown_as_minutes_and_hours() -> None:
    assert (clock(0), clock(59.6), clock(61), clock(3661), clock(-5)) == ("0:00", "1:00", "1:01", "1:01:01", "0:00")


def test_plain_progress_says_each_thing_once_and_names_wave_board_reason_and_rest() -> None:
    stream, now = io.StringIO(), Now()
    say = PlainProgress(stream, now)
    now.s += 5
    for _ in range(3):
        say(Progress(Phase.PREPARE, "strays: none", "king", 1, 2, 90.0))
    assert stream.getvalue() == "   0:05 [1/2] king: prepare: strays: none (1:30 left)\n"


def test_a_cooling_board_does_not_flood_a_log() -> None:
    stream, now = io.StringIO(), Now()
    say = PlainProgress(stream, now)
    for step in range(40):
        now.s += 0.5
        say(Progress(Phase.COOLING, f"{80 - step}.0 -> 50.0 degC", "king"))
    assert 3 <= len(stream.getvalue().splitlines()) <= 5


def test_the_live_table_shows_what_each_board_does_and_for_how_long() -> None:
    now = Now()
    live = LiveProgress(now)
    live(Progress(Phase.COOLING, "61.2 -> 45.0 degC", "king", 1, 2, 60.0))
    now.s += 12
    live(Progress(Phase.COOLING, "58.0 -> 45.0 degC", "king", 1, 2))
    live(Progress(Phase.MEASURE, "until 0:31", "queen", 1, 2))
    console = Console(file=io.StringIO(), width=100)
    console.print(live.__rich__())
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "wave 1 of 2: 0:12 gone, about 0:48 left" in shown
    assert "king" in shown
    assert "0:12" in shown
    assert "58.0 -> 45.0 degC" in shown
    assert "measure" in shown


def test_news_about_all_boards_shows_on_each_of_their_lines_but_not_on_a_lost_ones() -> None:
    now = Now()
    live = LiveProgress(now)
    live(Progress(Phase.FACTS, "asking 2 boards"))
    live(Progress(Phase.PREPARE, "logger", "king", 1, 2))
    live(Progress(Phase.LOST, "no answer", "queen", 1, 2))
    live(Progress(Phase.MEASURE, "load runs, 9 s left", None, 1, 2))
    console = Console(file=io.StringIO(), width=100)
    console.print(live.__rich__())
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    lines = {line.split()[0]: line for line in shown.splitlines() if line.startswith(("king", "queen", "all"))}
    assert "load runs, 9 s left" in lines["king"]
    assert "no answer" in lines["queen"]
