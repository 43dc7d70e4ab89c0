"""Chained loads: asked for in seconds of the board, and labelled wherever their figures are."""

from __future__ import annotations

import pytest

from boardbench.workloads.base import Chain, Durations
from boardbench.workloads.burn import Burn
from boardbench.workloads.chains import label


def test_a_sustained_load_has_no_label_and_no_gaps() -> None:
    assert label({"threads": "all"}) == ""
    assert label({"mode": "sustained"}) == ""
    assert "--gap-s" not in Burn().argv("r", {}, Durations(60.0, 1.0))


def test_a_chained_load_says_so_and_why_it_matters() -> None:
    said = label({"mode": "chained", "chain": {"run_s": 60, "gap_s": 5}})
    assert said == "chained, not sustained: runs of 60 s with gaps of 5 s, since every gap resets the clocks"


@pytest.mark.parametrize("lead_s", [0.0, 0.5])
def test_the_command_line_holds_gaps_and_lead(lead_s: float) -> None:
    argv = Burn().argv("r", {"mode": "chained"}, Durations(60.0, 1.0, Chain(10.0, 2.5), lead_s))
    assert argv[argv.index("--run-s") + 1] == "10"
    assert argv[argv.index("--gap-s") + 1] == "2.5"
    assert ("--lead-s" in argv) is (lead_s > 0)
