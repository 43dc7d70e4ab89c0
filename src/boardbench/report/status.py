"""What a second terminal shows: per board who holds it, where its campaign stands, what it waits for, how hot it is.

Pure: from what campaigns wrote (`progress.json`, `plan.json`) and what boards answered to lines for people and JSON.
What is not known is said, never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from boardbench.errors import BenchError, InputError
from boardbench.inventory import Board
from boardbench.matrix.progress import Phase
from boardbench.matrix.progress_file import WINDOW, Running, Said, address
from boardbench.results import store

CHIP_TYPES = ("soc-thermal", "tj-thermal")
SLACK_S = 60.0
"""How much longer than planned a load may run, in wall seconds, before a dead controller's board counts as idle."""
STALE_S = 60.0
"""A campaign tells something at least every ten seconds; silence longer than this is said."""
_MEASURED = tuple(phase.value for phase in WINDOW)
_TOLD_CELSIUS = re.compile(r"-> (-?[0-9]+(?:\.[0-9]+)?) degC")


@dataclass(frozen=True)
class Followed:
    """A running campaign with what its plan says: the cells of each wave and board, and how long a load lasts."""

    running: Running
    cells: Mapping[tuple[int, str], Mapping[str, Any]]
    cell_count: int
    load_s: float | None

    def hands_off(self, now_s: float) -> str:
        """Why no byte may be sent to its boards now; empty when one may."""
        news = self.running.news
        phase = news.phase if news is not None else ""
        measured = any(self.running.in_window.values()) or phase in _MEASURED
        if self.running.alive is False:
            since = news.since_wall_unix_s if news is not None else now_s
            if measured and (self.load_s is None or now_s < since + self.load_s + SLACK_S):
                return "the controller is gone, but the load may still run"
            return ""
        if measured:
            return "in its measured window"
        return "about to be measured" if phase == Phase.PREPARE.value else ""


def follow(running: Running) -> Followed:
    """The campaign with its plan. Raises InputError when plan.json cannot be read."""
    plan: dict[str, Any] = store.read_object(running.folder / "plan.json")
    try:
        cells = {(int(cell["wave"]), str(board)): cell for cell in plan["cells"] for board in cell["boards"]}
        return Followed(running, cells, len(plan["cells"]), float(plan["wall_time"]["duration_s"]))
    except (KeyError, TypeError, ValueError) as error:
        what = f"is not the plan of a campaign ({type(error).__name__}: {error})"
        raise InputError(what, where=str(running.folder / "plan.json")) from error


def followed_by(board: Board, campaigns: Sequence[Followed]) -> Followed | None:
    """The campaign that this board is in: by name or by address, one that runs before one whose controller is gone."""
    mine = [
        one
        for one in campaigns
        if board.name in one.running.boards or address(board.access) in one.running.boards.values()
    ]
    return max(mine, key=lambda one: (one.running.alive is not False, one.running.campaign), default=None)


@dataclass(frozen=True)
class Answer:
    """What a board said to `status`, or the error; when (controller's wall clock)."""

    value: Mapping[str, Any] | BenchError
    asked_wall_unix_s: float

    @property
    def busy(self) -> bool:
        """Whether somebody holds the board, or a load runs on it, as far as it said."""
        if isinstance(self.value, BenchError):
            return False
        return bool(self.value["lease"]["held"]) or any(run.get("load_runs") is True for run in self.value["runs"])


@dataclass
class BoardStatus:
    """One board's line. Readings are a number or `{"missing": why}`."""

    board: str
    campaign: str | None = None
    controller: str | None = None
    phase: str | None = None
    waits_for: str = ""
    cell: str | None = None
    cell_number: int | None = None
    cells: int | None = None
    wave: int | None = None
    waves: int | None = None
    in_window: bool | None = None
    eta_s: float | None = None
    celsius: object = field(default_factory=lambda: missing("not asked"))
    cpu_mhz: object = field(default_factory=lambda: missing("not asked"))
    npu_mhz: object = field(default_factory=lambda: missing("not asked"))
    lease: Mapping[str, object] = field(default_factory=lambda: missing("not asked"))
    asked: str = ""
    error: str | None = None
    notes: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, object]:
        """The line with its keys as they are here."""
        return {name: list(value) if name == "notes" else value for name, value in vars(self).items()}


def missing(why: str) -> dict[str, object]:
    """A value that is not known."""
    return {"missing": why}


def board_status(board: Board, campaign: Followed | None, answer: Answer | None, now_s: float) -> BoardStatus:
    """All that is known of a board now."""
    line = BoardStatus(board.name)
    why_not = campaign.hands_off(now_s) if campaign is not None else ""
    if campaign is not None:
        _from_campaign(line, campaign, now_s)
    if answer is None:
        line.asked = f"not asked: {why_not}" if why_not else "not asked yet"
    elif isinstance(answer.value, BenchError):
        line.error = str(answer.value)
    else:
        age_s = max(0.0, now_s - answer.asked_wall_unix_s)
        _from_board(line, answer.value, campaign, age_s)
        line.asked = f"asked {age_s:.0f} s ago" if age_s >= 2 else "asked now"
    if answer is None and why_not:
        for name in ("cpu_mhz", "npu_mhz"):
            setattr(line, name, missing(line.asked))
        if isinstance(line.celsius, Mapping):
            line.celsius = missing(line.asked)
    return line


