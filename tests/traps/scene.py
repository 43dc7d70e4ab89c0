"""Where traps are set up: made files through the real run loop on fake boards, or virtual boards with real sshd."""

from __future__ import annotations

import importlib.util
import json
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from boardbench.board import Door
from boardbench.errors import BenchError
from boardbench.inventory import Access, Board, Cooling, Identity, Inventory
from boardbench.matrix import campaign
from boardbench.matrix.run_cell import Timings
from boardbench.results import judge, record
from boardbench.results.validate import validate
from boardbench.virtual.fleet import Fleet

_FAKES = Path(__file__).parents[1] / "unit" / "matrix" / "fake_boards.py"
if "fake_boards" not in sys.modules:
    _spec = importlib.util.spec_from_file_location("fake_boards", _FAKES)
    assert _spec is not None
    assert _spec.loader is not None
    sys.modules["fake_boards"] = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(sys.modules["fake_boards"])
fake_boards: Any = sys.modules["fake_boards"]

PROJECT = Path(__file__).resolve().parents[2]
BOARDS = {"king": "nanopi-r76s", "queen": "nanopi-r76s"}
QUICK = Timings(lead_s=0.0, trail_s=0.0, patience_s=0.1, retry_every_s=0.02)
# One second of load on a board whose physics run 240 times faster.
MATRIX = """\
version: 1
name: trap
question: Is it noticed?
boards: {kinds: [nanopi-r76s], together: each}
workload: {name: burn, threads: all, interval_s: 60}
duration_s: 240
factors:
  cooling: {kind: phase, levels: [fanless]}
repeats: 1
order: blocked
seed: 7
attempts: 1
settings: {governor: performance}
logger: {payload: thermal-logger, period_s: 1}
metrics:
  - {name: steady, unit: operations/s, direction: higher-is-better}
gates: [strays, settings, logger, cooling, boot-id, load, clock]
"""
Files = dict[str, bytes]
_LOOK = """\
for f in /proc/[0-9]*/cmdline; do
  tr '\\0' '\\n' 2>/dev/null < $f | sed -n 2p | grep -qx "$1" && echo $f
done
true
"""


def board_at(name: str, access: Access) -> Board:
    """The inventory's view of a board."""
    kind, can, who = BOARDS[name], frozenset({"cpufreq"}), Identity(hostname=name)
    return Board(name, kind, access, (), can, Cooling("virtual"), who, {}, f"lab.yml: {name}")


