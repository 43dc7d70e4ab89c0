"""The NPU cluster on virtual boards, from nothing to nothing: provisioned, measured, reported, and gone again."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from boardbench.builds import wheels
from boardbench.errors import RigError
from boardbench.payload import load_payload
from boardbench.virtual import processes
from boardbench.virtual.fleet import Fleet

from ..command_line import Done
from ..conftest import CACHE, PROJECT
from .conftest import Bench, own_bench
from .kill_rig import ssh

pytestmark = [pytest.mark.boards, pytest.mark.slow]
BOARDS = ("jetson", "king", "queen", "jack")
PAYLOADS = "/opt/boardbench/payloads"
# Seconds of load at a quarter of the boards' speed; the gates are those that a busy host cannot break.
MATRIX = """\
version: 1
name: small-cluster
question: Do one and three nodes answer?
boards:
  kinds: [nanopi-r76s]
  together: cluster
  load: {kinds: [jetson-orin-nano]}
workload:
  {name: npu-load, concurrency_per_node: 6, node_connections: 1, policy: round-robin, stretch: 4, interval_s: 60}
duration_s: 60
min_wall_s: 7
factors:
  nodes: {kind: workload, levels: [1, 3]}
attempts: 2
settings: {governor: performance}
logger: {payload: thermal-logger, period_s: 24, max_gap_periods: 50}
metrics:
  - {name: mean-rate, unit: inferences/s, direction: higher-is-better}
  - {name: errors, unit: count, direction: lower-is-better}
baseline: {arm: nodes1, is: one node at six requests under way}
rules:
  - {name: no-errors, metric: errors, arms: [nodes3], compare: value, op: "<", threshold: 1,
     minimum_effect: {absolute: 0}, aggregate: max}
domain: a load of seconds on a virtual cluster
gates: [identity, strays, leftovers, settings, logger, load-runs, boot-id, load, counts, answers]
"""
# Units, all that a board holds by path, mode, owner, kind, size and link, and what its kernel was told. The bwrap
# boards' systemctl makes a folder in /tmp, so it goes first; the fleet's daemon writes in /run/boardbench-virtual.
LISTING = """\
sudo -n systemctl list-unit-files --no-legend --no-pager
sudo -n find /etc /opt /srv /home /root /usr/local /var /run /tmp -xdev -not -path '/run/boardbench-virtual/*' \
    -printf '%p %m %u %g %y %s %l\\n' | sort
cat /proc/sys/vm/swappiness /sys/devices/system/cpu/cpufreq/policy*/scaling_governor /etc/passwd
"""
WHICH_PYTHON = "import platform; print(platform.python_version(), platform.machine())"


@dataclass(frozen=True)
class Story:
    """What was said on the way, and what each board was before it and after it."""

    first: Done
    second: Done
    pushed: Mapping[str, list[str]]
    campaign: Done
    report: Done
    tables: Done
    torn: Done
    before: Mapping[str, str]
    after: Mapping[str, str]
    more_processes: Mapping[str, list[str]]

    def cells(self) -> list[dict[str, Any]]:
        """Every attempt's run.json with its folder."""
        found = sorted(Path(self.campaign.document["campaign"]).glob("cells/*/attempt-*/run.json"))
        return [json.loads(path.read_text()) | {"folder": path.parent} for path in found]