def _from_campaign(line: BoardStatus, campaign: Followed, now_s: float) -> None:
    running = campaign.running
    line.campaign, line.wave, line.waves = running.campaign, running.wave, running.waves
    line.controller = f"{running.owner}@{running.host}"
    line.in_window = running.in_window.get(line.board, any(running.in_window.values()))
    if running.alive is not False and running.ends_wall_unix_s is not None:
        line.eta_s = max(0.0, running.ends_wall_unix_s - now_s)
    said = _last_said(running, line.board)
    if said is not None:
        line.phase, line.waits_for = said.phase, said.message
        told = _TOLD_CELSIUS.search(said.message)
        line.celsius = float(told[1]) if told else line.celsius
    cell = campaign.cells.get((running.wave or 0, line.board))
    line.cells = campaign.cell_count
    if cell is not None:
        line.cell, line.cell_number = str(cell["name"]), int(cell["number"])
    line.lease = {"owner": running.owner, "host": running.host, "campaign": running.campaign,
                  "left_s": missing("not asked")}  # fmt: skip
    silent_s = now_s - running.updated_wall_unix_s
    if running.alive is False:
        line.notes.append("its controller is gone: the campaign does not go on by itself")
    elif silent_s > STALE_S:
        line.notes.append(f"no news of the campaign for {silent_s:.0f} s")
    elif running.alive is None:
        line.notes.append(f"the campaign runs on {running.host}; whether its controller lives is not known here")


def _last_said(running: Running, board: str) -> Said | None:
    """What counts for this board: its own news when it is newer than the wave's, or when it dropped out."""
    own, all_ = running.news_of.get(board), running.news
    if own is None or all_ is None:
        return own or all_
    return own if own.phase == Phase.LOST.value or own.wall_unix_s >= all_.wall_unix_s else all_


def _from_board(line: BoardStatus, value: Mapping[str, Any], campaign: Followed | None, age_s: float) -> None:
    line.celsius = _chip_celsius(value["thermal"])
    line.cpu_mhz = [_mega(policy["cur_khz"], 1e3) for policy in value["cpu_policies"]] or missing("no cpufreq")
    npus = [_mega(device["cur_hz"], 1e6) for device in value["devfreq"] if device["kind"] in ("npu", "gpu")]
    line.npu_mhz = npus[0] if npus else missing("no NPU or GPU clock")
    held = value["lease"]
    if held["held"]:
        left_s = max(0.0, held["left_s"] - age_s)
        line.lease = {**{key: held[key] for key in ("owner", "host", "campaign")}, "left_s": left_s}
    else:
        line.lease = {"free": held["note"]}
    runs = [run for run in value["runs"] if "missing" not in run]
    line.notes += [f"run {run['run']}: {run['missing']}" for run in value["runs"] if "missing" in run]
    if campaign is None:
        _from_foreign(line, held, runs)
    elif held["held"] and held["campaign"] != campaign.running.campaign:
        line.notes.append(f"the board is held for another campaign: {held['campaign']}")
    own = f"campaign-{campaign.running.campaign}" if campaign is not None else f"campaign-{held.get('campaign')}"
    left = [scope for scope in value["scopes"] if scope.startswith("campaign-") and scope != own]
    if left:
        line.notes.append(f"a campaign that ended left changes that are not put back: {', '.join(left)}")


def _from_foreign(line: BoardStatus, held: Mapping[str, Any], runs: Sequence[Mapping[str, Any]]) -> None:
    """A campaign whose progress is not in our results: what lease and run states tell, and no more."""
    measured = [run for run in runs if run["load_runs"]]
    line.in_window = bool(measured)
    if held["held"]:
        line.campaign, line.controller = held["campaign"], f"{held['owner']}@{held['host']}"
        line.notes.append("its progress is not in these results: cell, waves and ETA are not known here")
        line.phase = "held"
    elif not runs:
        line.phase = "free"
    if measured:
        line.phase, line.waits_for = "measure", f"load of run {measured[0]['run']} runs"
    elif runs:
        line.phase = line.phase or "left over"
        line.waits_for = "staged: " + ", ".join(f"{run['run']} ({run['phase']})" for run in runs)


def _chip_celsius(zones: Sequence[Mapping[str, Any]]) -> object:
    for kind in CHIP_TYPES:
        found = [zone["celsius"] for zone in zones if zone["type"] == kind]
        values = [value for value in found if not isinstance(value, Mapping)]
        if found:
            return max(values) if values else found[0]
    return missing("no SoC temperature on this board")


def _mega(reading: object, unit: float) -> object:
    return round(reading / unit) if isinstance(reading, int | float) else reading


def may_ask(campaign: Followed | None, last: Answer | None, now_s: float, *, every_s: float, busy_s: float) -> bool:
    """Whether to ask a board now: not while its campaign measures, and not too often.

    `busy_s`: how long to leave alone a board that is held for, or loaded by, a campaign that is not known here.
    """
    if campaign is not None and campaign.hands_off(now_s):
        return False
    if last is None:
        return True
    pause_s = busy_s if campaign is None and last.busy else every_s
    return now_s - last.asked_wall_unix_s >= pause_s


def load_campaigns(found: Sequence[Running]) -> tuple[list[Followed], list[InputError]]:
    """The plans of running campaigns; those that cannot be read are given with their error."""
    followed: list[Followed] = []
    bad: list[InputError] = []
    for running in found:
        try:
            followed.append(follow(running))
        except InputError as error:
            # Without its plan nobody knows its cells, but its boards must still be left alone.
            followed.append(Followed(running, {}, 0, None))
            bad.append(error)
    return followed, bad
