"""A golden campaign, made by the real run loop on fake boards."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path

import pytest

from boardbench.matrix import campaign
from boardbench.matrix.run_cell import Timings

if "fake_boards" not in sys.modules:
    _path = Path(__file__).parents[1] / "matrix" / "fake_boards.py"
    _spec = importlib.util.spec_from_file_location("fake_boards", _path)
    assert _spec is not None
    assert _spec.loader is not None
    sys.modules["fake_boards"] = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(sys.modules["fake_boards"])

from fake_boards import Fleet, write_project


@pytest.fixture(scope="session")
def golden_source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("golden")
    fleet = Fleet("king", "queen")
    matrix, payloads = write_project(folder)
    outcome = campaign.run(
        matrix,
        fleet.inventory,
        fleet.boards,
        results_dir=folder / "results",
        open_door=fleet.open,
        payloads_dir=payloads,
        timings=Timings(),
    )
    assert outcome.good
    return outcome.path


@pytest.fixture
def golden(golden_source: Path, tmp_path: Path) -> Path:
    """A campaign without a fault, as `<results>/small/<id>`; the test may break it."""
    target = tmp_path / "results" / "small" / golden_source.name
    shutil.copytree(golden_source, target)
    return target
