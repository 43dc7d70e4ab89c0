"""Boards are held by one campaign: a second one is refused before it changes anything, and told by whom."""

from __future__ import annotations

import getpass
import json
import re
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from boardbench.virtual.fleet import Fleet

from .lab import Lab, until
from .rig import BOARDS, ssh

pytestmark = pytest.mark.boards

# Board seconds, on boards whose time runs 60 times faster.
MATRIX = """\
version: 1
name: held
question: Who holds the boards?
boards: {kinds: [nanopi-r76s], together: each}
workload: {name: burn, threads: all, interval_s: 30}
duration_s: %d
attempts: 2
factors: {cooling: {kind: phase, levels: [active]}}
metrics: [{name: steady, unit: operations/s, direction: higher-is-better}]
gates: [strays, settings, boot-id, load]
"""
NPU = ("king", "queen", "jack")


@pytest.fixture(scope="module")
def provisioned(bwrap_fleet: Fleet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Boards with the payloads that the matrix needs, put back at the end."""
    made = Lab(bwrap_fleet, tmp_path_factory.mktemp("lab"))
    assert made.inv("provision").code == 0
    yield
    made.clean()


@pytest.fixture
def lab(bwrap_fleet: Fleet, tmp_path: Path, provisioned: None) -> Iterator[Lab]:  # noqa: ARG001
    made = Lab(bwrap_fleet, tmp_path)
    yield made
    made.bring_up()


def bench(lab: Lab, *more: str, duration_s: int = 90) -> list[str]:
    path = lab.folder / f"held-{duration_s}.yml"
    path.write_text(MATRIX % duration_s)
    return ["bench", "--matrix", str(path), "-i", str(lab.inventory_file()), "--json", *more]


def lease(lab: Lab, board: str) -> dict[str, Any]:
    with lab.door(board) as door:
        return door.call("lease", {"action": "show"}, deadline_s=20.0)


def state(lab: Lab, board: str) -> str:
    """What a campaign would change, and what it would leave behind."""
    look = "ls /var/lib/boardbench/journal /var/lib/boardbench/runs 2>/dev/null; cat /proc/sys/vm/swappiness"
    return ssh(lab.fleet, board, "sudo", "-n", "sh", "-c", f'"{look}"').out


def test_a_second_campaign_is_refused_and_names_who_holds_the_boards(lab: Lab) -> None:
    first = lab.start(*bench(lab, duration_s=180))
    try:
        assert until(lambda: first.poll() is not None or all(lease(lab, board)["held"] for board in NPU), 20), (
            "the first campaign took no lease"
        )
        assert first.poll() is None, lab.finished(first)
        held = {board: lease(lab, board)["lease"] for board in NPU}
        campaigns = {entry["campaign"] for entry in held.values()}
        assert len(campaigns) == 1
        # It stands still meanwhile, so that it is not over before the second one has asked, however slow that is.
        first.send_signal(signal.SIGSTOP)
        try:
            second = lab.run(*bench(lab, "--limit", "queen,jack"))
        finally:
            first.send_signal(signal.SIGCONT)
        assert first.poll() is None, "the first campaign was over too early to tell anything"
        assert second.code == 3, second.out
        lines = [line for line in second.err.splitlines() if line.startswith("inv: ")]
        assert len(lines) == 1, second.err
        who = f"{getpass.getuser()}@{socket.gethostname()} \\(campaign {campaigns.pop()}\\)"
        assert re.match(rf"inv: (queen|jack): .*held by {who}, \d+ s left; wait for it; .*--steal --why", lines[0]), (
            lines[0]
        )
        assert json.loads(second.out.splitlines()[-1])["error"]["fault"] == "rig"
        assert {board: lease(lab, board)["lease"]["campaign"] for board in NPU} == {
            board: entry["campaign"] for board, entry in held.items()
        }
        done = lab.finished(first)
    finally:
        if first.poll() is None:
            first.kill()
            first.wait()
    # The refusal did not disturb it.
    assert done.code == 0, done.err
    assert (done.document["valid"], done.document["missing"]) == (3, 0)
    assert not any(lease(lab, board)["held"] for board in BOARDS)


def test_a_board_held_by_somebody_else_gives_all_boards_back_and_changes_nothing(lab: Lab) -> None:
    ada = {"owner": "ada", "host": "desk", "campaign": "c1", "ttl_s": 60.0}
    before = {board: state(lab, board) for board in NPU}
    with lab.door("queen") as door:
        door.call("lease", {"action": "take", **ada}, deadline_s=20.0)
        refused = lab.run(*bench(lab))
        assert refused.code == 3, refused.out
        assert re.search(r"inv: queen: .*held by ada@desk \(campaign c1\), \d+ s left; wait for it", refused.err), (
            refused.err
        )
        assert [lease(lab, board)["held"] for board in NPU] == [False, True, False]
        assert {board: state(lab, board) for board in NPU} == before
        door.call("lease", {"action": "release", **ada}, deadline_s=20.0)


def test_a_campaign_with_one_board_down_measures_the_others_and_exits_with_1(lab: Lab) -> None:
    lab.fleet.kill("queen")
    done = lab.run(*bench(lab))
    assert done.code == 1, done.err
    verdict = (Path(done.document["campaign"]) / "verdict.json").read_text()
    assert (done.document["valid"], done.document["invalid"], done.document["missing"]) == (2, 0, 1), verdict
    assert "refuses the connection" in verdict
