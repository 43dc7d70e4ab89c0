"""A run's parts on several boards, as programs on loopback: who starts what, and when a part says that it failed."""

from __future__ import annotations

import itertools
import json
import os
import site
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .cluster import PAYLOADS, free_port

MAIN = str(PAYLOADS / "npu-run" / "main.py")
# The parts start their programs without site-packages, as on a board; there npu-wheels has these libraries.
ENVIRONMENT = {**os.environ, "NPU_LIBRARIES": ":".join(site.getsitepackages())}
_hosts = itertools.count(10)


def start(part: str, out: Path, *words: str) -> subprocess.Popen[str]:
    # TLS has tests of its own; without its files it must be left out by name.
    plaintext = () if "--certificates" in words else ("--plaintext",)
    argv = [sys.executable, MAIN, part, "--out", str(out), *words, *plaintext]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)


class Run:
    """The parts of one run, on addresses of its own."""

    def __init__(
        self,
        folder: Path,
        nodes: tuple[str, ...],
        seconds: float,
        *node_words: str,
        words: tuple[str, ...] = (),
        lead_s: float = 25.0,
    ) -> None:
        self.folder = folder
        self.host = f"127.9.{os.getpid() % 200}.{next(_hosts)}"
        bell = f"{self.host}:{free_port()}"
        common = ["--bell", bell, "--duration-s", str(seconds), "--interval-s", "0.5", *words]
        self.nodes = {
            name: start(
                "node", folder / name, "--name", name, "--listen", f"127.0.0.1:{free_port()}", "--scheduler",
                f"{self.host}:50051", "--backend", "virtual", "--zero-time", *common,
                *(() if index else node_words),
            )
            for index, name in enumerate(nodes)
        }  # fmt: skip
        self.load = start(
            "load", folder / "load", "--address", self.host, "--nodes", ",".join(nodes), "--concurrency", "4",
            "--lead-s", str(lead_s), "--warmup", "1", "--policy", "least-queue", *common,
        )  # fmt: skip

    def ends(self) -> tuple[int, dict[str, int]]:
        """Exit codes of the load and of the nodes."""
        parts = {"load": self.load, **self.nodes}
        for name, part in parts.items():
            _, self.said = part.communicate(timeout=120)
            (self.folder / f"{name}.stderr").write_text(self.said)
        return self.load.returncode, {name: part.returncode for name, part in self.nodes.items()}

    def why(self) -> str:
        """All that was said."""
        files = [path for path in self.folder.rglob("*") if path.suffix in (".log", ".stderr")]
        return "\n".join(f"{path}: {path.read_text()}" for path in files)

    def report(self) -> dict[str, Any]:
        """The load's report."""
        found: dict[str, Any] = json.loads((self.folder / "load" / "load.json").read_text())
        return found

    def events(self, name: str) -> list[dict[str, Any]]:
        """A node's raw file."""
        return [json.loads(line) for line in (self.folder / name / "node.jsonl").read_text().splitlines()]


@pytest.mark.slow
def test_all_parts_end_with_the_load_and_their_counts_agree(tmp_path: Path) -> None:
    run = Run(tmp_path, ("king", "queen"), 3.0)
    assert run.ends() == (0, {"king": 0, "queen": 0}), run.why()
    made = run.report()
    assert made["golden"]["ok"] is True
    counted = {node["node_id"]: node["count"] for node in made["summary"]["per_node"]}
    for name in ("king", "queen"):
        events = run.events(name)
        pieces = [event for event in events if event["event"] == "interval"]
        assert events[-1]["event"] == "end"
        assert sum(piece["amount"] for piece in pieces) == events[-1]["total"]
        # What was under way at the edges may fall on either side.
        assert abs(events[-1]["total"] - counted[name]) <= 8
        assert pieces[-1]["end_monotonic_s"] - pieces[0]["start_monotonic_s"] >= 2.5


@pytest.mark.slow
def test_an_agent_that_is_killed_under_load_is_started_again_and_no_request_is_lost(tmp_path: Path) -> None:
    run = Run(tmp_path, ("king", "queen"), 14.0, "--fault", "kill", "--fault-for-s", "0.5")
    load, nodes = run.ends()
    assert nodes == {"king": 0, "queen": 0}, run.why()
    assert load in (0, 3), run.why()
    made = run.report()
    events = run.events("king")
    assert [event["what"] for event in events if event["event"] == "fault"] == ["kill", "kill over"]
    over_s = next(event["monotonic_s"] for event in events if event.get("what") == "kill over")
    after = [e["amount"] for e in events if e["event"] == "interval" and e["start_monotonic_s"] > over_s]
    assert sum(after) > 0, run.why()
    summary = made["summary"]
    assert summary["total_requests"] == summary["succeeded"] + summary["failed"]
    assert all(code.startswith(("NPF-", "TRANSPORT-")) for code, _ in summary["errors_by_code"])
    assert made["longest_silence_s"]["king"] > made["longest_silence_s"]["queen"]


def test_a_node_that_never_comes_is_named(tmp_path: Path) -> None:
    load = start(
        "load", tmp_path / "load", "--address", f"127.9.{os.getpid() % 200}.{next(_hosts)}", "--nodes", "jack",
        "--concurrency", "1", "--lead-s", "1", "--duration-s", "1", "--interval-s", "1",
        "--bell", f"127.0.0.1:{free_port()}",
    )  # fmt: skip
    _, said = load.communicate(timeout=60)
    assert load.returncode == 1
    assert "no word from jack" in said


def test_a_node_whose_load_never_comes_says_so(tmp_path: Path) -> None:
    node = start(
        "node", tmp_path / "node", "--name", "king", "--listen", f"127.0.0.1:{free_port()}", "--scheduler",
        "127.0.0.1:1", "--backend", "virtual", "--zero-time", "--bell", f"127.0.0.1:{free_port()}", "--patience-s", "1",
        "--duration-s", "1", "--interval-s", "1",
    )  # fmt: skip
    _, said = node.communicate(timeout=60)
    assert node.returncode == 1
    assert "does not answer" in said


@pytest.mark.parametrize("part", ["node", "load"])
def test_a_folder_that_holds_a_run_is_refused(tmp_path: Path, part: str) -> None:
    (tmp_path / "node.jsonl").write_text("kept")
    (tmp_path / "scheduler.toml").write_text("kept")
    words = {
        "node": ["--name", "king", "--listen", "127.0.0.1:1", "--scheduler", "127.0.0.1:1", "--backend", "virtual"],
        "load": ["--address", f"127.9.{os.getpid() % 200}.{next(_hosts)}", "--nodes", "a", "--concurrency", "1"],
    }[part]
    bell = ["--bell", f"127.0.0.1:{free_port()}", "--duration-s", "1", "--interval-s", "1"]
    done = start(part, tmp_path, *words, *bell)
    _, said = done.communicate(timeout=60)
    assert done.returncode == 1
    assert "is there already" in said
    assert (tmp_path / "node.jsonl").read_text() == "kept"