def command_lines(pid: int) -> set[str]:
    """What runs below this process of the host, by command line."""
    found = set()
    for mark in processes.descendants(pid):
        try:
            words = Path(f"/proc/{mark.pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        found.add(" ".join(words).strip())
    return found - {""}


def more_than(before: set[str], pid: int, timeout_s: float = 10.0) -> list[str]:
    """What runs beyond `before`, after the last login's end was waited for."""
    end = time.monotonic() + timeout_s
    while (more := command_lines(pid) - before) and time.monotonic() < end:
        time.sleep(0.1)
    return sorted(more)


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    """A fleet whose boards can have the cluster's libraries."""
    with own_bench() as made:
        up = made.inv("virtual.up", "--kind", "bwrap", "--time-scale", "60")
        assert up.code == 0, up.err
        # By ssh: `inv boards` would leave the board's side there, and the board is to be seen as it is found.
        fleet = Fleet.open("default", made.state / "boardbench" / "fleets")
        python, arch = ssh(fleet, "king", f"python3 -c '{WHICH_PYTHON}'").split()
        wanted = load_payload(PROJECT / "payloads/npu-wheels").python
        try:
            wheels.ensure(wanted, wheels.interpreter_of({"python": python, "arch": arch}, "king"), CACHE)
        except RigError as error:
            pytest.skip(f"the cluster's libraries are not in the cache and cannot be fetched: {error}")
        yield made


@pytest.fixture(scope="module")
def story(bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> Story:
    """The whole way, once."""
    matrix = tmp_path_factory.mktemp("matrix") / "small-cluster.yml"
    matrix.write_text(MATRIX)
    fleet = Fleet.open("default", bench.state / "boardbench" / "fleets")
    status = bench.inv("virtual.status", "--json").document["boards"]
    pids = {name: status[name]["pid"] for name in BOARDS}
    before = {name: ssh(fleet, name, LISTING) for name in BOARDS}
    ran = {name: set(command_lines(pids[name])) for name in BOARDS}
    first = bench.inv("provision", "--tags", "npu,logger", "--json")
    second = bench.inv("provision", "--tags", "npu,logger", "--json")
    pushed = {name: ssh(fleet, name, f"ls {PAYLOADS}").split() for name in BOARDS}
    campaign = bench.inv("bench", "--matrix", str(matrix), "--json")
    report, tables = bench.inv("report", "--json"), bench.inv("report")
    torn = bench.inv("teardown", "--json")
    more = {name: more_than(ran[name], pids[name]) for name in BOARDS}
    after = {name: ssh(fleet, name, LISTING) for name in BOARDS}
    return Story(first, second, pushed, campaign, report, tables, torn, before, after, more)


def test_provision_pushes_the_cluster_once_to_every_board(story: Story) -> None:
    assert story.first.code == 0, story.first.err + story.first.out
    assert story.second.code == 0, story.second.err + story.second.out
    wanted = ["npu-common", "npu-load", "npu-node", "npu-run", "npu-scheduler", "npu-wheels", "thermal-logger"]
    for name in BOARDS:
        counts = story.first.document["recap"][name]
        assert (counts["changed"], counts["failed"], counts["unreachable"]) == (len(wanted), 0, 0)
        counts = story.second.document["recap"][name]
        assert (counts["ok"], counts["changed"], counts["failed"]) == (len(wanted), 0, 0)
        assert story.pushed[name] == wanted


def test_a_campaign_of_one_and_of_three_nodes_is_valid_without_an_error(story: Story) -> None:
    assert story.campaign.code == 0, story.campaign.err
    said = story.campaign.document
    # One node and its load, three nodes and theirs.
    assert (said["cells"], said["valid"], said["invalid"], said["missing"]) == (6, 6, 0, 0)
    loads = [run for run in story.cells() if run["valid"] and run["boards"] == ["jetson"]]
    assert len(loads) == 2
    for run in loads:
        summary = json.loads((run["folder"] / "workload/load.json").read_text())["summary"]
        assert summary["failed"] == 0
        assert summary["errors_by_code"] == []
        assert summary["succeeded"] == summary["total_requests"] >= 100


def test_the_number_of_nodes_is_proved_by_their_answers(story: Story) -> None:
    answered = {}
    for run in story.cells():
        if not run["valid"] or run["boards"] != ["jetson"]:
            continue
        load = json.loads((run["folder"] / "workload/load.json").read_text())
        counts = {node["node_id"]: node["count"] for node in load["summary"]["per_node"]}
        assert sum(counts.values()) == load["summary"]["succeeded"]
        assert min(counts.values()) > 0
        answered[run["arm"]["nodes"]] = set(counts)
    assert answered == {"1": {"king"}, "3": {"king", "queen", "jack"}}


def test_the_report_shows_the_tables_of_a_cluster(story: Story) -> None:
    assert story.report.code == 0, story.report.err
    rows = {row["arm"]: row for row in story.report.document["cluster"]}
    assert {arm: row["nodes_answered"] for arm, row in rows.items()} == {"nodes1": 1, "nodes3": 3}
    # How much faster is another test's matter: this host may be busy.
    assert rows["nodes3"]["scaling"]["against"] == "nodes1"
    assert rows["nodes3"]["scaling"]["speedup"] > 0
    assert story.report.document["virtual"] is True
    assert story.tables.code == 0, story.tables.err
    for title in ("cluster: rate over valid runs", "nodes: whose answers were counted",
                  "latency: of all requests pooled", "stages of a request"):  # fmt: skip
        assert title in story.tables.out


def test_teardown_leaves_neither_files_nor_units_nor_processes(story: Story) -> None:
    assert story.torn.code == 0, story.torn.err + story.torn.out
    for name in BOARDS:
        assert len(story.before[name].splitlines()) > 100
        assert set(story.after[name].splitlines()) ^ set(story.before[name].splitlines()) == set(), name
        assert story.more_processes[name] == [], name
