"""Fits the constants of the virtual NPU node to published figures of the rig: once, for all matrices.

    python -m boardbench.virtual.npu_fit CONSTANTS.json [--write] [--evaluations N]

Seven constants are fitted, and `npu_ms` follows; the others come from the file as they are. What the model then says of
every figure is printed beside it, also of those that were not fitted. Nothing here knows a matrix or a rule. An
evaluation takes some ten seconds of one core.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from scipy.optimize import minimize

from boardbench.virtual.npu_model import NPU_CORES, Constants, Node, Outcome, closed_loop

FITTED = (
    "connection_fixed_ms", "connection_cpu_ms", "connection_shape", "npu_network_factor", "npu_cpu_ms", "npu_shape",
    "delay_ms",
)  # fmt: skip
TOP_MHZ = 2208
LADDER = {
    2208: (1.12, 388.1), 1608: (1.18, 382.9), 1200: (1.33, 379.6), 1008: (1.79, 369.0), 816: (2.26, 359.6),
    600: (3.93, 318.4),
}  # fmt: skip
"""Cap of one of three boards in MHz -> spread of the nodes' 50th percentiles, and inferences a second, under
round-robin, 36 under way."""
ONE_NODE = {1: 114.8, 2: 136.4, 4: 138.1}
"""Connections -> inferences a second of one node at twelve under way."""
DIRECT_PER_S, P95_MS, P99_MS = 161.5, 119.8, 137.4
SEEDS = (1, 2, 3)
RATE, SPREAD, TAIL, FALL = 4.0, 4.0, 1.0, 1.0
"""Weights: of one node's rates, of spreads, of percentiles, and of how a cap lowers the ladder's rate."""


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


def figures(constants: Constants, seconds: float = 80.0) -> list[Figure]:
    """All figures under these constants. Those of the ladder are means over SEEDS: whose queue is longer wanders."""
    found = []
    for connections, published in ONE_NODE.items():
        outcome = closed_loop(constants, [Node()], concurrency=12, connections=connections, seconds=seconds)
        found.append(Figure(f"one node, {connections} connections, inf/s", published, outcome.rate_per_s, RATE))
        if connections == 2:
            for share, tail_ms in ((0.95, P95_MS), (0.99, P99_MS)):
                at = math.ceil(share * len(outcome.latencies_ms)) - 1
                name = f"one node, 2 connections, p{100 * share:.0f} ms"
                found.append(Figure(name, tail_ms, outcome.latencies_ms[at], TAIL))
    direct = closed_loop(constants, [Node()], concurrency=8, connections=0, seconds=seconds)
    found.append(Figure("direct, inf/s", DIRECT_PER_S, direct.rate_per_s, RATE))
    top_per_s = 0.0
    for cap_mhz, (spread, per_s) in LADDER.items():
        outcomes = [_capped(constants, cap_mhz, seconds, seed) for seed in SEEDS]
        found.append(Figure(f"spread at {cap_mhz} MHz", spread, fmean(each.spread for each in outcomes), SPREAD))
        rate_per_s = fmean(each.rate_per_s for each in outcomes)
        if not top_per_s:
            top_per_s = rate_per_s
            found.append(Figure("three nodes, inf/s", per_s, rate_per_s, 0.0))
        else:
            published = per_s / LADDER[TOP_MHZ][1]
            found.append(Figure(f"rate at {cap_mhz} MHz / at {TOP_MHZ}", published, rate_per_s / top_per_s, FALL))
    return found


def _capped(constants: Constants, cap_mhz: int, seconds: float, seed: int) -> Outcome:
    boards = [Node(cap_mhz / TOP_MHZ), Node(), Node()]
    return closed_loop(constants, boards, concurrency=36, connections=2, seconds=seconds, seed=seed)


def fit(constants: Constants, evaluations: int) -> dict[str, float]:
    """The constants with those of FITTED fitted, by a simplex on logarithms (a simulation has no derivative).

    `npu_ms` follows from them: what the NPU's cores alone can do is the published direct rate.
    """
    start = [math.log(constants[name]) for name in FITTED]

    def with_values(logs: Sequence[float]) -> dict[str, float]:
        values = {**constants, **{name: round(math.exp(value), 3) for name, value in zip(FITTED, logs, strict=True)}}
        return {**values, "npu_ms": round(1000 * NPU_CORES / DIRECT_PER_S - values["npu_cpu_ms"], 3)}

    def miss(logs: Sequence[float]) -> float:
        return sum(figure.weight * figure.error**2 for figure in figures(with_values(logs)))

    steps = [[0.0] * len(FITTED)] + [[0.1 if i == j else 0.0 for j in range(len(FITTED))] for i in range(len(FITTED))]
    simplex = [[value + step for value, step in zip(start, move, strict=True)] for move in steps]
    found = minimize(
        miss, start, method="Nelder-Mead", options={"maxfev": evaluations, "initial_simplex": simplex, "xatol": 0.003}
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
