"""The power of virtual boards: a socket by command, and a campaign that gets a dead board back with it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from boardbench.board import Door
from boardbench.matrix import campaign
from boardbench.matrix.power import recovery
from boardbench.matrix.progress import Phase, Progress
from boardbench.matrix.run_cell import Timings
from boardbench.virtual.fleet import Fleet

from .conftest import Bench

pytestmark = [pytest.mark.boards, pytest.mark.slow]

INVENTORY = """\
version: 1
virtual: {name: default, kind: bwrap, time_scale: 60}
boards:
  king:
    kind: nanopi-r76s
    capabilities: [cpufreq, npu]
    power: {driver: virtual, off_s: 0.2, boot_s: 60}
  queen:
    kind: nanopi-r76s
    capabilities: [cpufreq, npu]
    power: {driver: virtual, off_s: 0.2, boot_s: 60}
"""
MATRIX = """\
version: 1
name: recover
question: Does a board come back?
boards: {kinds: [nanopi-r76s], together: each}
workload: {name: burn, threads: all, interval_s: 30}
duration_s: 240
factors:
  cooling: {kind: phase, levels: [active]}
repeats: 2
attempts: 2
settings: {governor: performance}
metrics:
  - {name: steady, unit: operations/s, direction: higher-is-better}
"""


def socket(bench: Bench, board: str, word: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "boardbench.virtual.power", "default", board, word]
    return subprocess.run(argv, env=bench.environment, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture
def inventory(bench: Bench, tmp_path: Path) -> str:
    path = tmp_path / "powered.yml"
    path.write_text(INVENTORY)
    for words in (("virtual.up",), ("provision",)):
        done = bench.inv(*words, "-i", str(path))
        assert done.code == 0, done.err
    return str(path)


@pytest.mark.usefixtures("inventory")
def test_a_virtual_boards_socket_goes_off_and_on(bench: Bench) -> None:
    assert socket(bench, "king", "read").stdout == "on\n"
    assert socket(bench, "king", "off").returncode == 0
    assert socket(bench, "king", "read").stdout == "off\n"
    assert socket(bench, "queen", "read").stdout == "on\n"
    assert socket(bench, "king", "on").returncode == 0
    assert socket(bench, "king", "read").stdout == "on\n"
    assert socket(bench, "rook", "off").returncode == 2
    assert socket(bench, "king", "toggle").returncode == 2


@dataclass(frozen=True)
class Scene:
    """What a campaign here needs; `events` of its journal by name."""

    rig: Any
    fleet: Fleet
    folder: Path

    def run(self, on_progress: Callable[[Progress], None]) -> tuple[campaign.CampaignOutcome, list[dict[str, Any]]]:
        matrix = self.folder / "recover.yml"
        matrix.write_text(MATRIX)
        outcome = campaign.run(
            matrix,
            self.rig.inventory,
            self.rig.boards,
            results_dir=self.folder / "results",
            open_door=lambda board: Door.open(board, self.rig.inventory.known_hosts),
            on_progress=on_progress,
            timings=Timings(patience_s=2.0, retry_every_s=0.5),
        )
        return outcome, [json.loads(line) for line in (outcome.path / "journal.jsonl").read_text().splitlines()]


@pytest.fixture
def scene(bench: Bench, inventory: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setenv("XDG_STATE_HOME", str(bench.state))
    from tasks._boards import open_rig

    rig = open_rig(inventory, "")
    return Scene(rig, Fleet.open("default", bench.state / "boardbench" / "fleets"), tmp_path)


def cycled(events: list[dict[str, Any]]) -> list[tuple[str, bool]]:
    fields = [event["fields"] for event in events if event["event"] == "power-cycled"]
    return [(entry["board"], entry["ok"]) for entry in fields]


def test_a_board_that_dies_in_a_run_is_brought_back_for_the_next_one(scene: Scene) -> None:
    killed: list[str] = []

    def kill_once(progress: Progress) -> None:
        if progress.phase is Phase.MEASURE and not killed:
            killed.append("queen")
            scene.fleet.kill("queen")

    outcome, events = scene.run(kill_once)
    assert cycled(events) == [("queen", True)]
    assert not [event for event in events if event["event"] == "quarantined"]
    said = json.loads((outcome.path / "verdict.json").read_text())
    valid = {cell["cell"] for cell in said["cells"] if cell["state"] == "valid"}
    assert {"001-active-king", "003-active-king", "004-active-queen"} <= valid
    assert scene.fleet.status().boards["queen"].state == "up"


def test_a_board_that_is_down_when_a_campaign_begins_is_switched_on_and_measured(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovery, "LOOK_AGAIN_S", 1.0)
    scene.fleet.kill("queen")
    told: list[Progress] = []
    outcome, events = scene.run(told.append)
    assert (outcome.valid, outcome.missing) == (4, 0)
    assert cycled(events) == [("queen", True)]
    assert any(one.board == "queen" and "cutting the power" in one.message for one in told)
