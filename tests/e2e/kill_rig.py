"""A short campaign on two virtual boards that is killed, stopped and cut off, and what must never come of that."""

from __future__ import annotations

import json
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from boardbench.results.validate import validate
from boardbench.virtual.fleet import Fleet

from .conftest import Bench

BOARDS = ("king", "queen")
LIMIT = ",".join(BOARDS)
# Two waves of two boards, two wall seconds of load each. A logger that is late on a busy machine is no matter here.
MATRIX = """\
version: 1
name: kill
question: Does a campaign survive its controller?
boards: {kinds: [nanopi-r76s], together: each}
workload: {name: burn, threads: all, interval_s: 60}
duration_s: 480
factors:
  cooling: {kind: phase, levels: [active, fanless]}
repeats: 1
order: blocked
seed: 7
attempts: 4
cool: {zone_types: [soc-thermal], below_celsius: 60, timeout_s: 4800}
settings: {governor: ondemand}
logger: {payload: thermal-logger, period_s: 24, max_gap_periods: 50}
metrics:
  - {name: steady, unit: operations/s, direction: higher-is-better}
baseline: {arm: active, is: "the same load with the board's fan running"}
rules:
  - {name: holds, metric: steady, arms: [fanless, active], compare: ratio, op: "<", threshold: 1.5, over_boards: max,
     minimum_effect: {percent: 1}, assumed_noise: {percent: 2, because: made up for this test}}
domain: a load of eight minutes on two virtual boards
gates: [strays, cool, settings, logger, cooling, boot-id, load]
"""


@dataclass
class Rig:
    """The command line, the fleet, the matrix, and what the boards were when found and before the first campaign."""

    bench: Bench
    fleet: Fleet
    matrix: Path
    settings_found: dict[str, str] = field(default_factory=dict)
    settings_before: dict[str, str] = field(default_factory=dict)
    staged_before: dict[str, str] = field(default_factory=dict)
    undisturbed_s: float = 0.0
    verdict: dict[str, str] = field(default_factory=dict)

    @property
    def new(self) -> tuple[str, ...]:
        """The words of a new campaign."""
        return ("bench", "--matrix", str(self.matrix), "--limit", LIMIT)

    def campaigns(self) -> list[Path]:
        return sorted(path.parent for path in self.bench.results.glob("kill/[0-9]*/campaign.json"))

    def settings(self) -> dict[str, str]:
        """Governor and fan, read on the boards without boardbench."""
        script = "cat /sys/devices/system/cpu/cpufreq/policy*/scaling_governor /run/boardbench-virtual/fan"
        return {name: ssh(self.fleet, name, script) for name in BOARDS}

    def staged(self) -> dict[str, str]:
        """What is still to be collected or put back, by the names of its files."""
        return {
            name: ssh(self.fleet, name, "ls /var/lib/boardbench/runs /var/lib/boardbench/journal") for name in BOARDS
        }

    def settle(self) -> None:
        """Nothing is held and nothing is left to put back."""
        seen = self.bench.inv("lease", "--limit", LIMIT, "--json").document["boards"]
        assert {name: (entry["held"], entry["scopes"]) for name, entry in seen.items()} == dict.fromkeys(
            BOARDS, (False, {})
        )
        assert (self.settings(), self.staged()) == (self.settings_before, self.staged_before)


