"""Between two loads a board is reached once: one login and one program serve all that is asked of it there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from boardbench.virtual.fleet import Fleet

from .lab import Lab
from .sshd_logs import SshdLogs, talkative_logs

pytestmark = [pytest.mark.boards, pytest.mark.slow]

NPU = ("king", "queen", "jack")
# Board seconds, on boards whose time runs 60 times faster. A fan that is switched, a level that is read back and a gate
# that looks at the board: all that a campaign can ask between two loads.
MATRIX = """\
version: 1
name: between
question: How often is a board reached between two loads?
boards: {kinds: [nanopi-r76s], together: each}
workload: {name: burn, threads: all, interval_s: 30}
duration_s: 90
repeats: %d
attempts: 1
order: blocked
settings: {governor: performance}
cool: {zone_types: [soc-thermal], below_celsius: 90, timeout_s: 60}
factors: {cooling: {kind: phase, levels: [active]}}
metrics: [{name: steady, unit: operations/s, direction: higher-is-better}]
gates: [strays, quiet, settings, cool, cooling, boot-id, load]
"""


@pytest.fixture(scope="module")
def lab(bwrap_fleet: Fleet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    made = Lab(bwrap_fleet, tmp_path_factory.mktemp("between"))
    done = made.inv("provision")
    assert done.code == 0, done.err
    yield made
    done = made.inv("teardown")
    assert done.code == 0, done.err


@pytest.fixture(scope="module")
def logs(lab: Lab) -> Iterator[SshdLogs]:
    yield from talkative_logs(lab)


def costs(lab: Lab, logs: SshdLogs, folder: Path, waves: int) -> dict[str, dict[str, int]]:
    """What a campaign of so many waves costs every board."""
    matrix = folder / f"between-{waves}.yml"
    matrix.write_text(MATRIX % waves)
    logs.mark()
    # Heartbeats depend on the time that it takes: none is due within this hold.
    process = lab.start(
        "bench", "--matrix", str(matrix), "--lease-ttl", "600", "--json", "-i", str(lab.inventory_file())
    )
    done = lab.finished(process, 240.0)
    assert done.code == 0, done.err
    assert done.document["valid"] == waves * len(NPU)
    found = logs.counts()
    return {name: found[name] for name in NPU}


def test_a_load_more_costs_one_login_and_one_exec_a_board(lab: Lab, logs: SshdLogs, tmp_path: Path) -> None:
    few, many = costs(lab, logs, tmp_path, 1), costs(lab, logs, tmp_path, 4)
    for name in NPU:
        more = {what: many[name][what] - few[name][what] for what in few[name]}
        assert more == {"connections": 3, "execs": 3}, f"{name}: 3 waves more cost {more}"
