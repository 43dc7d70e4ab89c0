"""The virtual NPU node's model in its own time: what the shipped constants say of the rig's published figures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from boardbench.virtual.npu_fit import FITTED, figures
from boardbench.virtual.npu_model import Node, closed_loop

CONSTANTS = Path(__file__).parents[3] / "payloads/npu-node/npunode/virtual_constants.json"


@pytest.fixture(scope="module")
def constants() -> dict[str, float]:
    return {name: float(value) for name, value in json.loads(CONSTANTS.read_text()).items() if name != "origin"}


def test_the_shipped_constants_give_the_published_figures(constants: dict[str, float]) -> None:
    for figure in figures(constants, 60.0):
        allowed = 0.15 if "spread" in figure.name else 0.10
        assert figure.model == pytest.approx(figure.published, rel=allowed), figure.name


def test_equal_seeds_give_equal_runs(constants: dict[str, float]) -> None:
    one, again = (closed_loop(constants, [Node()], concurrency=4, connections=2, seconds=2.0) for _ in range(2))
    assert one == again


def test_a_closed_loop_obeys_littles_law(constants: dict[str, float]) -> None:
    found = closed_loop(constants, [Node()] * 2, concurrency=24, connections=2, seconds=20.0)
    mean_s = sum(found.latencies_ms) / len(found.latencies_ms) / 1000
    assert found.rate_per_s * mean_s == pytest.approx(24, rel=0.05)


def test_a_slow_board_sets_the_pace_of_all_under_round_robin(constants: dict[str, float]) -> None:
    even, uneven = (
        closed_loop(constants, [Node(share), Node(), Node()], concurrency=36, connections=2, seconds=20.0)
        for share in (1.0, 600 / 2208)
    )
    assert uneven.rate_per_s < 0.9 * even.rate_per_s
    assert max(uneven.node_rates_per_s) == pytest.approx(min(uneven.node_rates_per_s), rel=0.05)
    assert uneven.spread > 2 * even.spread


def test_what_is_fitted_is_there(constants: dict[str, float]) -> None:
    assert set(FITTED) <= set(constants)