def ssh(fleet: Fleet, board: str, script: str) -> str:
    access = fleet.access()[board]
    argv = ["ssh", "-F", "none", "-p", str(access.port), "-i", str(access.key_file), "-o", "BatchMode=yes"]
    argv += ["-o", f"UserKnownHostsFile={fleet.known_hosts}", "-o", "ConnectTimeout=10"]
    done = subprocess.run(
        [*argv, f"{access.user}@{access.host}", "--", script], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def made_rig(bench: Bench, matrix: Path) -> Rig:
    """The fleet, up and provisioned, and one campaign that nobody disturbed."""
    matrix.write_text(MATRIX)
    up = bench.inv("virtual.up", "--kind", "bwrap", "--time-scale", "240", "--json")
    assert up.code == 0, up.err
    made = Rig(bench, Fleet.open("default", bench.state / "boardbench" / "fleets"), matrix)
    made.settings_found = made.settings()
    provisioned = bench.inv("provision", "--limit", LIMIT)
    assert provisioned.code == 0, provisioned.out + provisioned.err
    for board in BOARDS:  # so that there is something to put back
        ssh(made.fleet, board, "mkdir -p /var/lib/boardbench/runs /var/lib/boardbench/journal")
    made.settings_before, made.staged_before = made.settings(), made.staged()
    assert "ondemand" not in "".join(made.settings_before.values())
    began = time.monotonic()
    done = bench.inv(*made.new, "--json")
    made.undisturbed_s = time.monotonic() - began
    assert done.code == 0, done.err
    assert (done.document["valid"], done.document["invalid"], done.document["missing"]) == (4, 0, 0)
    made.verdict = rules_of(json.loads((Path(done.document["campaign"]) / "verdict.json").read_text()))
    assert made.verdict == {"holds": "supported"}
    made.settle()
    return made


def whole_attempts(folder: Path) -> dict[str, str]:
    """Every finished attempt's run.json as text, by its place."""
    return {
        path.parent.relative_to(folder).as_posix(): path.read_text()
        for path in folder.glob("cells/*/attempt-*/run.json")
        if not path.parent.name.endswith(".partial")
    }


@dataclass
class Watch:
    """What was whole at each disturbance of a campaign: none of it may ever change, or be done again."""

    verdict: dict[str, str]
    seen: dict[str, str] = field(default_factory=dict)

    def look(self, folder: Path) -> None:
        now = whole_attempts(folder)
        assert {place: now.get(place) for place in self.seen} == self.seen, "a finished attempt was lost or changed"
        self.seen |= now

    def check(self, folder: Path) -> None:
        self.look(folder)
        assert [str(problem) for problem in validate(folder)] == []
        valid: dict[str, list[int]] = {}
        names: list[str] = []
        for text in self.seen.values():
            run = json.loads(text)
            names.append(run["run"])
            if run["valid"]:
                valid.setdefault(run["cell"], []).append(run["attempt"])
        assert len(names) == len(set(names)), "a run is there twice"
        plan = json.loads((folder / "plan.json").read_text())
        assert {cell: len(numbers) for cell, numbers in valid.items()} == {c["name"]: 1 for c in plan["cells"]}
        for cell, (number,) in valid.items():
            later = [p for p in folder.glob(f"cells/{cell}/attempt-*") if int(p.name.removeprefix("attempt-")) > number]
            assert later == [], "a finished cell was repeated"
        said = json.loads((folder / "verdict.json").read_text())
        counts = said["counts"]
        assert (counts["valid"], counts["invalid"], counts["missing"]) == (4, 0, 0)
        assert (said["interrupted"], said["missing"], said["not_restored"]) == (False, [], [])
        assert rules_of(said) == self.verdict, "the verdict is another one than undisturbed"


def rules_of(said: dict[str, Any]) -> dict[str, str]:
    """What became of each rule, in one word."""
    return {rule["rule"]: rule["verdict"] for rule in said["decisions"]["rules"]}


def go_on(rig: Rig, known: list[Path]) -> tuple[str, ...]:
    """The words that a user would type now: resume what there is, or begin."""
    new = [path for path in rig.campaigns() if path not in known]
    return ("bench", "--resume", new[-1].name) if new else rig.new


def until_done(rig: Rig, known: list[Path], process: subprocess.Popen[str]) -> Path:
    _, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    return next(path for path in rig.campaigns() if path not in known)


def read_until(process: subprocess.Popen[str], word: str) -> str:
    """What the command says up to a line with this word."""
    said = ""
    assert process.stderr is not None
    for line in process.stderr:
        said += line
        if word in line:
            return said
    raise AssertionError(f"'{word}' was never said: {said}")


def last_line(err: str) -> str:
    """The last thing that a controller said."""
    return next((line.strip() for line in reversed(err.splitlines()) if line.strip()), "nothing said")
