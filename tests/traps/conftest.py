"""One scene a test; one fleet a session, only when a trap needs boards."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from boardbench import locations
from boardbench.board import Door
from boardbench.inventory import Inventory
from boardbench.playbook import apply, load
from boardbench.virtual import doctor
from boardbench.virtual.fleet import Fleet

from .scene import BOARDS, PROJECT, Scene, board_at

TIME_SCALE = 240.0
# The default place of tests' temporary folders, but on a real file system: page-cache tests and overlays need one.
REAL_TMP = Path("/var/tmp") if os.access("/var/tmp", os.W_OK) else None


@pytest.fixture(scope="session")
def start_fleet() -> Iterator[Callable[[], Fleet]]:
    """Gives the fleet: two bwrap boards with the payloads on them, started at the first call and ended at the end."""
    up: list[Fleet] = []
    with tempfile.TemporaryDirectory(prefix="boardbench-traps-", dir=REAL_TMP) as folder:

        def start() -> Fleet:
            if up:
                return up[0]
            obstacles = doctor.doctor(Path(folder))["bwrap"]
            if obstacles:
                pytest.skip(f"no bwrap boards on this machine: {'; '.join(str(found) for found in obstacles)}")
            fleet = Fleet.open("traps", Path(folder), locations.cache_dir())
            up.append(fleet)
            fleet.up(BOARDS, kind="bwrap", time_scale=TIME_SCALE)
            _provision(fleet)
            return fleet

        try:
            yield start
        finally:
            for fleet in up:
                fleet.down()


def _provision(fleet: Fleet) -> None:
    boards = {name: board_at(name, fleet.access()[name]) for name in BOARDS}
    inventory = Inventory(PROJECT / "inventory" / "traps.yml", boards, {}, fleet.known_hosts, None)
    playbook = load.load(PROJECT / "playbooks" / "provision.yml", inventory)
    outcome = apply.run(
        inventory, list(boards.values()), playbook, open_door=lambda board: Door.open(board, fleet.known_hosts)
    )
    assert outcome.exit_code == 0, outcome.as_json()


@pytest.fixture(scope="session")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A campaign on fake boards in which nothing is wrong."""
    return Scene(tmp_path_factory.mktemp("sound"), _no_fleet, Path()).fake_campaign(lambda _: None)


def _no_fleet() -> Fleet:
    raise AssertionError("no boards here")


@pytest.fixture
def scene(tmp_path: Path, start_fleet: Callable[[], Fleet], sound: Path) -> Iterator[Scene]:
    """Where a trap is set up. The boards that it used are put back, also when it failed."""
    made = Scene(tmp_path, start_fleet, sound)
    yield made
    made.leave()