@dataclass
class Scene:
    """A folder of the test's own, the shared fleet (started when a trap first asks for it), a sound campaign."""

    folder: Path
    start_fleet: Callable[[], Fleet]
    sound: Path
    used: bool = False
    _made: int = field(default=0)
    _undo: list[Callable[[], object]] = field(default_factory=list)

    def fresh(self) -> Path:
        """A new empty folder."""
        self._made += 1
        path = self.folder / f"scene-{self._made}"
        path.mkdir()
        return path

    # ---- made files, fake boards ----

    def campaign_of(self, change: Callable[[Files], None], phase: str = "fanless") -> list[str]:
        """A campaign of one fake board whose runs of `phase` leave files that `change` has changed; what it says."""

        def prepare(fakes: Any) -> None:
            def only_phase(files: Files) -> None:
                if (fakes["king"].fan == "1") == (phase == "active"):
                    change(files)

            fakes["king"].change_files = only_phase

        return self.said_by(self.fake_campaign(prepare))

    def fake_campaign(self, prepare: Callable[[Any], None], text: str = "", **other: Any) -> Path:
        """A whole campaign on the fake boards king and queen, which `prepare` has tampered with; its folder.

        `text`: another matrix than theirs.
        """
        folder = self.fresh()
        fakes = fake_boards.Fleet("king", "queen")
        prepare(fakes)
        matrix, payloads = fake_boards.write_project(folder)
        if text:
            matrix.write_text(text)
        given: dict[str, Any] = {
            "results_dir": folder / "results",
            "open_door": fakes.open,
            "payloads_dir": payloads,
            "timings": QUICK,
        }
        return campaign.run(matrix, fakes.inventory, fakes.boards, **{**given, **other}).path

    def said_by(self, folder: Path) -> list[str]:
        """All that a campaign says: reasons against runs, missing cells, warnings, rules that are invalid, and what
        validation finds besides.
        """
        said: list[str] = []
        for path in sorted(folder.glob("cells/*/attempt-*/run.json")):
            said += [
                f"{reason['code']}: {reason['detail']}" for reason in json.loads(path.read_text())["invalid_reasons"]
            ]
        verdict = json.loads((folder / "verdict.json").read_text())
        said += [entry["why"] for entry in verdict["missing"]]
        said += [f"{entry['code']}: board {entry['board']}: {entry['what']}" for entry in verdict["warnings"]]
        said += [
            f"rule {rule['rule']} is invalid: {rule['why']}"
            for rule in verdict["decisions"]["rules"]
            if rule["verdict"] == "invalid"
        ]
        return said + [problem.what for problem in validate(folder)]

    def judged(self, entry: dict[str, Any]) -> list[str]:
        """The reasons against a run in which nothing is wrong but this evidence, when its gate counts."""
        attempt = self.sound / "cells/001-active-king/attempt-1"
        run = json.loads((attempt / "run.json").read_text())
        plan = json.loads((self.sound / "plan.json").read_text())
        rules = judge.Rules.of_plan(
            {**plan, "gates": [entry["gate"]], "guard": {}},
            run["boards"][0],
            run["phase"],
            run["workload"]["raw_files"],
        )
        facts = replace(record.facts_of(run), evidence=(entry,))
        return [f"{reason.code}: {reason.detail}" for reason in judge.judge(attempt, facts, rules)]

    # ---- virtual boards ----

    @property
    def fleet(self) -> Fleet:
        """The boards king and queen, up and provisioned."""
        self.used = True
        return self.start_fleet()

    def board(self, name: str, *, at: str | None = None) -> Board:
        """What the inventory says of a board; `at`: with the address of another one."""
        access = self.fleet.access()[at or name]
        return board_at(name, access)

    def open(self, board: Board) -> Door:
        """A connection by SSH."""
        return Door.open(board, self.fleet.known_hosts)

    def call(self, name: str, verb: str, **args: Any) -> dict[str, Any]:
        """One verb on one board."""
        with self.open(self.board(name)) as door:
            return door.call(verb, args, deadline_s=60.0)

    def later(self, undo: Callable[[], object]) -> None:
        """`undo` is done when the test leaves the scene."""
        self._undo.append(undo)

    def number(self) -> int:
        """A new number at each call."""
        self._made += 1
        return self._made

    def leave(self) -> None:
        """Puts the boards back that the test used: faults, fans, processes, changes and holds of campaigns."""
        while self._undo:
            self._undo.pop()()
        if not self.used:
            return
        for name in BOARDS:
            self.fleet.set_faults(name, {})
            self.fan(name).write_text("1\n")
            lease = self.call(name, "lease", action="show")["lease"]
            if lease is not None:
                self.call(name, "lease", action="release", **{key: lease[key] for key in ("owner", "host", "campaign")})
            self.call(name, "strays", harness=None, end=True, grace_s=1.0)
            for scope in self.call(name, "scopes")["scopes"]:
                if scope["scope"] != "provision":
                    self.call(name, "restore", scope=scope["scope"])

    def root(self, name: str) -> Path:
        """The board's `/` as the host sees it."""
        return self.fleet.folder / "boards" / name / "root"

    def fan(self, name: str) -> Path:
        """The board's fan, where a hand can reach it."""
        return self.fleet.folder / "ctl" / name / "fan"

    def board_campaign(
        self,
        *,
        boards: Sequence[Board] = (),
        during: Callable[[], object] = lambda: None,
        after_load: Callable[[], object] = lambda: None,
        at_wave: Callable[[int], None] = lambda _: None,
        **matrix: Any,
    ) -> list[str]:
        """A campaign on the board king with one cell, or as `matrix` says; what the product says of it.

        `during` is called when the load runs, `after_load` when it has ended and before anybody comes to collect it,
        `at_wave` with the number of a wave before anything is prepared for it.
        """
        folder = self.fresh()
        (folder / "trap.yml").write_text(json.dumps({**yaml.safe_load(MATRIX), **matrix}))
        chosen = list(boards) or [self.board("king")]
        seen: set[tuple[str, int | None]] = set()

        def on_progress(progress: Any) -> None:
            mark = (progress.phase.value, progress.wave)
            if mark in seen:
                return
            seen.add(mark)
            if mark[0] == "measure":
                during()
            elif mark[0] == "collect":
                after_load()
            elif mark[0] == "prepare":
                at_wave(progress.wave)

        try:
            outcome = campaign.run(
                folder / "trap.yml",
                Inventory(folder / "lab.yml", {b.name: b for b in chosen}, {}, self.fleet.known_hosts, None),
                chosen,
                results_dir=folder / "results",
                open_door=self.open,
                on_progress=on_progress,
                timings=Timings(patience_s=30.0, retry_every_s=0.2),
            )
        except BenchError as error:
            return [str(error)]
        return self.said_by(outcome.path)

    def log_is_past(self, name: str, event: str, by_s: float = 0.2) -> bool:
        """Whether the newest thermal log on the board has a row from so long after its load's `start` or `end`."""
        logs = sorted(
            (self.root(name) / "var/lib/boardbench/runs").glob("*/thermal.csv"), key=lambda path: path.stat().st_mtime
        )
        burn = logs[-1].parent / "workload/burn.jsonl"
        lines = burn.read_text().split("\n")[:-1] if burn.is_file() else []
        stamps = [line["stamp"]["monotonic_s"] for line in map(json.loads, lines) if line["event"] == event]
        rows = logs[-1].read_text().split("\n")[1:-1]
        return bool(stamps and rows) and float(rows[-1].split(",")[1]) > stamps[0] + by_s

    # ---- hands on a board ----

    def ssh(self, name: str, *argv: str) -> subprocess.Popen[str]:
        """A command on the board, as an operator types it past the product: the real ssh client."""
        access = self.fleet.access()[name]
        options = ["BatchMode=yes", "IdentitiesOnly=yes", "StrictHostKeyChecking=yes", "ConnectTimeout=10"]
        options += [f"UserKnownHostsFile={self.fleet.known_hosts}", "GlobalKnownHostsFile=/dev/null"]
        line = ["ssh", "-F", "none", "-p", str(access.port), "-i", str(access.key_file)]
        line += [word for option in options for word in ("-o", option)]
        line += [f"{access.user}@{access.host}", "--", shlex.join(argv)]
        return subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)

    @contextmanager
    def running(self, name: str, *argv: str) -> Iterator[None]:
        """A program of root's on the board that the product has not started; it has written its first line."""
        script = 'echo $$; exec "$@"'
        with self.ssh(name, "sudo", "-n", "setsid", "-w", "/bin/sh", "-c", script, "sh", *argv) as client:
            assert client.stdout is not None
            group = int(client.stdout.readline())
            try:
                assert client.stdout.readline(), "the program did not come up"
                yield
            finally:
                self.ssh(name, "sudo", "-n", "kill", "-9", "--", f"-{group}").wait(20)
                client.wait(20)

    def pids_of(self, name: str, word: str) -> list[int]:
        """Processes on the board whose first argument is this word."""
        with self.ssh(name, "/bin/sh", "-c", _LOOK, "sh", word) as client:
            out, _ = client.communicate(timeout=20)
        return [int(path.split("/")[2]) for path in out.split()]

    def kill(self, name: str, pids: Sequence[int]) -> None:
        """Kills processes on the board."""
        done = self.ssh(name, "sudo", "-n", "kill", "-9", *(str(pid) for pid in pids))
        assert done.wait(20) == 0


def until(holds: Callable[[], bool], what: str, within_s: float = 20.0) -> None:
    """Waits until it holds; an assertion when it does not in time."""
    end = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < end, f"waited {within_s} s: {what}"
        time.sleep(0.05)
