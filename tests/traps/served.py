"""A small workload that serves requests in a closed loop, for traps about the quantities that a workload declares.

It is `burn` with one more raw file, `served.json`: what the clients counted, who answered, what a tool said of it. All
rules over these numbers are the product's; nothing here judges.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from boardbench.workloads.base import Answers, ClosedLoop, Count, Durations, Golden, Pair, Samples
from boardbench.workloads.burn import Burn
from boardbench.workloads.registry import KNOWN

from .scene import Files, Scene, fake_boards

RAW = "workload/served.json"
RATES = {4: 250.0, 12: 386.9, 32: 379.0}
"""Inferences per second by requests under way: four connections to three nodes, from a published curve."""
MATRIX = (
    fake_boards.MATRIX.replace(
        "cooling: {kind: phase, levels: [active, fanless]}",
        "clients: {kind: workload, option: concurrency_per_node, levels: [4, 12, 32]}",
    )
    + """\
baseline: {arm: clients12, is: twelve requests under way}
rules:
  - {name: more, metric: steady, arms: [LOUD, clients12], compare: ratio, op: "<", threshold: 1.5,
     minimum_effect: {percent: 1}}
"""
)
Change = Callable[[dict[str, Any]], None]


class Served(Burn):
    """Declares all that a workload can."""

    concurrency_option = "concurrency_per_node"
    traits = replace(Burn.traits, options=(*Burn.traits.options, "concurrency_per_node"))
    raw_files = ("burn.jsonl", "served.json")

    def argv(self, run: str, options: Mapping[str, object], durations: Durations) -> list[str]:
        """See `Workload.argv`."""
        return [*super().argv(run, options, durations), "--clients", str(options.get("concurrency_per_node", 4))]

    def read(self, raw: Path) -> Samples:
        """See `Workload.read`."""
        data = json.loads((raw / "served.json").read_text())
        return replace(
            super().read(raw),
            closed_loop=ClosedLoop(data["clients"], data["rate_per_s"], data["mean_latency_s"]),
            answers=Answers(tuple(data["asked"]), data["answers"]),
            golden=Golden({node: tuple(seen) for node, seen in data["golden"].items()}),
            pairs=tuple(
                Pair(what, Count("strace -c", parsed, "calls"), Count("the clients", counted, "calls"))
                for what, (parsed, counted) in data["calls"].items()
            ),
        )


def sound(clients: int) -> dict[str, Any]:
    """What the file says when nothing is wrong."""
    nodes = ["king", "queen", "jack"]
    return {
        "clients": clients,
        "rate_per_s": RATES[clients],
        "mean_latency_s": clients / RATES[clients],
        "asked": nodes,
        "answers": dict.fromkeys(nodes, 7400),
        "golden": {node: ["0f5a", "0f5a"] for node in nodes},
        "calls": {"epoll_wait": [170_000, 1030.0 * 165.0]},
    }


def campaign(scene: Scene, change: Change = lambda _: None, *, loud: str = "clients4") -> tuple[Path, list[str]]:
    """A whole campaign of this workload; `change` tampers with what it writes. Its folder, and all that is said.

    `loud`: the arm that its rule compares with twelve clients.
    """

    def prepare(fakes: Any) -> None:
        for board in fakes.fakes.values():
            serve(board, change)

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(KNOWN, "burn", Served())
        folder = scene.fake_campaign(prepare, text=MATRIX.replace("LOUD", loud))
        return folder, scene.said_by(folder)


def serve(board: Any, change: Change) -> None:
    """The fake board writes the workload's second file too, by the clients of the run's command line."""
    start, make = board.verb_start, board.make_files

    def verb_start(args: Any) -> Any:
        argv = args["exec"]
        board.runs[args["run"]]["clients"] = int(argv[argv.index("--clients") + 1])
        return start(args)

    def make_files(run: Any) -> Files:
        files: Files = make(run)
        # Arms that differ do not count the same.
        lines = [json.loads(line) for line in files["workload/burn.jsonl"].splitlines()]
        for line in lines:
            for key in ("operations", "operations_per_s"):
                if key in line:
                    line[key] *= RATES[run["clients"]] / RATES[12]
        files["workload/burn.jsonl"] = "".join(json.dumps(line) + "\n" for line in lines).encode()
        data = sound(run["clients"])
        change(data)
        files[RAW] = json.dumps(data).encode()
        return files

    board.verb_start, board.make_files = verb_start, make_files


def sprung(change: Change = lambda _: None, *, loud: str = "clients4") -> Callable[[Scene], list[str]]:
    """A trap whose set-up is such a campaign."""
    return lambda scene: campaign(scene, change, loud=loud)[1]
