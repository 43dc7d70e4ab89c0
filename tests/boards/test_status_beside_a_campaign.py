"""`inv status` in a second terminal: it follows a running campaign, and no byte of it reaches a measured board."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from boardbench import locations
from boardbench.virtual.fleet import Fleet

from ..command_line import PROJECT
from . import rig

pytestmark = pytest.mark.boards

BOARDS = {"king": "nanopi-r76s", "queen": "nanopi-r76s"}
TIME_SCALE = 240.0
WINDOW_S = 8.0
MARGIN_S = 0.25
"""When a line is seen in a log and when the load's start is journaled differ by this at most on an idle machine."""


@dataclass
class Contacts:
    """When anybody came to a board's sshd, from its own log, by the controller's clock."""

    fleet: Fleet
    seen: dict[str, list[tuple[float, str]]] = field(default_factory=lambda: {name: [] for name in BOARDS})
    ended: threading.Event = field(default_factory=threading.Event)

    def watch(self) -> None:
        logs = {name: self.fleet.folder / "boards" / name / "board.log" for name in BOARDS}
        sizes = {name: path.stat().st_size for name, path in logs.items()}
        while not self.ended.wait(0.02):
            for name, path in logs.items():
                size = path.stat().st_size
                if size > sizes[name]:
                    with path.open("rb") as log:
                        log.seek(sizes[name])
                        self.seen[name].append((time.time(), log.read(size - sizes[name]).decode(errors="replace")))
                    sizes[name] = size

    def between(self, board: str, begin_s: float, end_s: float) -> list[tuple[float, str]]:
        return [(at, text) for at, text in self.seen[board] if begin_s <= at <= end_s]


@dataclass
class Lab:
    """A fast fleet, an inventory file for it, and `inv`."""

    fleet: Fleet
    folder: Path
    state: Path

    def argv(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "tasks", *words, "-i", str(self.folder / "lab.yml")]

    @property
    def environment(self) -> dict[str, str]:
        own = {"XDG_STATE_HOME": str(self.state), "BOARDBENCH_RESULTS": str(self.folder / "results")}
        return {**os.environ, **own, "LC_ALL": "C.UTF-8"}

    def inv(self, *words: str) -> tuple[int, str]:
        done = subprocess.run(
            self.argv(*words), cwd=PROJECT, env=self.environment, stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=180,
        )  # fmt: skip
        assert "Traceback" not in done.stderr, done.stderr
        return done.returncode, done.stdout or done.stderr

    def status(self, *words: str) -> dict[str, Any]:
        _, out = self.inv("status", "--json", *words)
        document: dict[str, Any] = json.loads(out.strip().splitlines()[-1])
        return document

    def write_files(self) -> Path:
        lines = [
            "version: 1",
            f"virtual: {{name: {self.fleet.name}, kind: bwrap, time_scale: {TIME_SCALE:g}}}",
            "boards:",
        ]
        for name, kind in BOARDS.items():
            lines += [f"  {name}:", f"    kind: {kind}", "    cooling: {driver: virtual}"]
        (self.folder / "lab.yml").write_text("\n".join(lines) + "\n")
        matrix = (PROJECT / "playbooks/matrices/thermal.yml").read_text()
        matrix = re.sub(r"(?m)^duration_s: \d+", f"duration_s: {int(WINDOW_S * TIME_SCALE)}", matrix)
        path = self.folder / "thermal.yml"
        path.write_text(matrix)
        return path


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, state_folder: Path) -> Iterator[Lab]:
    rig.needs("bwrap")
    folder = tmp_path_factory.mktemp("status")
    # Overlays need a real file system, which the place of temporary files may not be.
    state = state_folder / "status-state"
    fleet = Fleet.open("status", state / "boardbench" / "fleets", locations.cache_dir())
    made = Lab(fleet, folder, state)
    made.write_files()
    try:
        code, out = made.inv("provision")
        assert code == 0, out
        yield made
    finally:
        fleet.down()


