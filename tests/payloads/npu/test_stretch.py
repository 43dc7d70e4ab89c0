"""A stretched world: all takes so many times as long, and what the programs take here is not counted twice."""

from __future__ import annotations

import sys

import pytest

from .cluster import PAYLOADS

sys.path.insert(0, str(PAYLOADS / "npu-run"))

from npunode.backends.virtual import load_constants
from npurun.virtual_board import PROGRAMS_MS, RIG_PROGRAMS_MS, stretched


@pytest.mark.parametrize("factor", [1.0, 2.0, 4.0])
def test_times_grow_rates_fall_and_the_programs_time_is_the_rigs(factor: float) -> None:
    constants = load_constants()
    found = stretched(constants, factor)
    for name, value in constants.items():
        if name == "delay_ms":
            continue
        grows = factor if name.endswith("_ms") else 1 / factor if name.endswith("_per_s") else 1.0
        assert found[name] == pytest.approx(value * grows), name
    on_the_way = found["delay_ms"] + PROGRAMS_MS
    assert on_the_way == pytest.approx(factor * (constants["delay_ms"] + RIG_PROGRAMS_MS))
