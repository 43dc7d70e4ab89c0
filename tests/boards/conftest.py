"""Virtual fleets for every test below here: real sshd, one fleet of each kind for the whole session."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from boardbench.inventory import Board
from boardbench.virtual.fleet import Fleet

from . import rig


@pytest.fixture(scope="session")
def state_folder() -> Iterator[Path]:
    """Where the fleets of this test run live; removed at its end."""
    with tempfile.TemporaryDirectory(prefix="boardbench-tests-", dir=rig.REAL_TMP) as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def bwrap_fleet(state_folder: Path) -> Iterator[Fleet]:
    """Four bwrap boards: jetson, king, queen, jack."""
    yield from rig.fleet_of("bwrap", state_folder)


@pytest.fixture(scope="session")
def nspawn_fleet(state_folder: Path) -> Iterator[Fleet]:
    """Four nspawn boards: jetson, king, queen, jack."""
    yield from rig.fleet_of("nspawn", state_folder)


@pytest.fixture(scope="session", params=["bwrap", pytest.param("nspawn", marks=pytest.mark.nspawn)])
def fleet(request: pytest.FixtureRequest) -> Fleet:
    """The test runs on both kinds of fleet."""
    found = request.getfixturevalue(f"{request.param}_fleet")
    assert isinstance(found, Fleet)
    return found


@pytest.fixture(scope="session")
def board_of() -> Callable[[Fleet, str], Board]:
    """`board_of(fleet, name)`: the inventory's view of one virtual board."""
    return rig.board_of