def windows(campaign: Path) -> list[tuple[str, float, float]]:
    """(board, begin, end) of every load by the campaign's own journal and records, in wall seconds."""
    records = {}
    for path in campaign.glob("cells/*/attempt-*/run.json"):
        run = json.loads(path.read_text())
        records[run["run"]] = run
    found = []
    for line in (campaign / "journal.jsonl").read_text().splitlines():
        note = json.loads(line)
        run = records.get(note["fields"].get("run")) if note["event"] == "started" else None
        if run is not None:
            length_s = run["load_window_monotonic_s"][1] - run["started"]["board"]["monotonic_s"]
            found.append((run["boards"][0], note["wall_unix_s"], note["wall_unix_s"] + length_s))
    return found


def test_boards_are_shown_when_nothing_runs(lab: Lab) -> None:
    document = lab.status()
    for name in BOARDS:
        line = document["boards"][name]
        assert (line["phase"], line["in_window"], line["error"]) == ("free", False, None)
        assert 20 < line["celsius"] < 90
        assert all(mhz > 100 for mhz in line["cpu_mhz"])
        assert "free" in line["lease"]
    code, table = lab.inv("status")
    assert code == 0
    assert all(name in table for name in BOARDS)


def test_a_running_campaign_is_followed_and_its_measured_boards_are_left_alone(lab: Lab) -> None:
    contacts = Contacts(lab.fleet)
    watcher = threading.Thread(target=contacts.watch)
    watcher.start()
    seen: list[dict[str, Any]] = []
    asked_s: tuple[float, float] | None = None
    bench = subprocess.Popen(
        lab.argv("bench", "--matrix", str(lab.folder / "thermal.yml"), "--json"), cwd=PROJECT, env=lab.environment,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        while bench.poll() is None:
            document = lab.status()
            seen.append(document)
            line = document["boards"]["king"]
            if line["wave"] == 2 and line["phase"] == "measure" and asked_s is None:
                begin_s = time.time()
                assert lab.status("--ask", "--limit", "king")["boards"]["king"]["asked"] == "asked now"
                asked_s = (begin_s, time.time())
        out, err = bench.communicate(timeout=30)
    finally:
        if bench.poll() is None:
            bench.send_signal(signal.SIGINT)
            bench.wait(60)
        contacts.ended.set()
        watcher.join()
    assert "Traceback" not in err, err
    campaign = Path(json.loads(out.strip().splitlines()[-1])["campaign"])
    measured = windows(campaign)
    assert len(measured) >= 4, err
    # The proof can fail: what was asked for with --ask was seen.
    assert asked_s is not None
    assert contacts.between("king", *asked_s)
    # Beside that nobody came to a measured board: neither we nor the campaign.
    for board, begin_s, end_s in measured:
        in_it = contacts.between(board, begin_s + MARGIN_S, end_s - MARGIN_S)
        assert [one for one in in_it if board != "king" or not asked_s[0] <= one[0] <= asked_s[1]] == [], board
    lines = [document["boards"][name] for document in seen for name in BOARDS]
    quiet = [line for line in lines if line["in_window"]]
    assert quiet
    assert all(line["asked"] == "not asked: in its measured window" for line in quiet)
    assert all(line["celsius"] == {"missing": line["asked"]} for line in quiet)
    assert {line["wave"] for line in quiet} == {1, 2}
    assert all(line["cell_number"] in (1, 2, 3, 4) and line["cells"] == 4 for line in quiet)
    assert all(line["eta_s"] is not None and line["eta_s"] > 0 for line in quiet)
    assert any(line["asked"] == "asked now" for line in lines)
    assert not list((lab.folder / "results").rglob("progress.json"))
    after = lab.status()["boards"]["king"]
    assert (after["campaign"], after["phase"]) == (None, "free")


def test_a_board_held_from_elsewhere_is_told_by_its_lease(lab: Lab) -> None:
    from boardbench.board import Door

    king = rig.board_of(lab.fleet, "king")
    who: dict[str, object] = {
        "owner": "bob",
        "host": "elsewhere",
        "campaign": "20260202T000000Z-89abcdef",
        "ttl_s": 60.0,
    }
    with Door.open(king, lab.fleet.known_hosts) as door:
        door.call("lease", {"action": "take", **who}, deadline_s=20.0)
        try:
            line = lab.status()["boards"]["king"]
        finally:
            door.call("lease", {"action": "release", **who}, deadline_s=20.0)
    assert line["controller"] == "bob@elsewhere"
    assert 0 < line["lease"]["left_s"] <= 60
    assert line["cell_number"] is None
    assert any("not known here" in note for note in line["notes"])
