"""Chained runs are said wherever their figures are: they are not a sustained load."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def label(options: Mapping[str, Any]) -> str:
    """The label of a chained load, from the workload's options as the plan holds them; empty for a sustained one."""
    chain = options.get("chain")
    if options.get("mode") != "chained" or not isinstance(chain, Mapping):
        return ""
    return (
        f"chained, not sustained: runs of {chain['run_s']:g} s with gaps of {chain['gap_s']:g} s, "
        "since every gap resets the clocks"
    )
