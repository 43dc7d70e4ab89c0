"""progress.json: where a running campaign stands, for `status` in a second terminal.

The file lies in the campaign's folder while the campaign runs and goes with its closing. It is written whole (rename)
at every piece of news and never synced: after a crash of the machine nobody needs it.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from boardbench.errors import InputError
from boardbench.inventory import Access, Board
from boardbench.matrix.owner import Process, proof_of_death
from boardbench.matrix.progress import OnProgress, Phase, Progress
from boardbench.results import store

NAME = "progress.json"
SCHEMA_VERSION = 1
WINDOW = (Phase.START, Phase.MEASURE)
"""Phases of a wave in which its boards are measured, or begin to be."""


def address(access: Access) -> str:
    """How one machine is known under several names."""
    return f"{access.gateway or ''}/{access.alias or access.host}:{access.port}"


class ProgressFile:
    """Passes news on and keeps the file up to date. Called from any thread; never raises."""

    def __init__(self, folder: Path, matrix: str, boards: Sequence[Board], owner: str, then: OnProgress) -> None:
        self._path = folder / NAME
        self._then = then
        self._lock = threading.Lock()
        self._ended = False
        self._window = dict.fromkeys((board.name for board in boards), False)
        self._state: dict[str, Any] = {
            "schema_version": SCHEMA_VERSION,
            "campaign": folder.name,
            "matrix": matrix,
            "owner": owner,
            "controller": here(),
            "boards": {board.name: address(board.access) for board in boards},
            "started_wall_unix_s": round(time.time(), 3),
            "wave": None,
            "waves": None,
            "ends_wall_unix_s": None,
            "news": None,
            "news_of": {},
        }

    def __call__(self, news: Progress) -> None:
        """Take the news into the file, then hand it on."""
        with self._lock:
            failed = self._keep(news)
        if failed:
            self._then(Progress(news.phase, f"status cannot follow this campaign: {failed}"))
        self._then(news)

    def _keep(self, news: Progress) -> str:
        if self._ended:
            return ""
        try:
            if news.phase is Phase.DONE:
                self._ended = True
                self._path.unlink(missing_ok=True)
            else:
                self._take(news)
                self._write()
        except OSError as error:
            self._ended = True
            return error.strerror or type(error).__name__
        return ""

    def _take(self, news: Progress) -> None:
        now = round(time.time(), 3)
        if news.wave is not None and news.waves is not None:
            if news.wave != self._state["wave"]:
                self._state["news_of"] = {}
            self._state |= {"wave": news.wave, "waves": news.waves}
        if news.eta_s is not None:
            self._state["ends_wall_unix_s"] = round(now + news.eta_s, 3)
        entry = {"phase": news.phase.value, "message": news.message, "wall_unix_s": now}
        if news.board is not None:
            self._state["news_of"][news.board] = entry
            return
        before = self._state["news"]
        since = before["since_wall_unix_s"] if before and before["phase"] == entry["phase"] else now
        self._state["news"] = {**entry, "since_wall_unix_s": since}
        self._window = dict.fromkeys(self._window, news.phase in WINDOW)

    def _write(self) -> None:
        document = {**self._state, "in_window": self._window, "updated_wall_unix_s": round(time.time(), 3)}
        partial = self._path.with_name(f".{NAME}.partial")
        partial.write_bytes(store.to_bytes(document))
        partial.replace(self._path)


def here() -> dict[str, Any]:
    """This process, so that another one can tell whether it still runs."""
    me = Process.here()
    return {"host": socket.gethostname(), "process": None if me is None else me.as_dict()}


def runs(controller: Mapping[str, Any]) -> bool | None:
    """Whether that controller still runs; None when it is on another machine, or this one cannot tell."""
    theirs, me = Process.of(controller.get("process")), Process.here()
    if controller.get("host") != socket.gethostname() or theirs is None or me is None:
        return None
    if theirs.boot_id != me.boot_id:
        return False  # the file lies on this machine, which has booted anew since
    if proof_of_death(controller):
        return False
    same = (theirs.pid_namespace, theirs.time_namespace) == (me.pid_namespace, me.time_namespace)
    return True if same else None


@dataclass(frozen=True)
class Said:
    """One piece of news as it stands in the file; `since_wall_unix_s`: since when it is this phase."""

    phase: str
    message: str
    wall_unix_s: float
    since_wall_unix_s: float


@dataclass(frozen=True)
class Running:
    """A campaign that has not closed. `alive` is None where that cannot be known from here."""

    folder: Path
    matrix: str
    owner: str
    host: str
    alive: bool | None
    boards: Mapping[str, str]
    wave: int | None
    waves: int | None
    ends_wall_unix_s: float | None
    updated_wall_unix_s: float
    news: Said | None
    news_of: Mapping[str, Said]
    in_window: Mapping[str, bool]

    @property
    def campaign(self) -> str:
        """The campaign's id."""
        return self.folder.name


def read(folder: Path) -> Running:
    """What `progress.json` of a campaign says. Raises InputError for a file that is none of ours."""
    path = folder / NAME
    value: dict[str, Any] = store.read_object(path)
    try:
        controller = value["controller"]
        return Running(
            folder=folder,
            matrix=str(value["matrix"]),
            owner=str(value["owner"]),
            host=str(controller["host"]),
            alive=runs(controller),
            boards={str(name): str(at) for name, at in value["boards"].items()},
            wave=value["wave"],
            waves=value["waves"],
            ends_wall_unix_s=value["ends_wall_unix_s"],
            updated_wall_unix_s=float(value["updated_wall_unix_s"]),
            news=_said(value["news"]) if value["news"] is not None else None,
            news_of={str(name): _said(entry) for name, entry in value["news_of"].items()},
            in_window={str(name): flag is True for name, flag in value["in_window"].items()},
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        what = f"is not the progress of a campaign ({type(error).__name__}: {error})"
        raise InputError(what, where=str(path)) from error


def _said(entry: Mapping[str, Any]) -> Said:
    at = float(entry["wall_unix_s"])
    return Said(str(entry["phase"]), str(entry["message"]), at, float(entry.get("since_wall_unix_s", at)))


def running(results_dir: Path) -> tuple[list[Running], list[InputError]]:
    """Every campaign below `results_dir` that has not closed, oldest first, and the files that could not be read."""
    found: list[Running] = []
    bad: list[InputError] = []
    for path in sorted(results_dir.glob(f"*/*/{NAME}"), key=lambda path: path.parent.name):
        try:
            found.append(read(path.parent))
        except InputError as error:
            if path.exists():  # else it closed just now
                bad.append(error)
    return found, bad
