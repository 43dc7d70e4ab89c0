"""The guard that a run takes to its board ends a load that gets too hot, with nobody connected, and cools first."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from boardbench.board import Door
from boardbench.errors import RigError
from boardbench.virtual.fleet import Fleet

from .rig import board_of

pytestmark = pytest.mark.boards

SCOPE = "campaign-guard"
FAN = "/run/boardbench-virtual/fan"
ON = {"id": "fan on", "resource": "sysfs", "args": {"path": FAN, "value": "1"}, "line": "t:1"}
OFF = {"id": "fan off", "resource": "sysfs", "args": {"path": FAN, "value": "0"}, "line": "t:1"}
# Any board is warmer than this: it stands for a limit that a load has passed.
GUARD = {"zone_types": ["soc-thermal"], "above_celsius": 5.0, "period_s": 0.1, "fan": [ON]}


class Visit:
    """Each call by a connection of its own: between two of them nobody is there."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet

    def call(self, verb: str, **args: Any) -> dict[str, Any]:
        with Door.open(board_of(self.fleet, "queen"), self.fleet.known_hosts) as door:
            return door.call(verb, args, deadline_s=60.0)

    def fan(self) -> str:
        return Path(self.fleet.folder / "ctl" / "queen" / "fan").read_text().strip()

    def prepare(self, run: str) -> None:
        args = {"strays": None, "cool": None, "cache_files": None, "logger": None, "settings": [OFF]}
        assert self.call("prepare", run=run, campaign="guard", scope=SCOPE, **args)["ready"]

    def start(self, run: str, guard: dict[str, Any]) -> None:
        args = {"exec": ["/bin/sleep", "100"], "env": {}, "cwd": "/", "limits": {}, "deadline_s": 90.0}
        self.call("start", run=run, guard=guard, **args)


@pytest.fixture
def visit(fleet: Fleet) -> Iterator[Visit]:
    made = Visit(fleet)
    yield made
    for run in ("guard-1", "guard-2"):
        if any(entry["run"] == run for entry in made.call("staged")["runs"]):
            made.call("finish", run=run)
            made.call("forget", run=run)
    made.call("restore", scope=SCOPE)
    assert made.fan() == "1"


def gate(finished: dict[str, Any], name: str) -> dict[str, Any]:
    (found,) = [entry for entry in finished["evidence"] if entry["gate"] == name]
    return dict(found)


def test_the_board_puts_its_fan_back_and_ends_the_load_while_nobody_is_connected(visit: Visit) -> None:
    visit.prepare("guard-1")
    assert visit.fan() == "0"
    visit.start("guard-1", GUARD)
    until = time.monotonic() + 20
    while visit.fan() == "0" and time.monotonic() < until:
        time.sleep(0.05)
    assert visit.fan() == "1"
    assert visit.call("watch", run="guard-1")["exit"] == {"signal": 15}
    finished = visit.call("finish", run="guard-1")
    told = gate(finished, "guard")
    assert not told["ok"]
    assert "it ended the load: soc-thermal was at" in told["why"]
    assert [action["ok"] for action in told["saw"]["tripped"]["fan"]] == [True]
    assert gate(finished, "load")["saw"]["ended_by"] == "guard"


def test_a_load_below_the_limit_runs_on_and_a_board_without_the_zone_does_not_start(visit: Visit) -> None:
    visit.prepare("guard-2")
    with pytest.raises(RigError, match="has no zone tj-thermal to guard"):
        visit.start("guard-2", {**GUARD, "zone_types": ["tj-thermal"]})
    visit.start("guard-2", {**GUARD, "above_celsius": 140.0})
    time.sleep(0.5)
    told = gate(visit.call("finish", run="guard-2"), "guard")
    assert told["ok"]
    assert told["saw"]["looks"] > 1
    assert told["saw"]["highest_celsius"] > 5.0
    assert visit.fan() == "0"
