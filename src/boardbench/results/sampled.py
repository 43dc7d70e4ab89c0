"""The raw output of a campaign's valid runs, read once for all that compares runs with each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from boardbench.errors import InputError
from boardbench.workloads.base import Samples
from boardbench.workloads.registry import workload


@dataclass(frozen=True)
class Sampled:
    """A valid run: on which board, of which arm, and what its workload's output says."""

    board: str
    arm: str
    run: str
    samples: Samples


def read_all(campaign: Path, plan: Mapping[str, Any], runs: Sequence[Mapping[str, Any]]) -> list[Sampled]:
    """`runs`: their run.json objects. One whose output cannot be read is not valid, and says why itself."""
    arm_of = {cell["name"]: cell["arm"] for cell in plan["cells"]}
    found: list[Sampled] = []
    for run in runs:
        folder = campaign / "cells" / run["cell"] / f"attempt-{run['attempt']}" / "workload"
        try:
            samples = workload(str(run["workload"]["name"])).read(folder)
        except InputError:
            continue
        found.append(Sampled(run["boards"][0], arm_of[run["cell"]], run["run"], samples))
    return found
