"""Fits the constants of the virtual NPU node to published figures of the rig: once, for all matrices.

    python -m boardbench.virtual.npu_fit CONSTANTS.json [--write] [--evaluations N]

Four constants are fitted; the others come from the file as they are. What the model then says of every figure is
printed beside it, also of those that were not fitted. Nothing here knows a matrix or a rule.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from scipy.optimize import minimize

from boardbench.virtual.npu_model import Constants, Node, closed_loop

FITTED = ("connection_fixed_ms", "connection_cpu_ms", "npu_network_factor", "delay_ms")
TOP_MHZ = 2208
LADDER = {2208: 1.12, 1608: 1.18, 1200: 1.33, 1008: 1.79, 816: 2.26, 600: 3.93}
"""Cap of one of three boards in MHz -> spread of the nodes' 50th percentiles under round-robin, 36 under way."""
ONE_NODE = {1: 114.8, 2: 136.4, 4: 138.1}
"""Connections -> inferences a second of one node at twelve under way."""
DIRECT_PER_S, THREE_NODES_PER_S, P95_MS = 161.5, 387.2, 119.8


@dataclass(frozen=True)
class Figure:
    """One published figure, what the model says, and its weight in the fit (0: only shown)."""

    name: str
    published: float
    model: float
    weight: float

    @property
    def error(self) -> float:
        """The logarithm of model over published."""
        return math.log(self.model / self.published)


def figures(constants: Constants, seconds: float = 30.0, *, shown_too: bool = True) -> list[Figure]:
    """All figures under these constants; without `shown_too` only those with a weight."""
    found = []
    for connections, published in ONE_NODE.items():
        outcome = closed_loop(constants, [Node()], concurrency=12, connections=connections, seconds=seconds)
        found.append(Figure(f"one node, {connections} connections, inf/s", published, outcome.rate_per_s, 4.0))
        if connections == 2:
            p95_ms = outcome.latencies_ms[math.ceil(0.95 * len(outcome.latencies_ms)) - 1]
            found.append(Figure("one node, 2 connections, p95 ms", P95_MS, p95_ms, 1.0))
    for cap_mhz, published in LADDER.items():
        boards = [Node(cap_mhz / TOP_MHZ), Node(), Node()]
        outcome = closed_loop(constants, boards, concurrency=36, connections=2, seconds=seconds)
        found.append(Figure(f"spread at {cap_mhz} MHz", published, outcome.spread, 1.0))
    if shown_too:
        direct = closed_loop(constants, [Node()], concurrency=8, connections=0, seconds=seconds)
        three = closed_loop(constants, [Node()] * 3, concurrency=36, connections=2, seconds=seconds)
        found.append(Figure("direct, inf/s", DIRECT_PER_S, direct.rate_per_s, 0.0))
        found.append(Figure("three nodes, inf/s", THREE_NODES_PER_S, three.rate_per_s, 0.0))
    return found


def fit(constants: Constants, evaluations: int) -> dict[str, float]:
    """The constants with those of FITTED fitted, by a simplex on logarithms (a simulation has no derivative)."""
    start = [math.log(constants[name]) for name in FITTED]

    def with_values(logs: Sequence[float]) -> dict[str, float]:
        return {**constants, **{name: round(math.exp(value), 3) for name, value in zip(FITTED, logs, strict=True)}}

    def miss(logs: Sequence[float]) -> float:
        return sum(figure.weight * figure.error**2 for figure in figures(with_values(logs), shown_too=False))

    steps = [[0.0] * len(FITTED)] + [[0.1 if i == j else 0.0 for j in range(len(FITTED))] for i in range(len(FITTED))]
    simplex = [[value + step for value, step in zip(start, move, strict=True)] for move in steps]
    found = minimize(
        miss, start, method="Nelder-Mead", options={"maxfev": evaluations, "initial_simplex": simplex, "xatol": 0.005}
    )
    return with_values(found.x)


def main(words: Sequence[str]) -> int:
    """Prints the figures; exit code 0."""
    parser = argparse.ArgumentParser(prog="npu_fit", description=__doc__)
    parser.add_argument("constants", type=Path)
    parser.add_argument("--write", action="store_true", help="fit, and write the constants back")
    parser.add_argument("--evaluations", type=int, default=80)
    options = parser.parse_args(words)
    data = json.loads(options.constants.read_text(encoding="utf-8"))
    constants = {name: float(value) for name, value in data.items() if name != "origin"}
    if options.write:
        constants = fit(constants, options.evaluations)
        options.constants.write_text(
            json.dumps({"origin": data["origin"], **constants, "cpu_servers": int(constants["cpu_servers"])}, indent=1)
            + "\n",
            encoding="utf-8",
        )
    for figure in figures(constants):
        fitted = "" if figure.weight else "  (not fitted)"
        print(f"{figure.name:34} published {figure.published:7.2f}  model {figure.model:7.2f}{fitted}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
