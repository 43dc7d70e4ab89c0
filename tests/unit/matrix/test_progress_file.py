"""progress.json: written by a running campaign, read by anybody, gone when it closes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_boards import Fleet

from boardbench.errors import InputError
from boardbench.matrix import progress_file
from boardbench.matrix.progress import Phase, Progress
from boardbench.matrix.progress_file import ProgressFile


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "small" / "20260101T000000Z-0123abcd"
    made.mkdir(parents=True)
    return made


def started(folder: Path, then: Callable[[Progress], None] = lambda _: None) -> ProgressFile:
    return ProgressFile(folder, "small", Fleet("king", "queen").boards, "ada", then)


def test_news_are_handed_on_and_kept(folder: Path) -> None:
    heard: list[Progress] = []
    tell = started(folder, heard.append)
    tell(Progress(Phase.PREPARE, "prepare 2 boards", None, 1, 2, 60.0))
    tell(Progress(Phase.PREPARE, "cooling: 61.2 -> 52.0 degC", "king", 1, 2))
    found = progress_file.read(folder)
    assert [news.message for news in heard] == ["prepare 2 boards", "cooling: 61.2 -> 52.0 degC"]
    assert (found.campaign, found.matrix, found.owner) == (folder.name, "small", "ada")
    assert (found.wave, found.waves) == (1, 2)
    assert found.news is not None
    assert found.news.message == "prepare 2 boards"
    assert found.news_of["king"].message == "cooling: 61.2 -> 52.0 degC"
    assert found.ends_wall_unix_s == pytest.approx(found.news.wall_unix_s + 60.0, abs=0.01)


@pytest.mark.parametrize("phase", list(Phase))
def test_boards_are_in_their_window_from_the_start_of_the_load_to_its_collect(folder: Path, phase: Phase) -> None:
    tell = started(folder)
    tell(Progress(phase, "now"))
    if phase is Phase.DONE:
        assert not (folder / progress_file.NAME).exists()
        return
    expected = phase in (Phase.START, Phase.MEASURE)
    assert progress_file.read(folder).in_window == {"king": expected, "queen": expected}


def test_what_one_board_says_does_not_end_the_window(folder: Path) -> None:
    tell = started(folder)
    tell(Progress(Phase.MEASURE, "load runs"))
    tell(Progress(Phase.LOST, "lost at start", "queen"))
    assert progress_file.read(folder).in_window == {"king": True, "queen": True}


def test_the_phase_is_known_since_it_began(folder: Path) -> None:
    tell = started(folder)
    tell(Progress(Phase.MEASURE, "10 s left"))
    first = progress_file.read(folder).news
    tell(Progress(Phase.MEASURE, "5 s left"))
    second = progress_file.read(folder).news
    assert first is not None
    assert second is not None
    assert second.message == "5 s left"
    assert second.since_wall_unix_s == first.since_wall_unix_s


def test_a_new_wave_forgets_what_boards_said_in_the_last_one(folder: Path) -> None:
    tell = started(folder)
    tell(Progress(Phase.LOST, "lost", "king", 1, 2))
    tell(Progress(Phase.PREPARE, "prepare", None, 2, 2))
    assert progress_file.read(folder).news_of == {}


def test_after_the_end_nothing_is_written_any_more(folder: Path) -> None:
    tell = started(folder)
    tell(Progress(Phase.RESTORE, "putting back"))
    tell(Progress(Phase.DONE, "done"))
    tell(Progress(Phase.RESTORE, "late"))
    assert list(folder.iterdir()) == []


def test_a_disk_that_is_full_is_said_once_and_stops_no_campaign(folder: Path, monkeypatch: Any) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    heard: list[str] = []
    tell = started(folder, lambda news: heard.append(news.message))
    tell(Progress(Phase.START, "a"))
    tell(Progress(Phase.START, "b"))
    assert heard == ["status cannot follow this campaign: No space left on device", "a", "b"]


def test_whether_the_controller_lives_is_known_by_its_process() -> None:
    mine = progress_file.here()
    process = mine["process"]
    assert progress_file.runs(mine) is True
    earlier = {**process, "start_time_ticks": process["start_time_ticks"] - 1}
    assert progress_file.runs({**mine, "process": earlier}) is False
    assert progress_file.runs({**mine, "process": {**process, "boot_id": "another"}}) is False
    assert progress_file.runs({**mine, "process": {**process, "pid_namespace": "another"}}) is None
    assert progress_file.runs({**mine, "host": "another"}) is None
    assert progress_file.runs({**mine, "process": None}) is None


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"controller": 1}', '{"news": {"phase": 1}}'])
def test_a_file_that_is_none_of_ours_is_told_by_name(folder: Path, text: str) -> None:
    (folder / progress_file.NAME).write_text(text)
    with pytest.raises(InputError):
        progress_file.read(folder)
    found, bad = progress_file.running(folder.parent.parent)
    assert found == []
    assert [progress_file.NAME in error.where for error in bad] == [True]


def test_a_campaign_leaves_no_progress_behind_and_tells_its_window(bench: Any, fleet: Fleet, tmp_path: Path) -> None:
    seen: list[dict[str, bool]] = []

    def look(*_: object) -> None:
        found, bad = progress_file.running(tmp_path / "results")
        assert bad == []
        seen.extend(dict(one.in_window) for one in found)

    fleet["king"].on("start", look)
    outcome = bench()
    assert seen == [{"king": True, "queen": True}] * 2
    assert not (outcome.path / progress_file.NAME).exists()
    assert progress_file.NAME not in (outcome.path / "MANIFEST.sha256").read_text()
    assert json.loads((outcome.path / "verdict.json").read_text())["warnings"] is not None
    assert progress_file.here()["process"]["pid"] == os.getpid()
