"""Fleets of fake boards and a way to run a campaign on them."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from boardbench.matrix import campaign
from boardbench.matrix.run_cell import Timings

if "fake_boards" not in sys.modules:
    _spec = importlib.util.spec_from_file_location("fake_boards", Path(__file__).parent / "fake_boards.py")
    assert _spec is not None
    assert _spec.loader is not None
    sys.modules["fake_boards"] = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(sys.modules["fake_boards"])

from fake_boards import Fleet, write_project

QUICK = Timings(lead_s=0.0, trail_s=0.0, patience_s=0.1, retry_every_s=0.02)


@pytest.fixture
def fleet() -> Fleet:
    return Fleet("king", "queen")


@pytest.fixture
def bench(tmp_path: Path, fleet: Fleet) -> Callable[..., Any]:
    """Runs the small matrix on the fleet; keyword arguments go to `campaign.run`."""
    matrix, payloads = write_project(tmp_path)

    def run(**other: Any) -> campaign.CampaignOutcome:
        given: dict[str, Any] = {
            "results_dir": tmp_path / "results",
            "open_door": fleet.open,
            "payloads_dir": payloads,
            "timings": QUICK,
        }
        source = other.pop("matrix", matrix)
        return campaign.run(source, fleet.inventory, fleet.boards, **(given | other))

    return run
