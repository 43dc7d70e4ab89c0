"""What the arms of a cluster's campaign came to: scaling with its efficiency, pooled and run-level tails, shares.

Pure: from the runs' numbers to figures. What was not measured is None, and `Unknown` says why; it is never 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from boardbench.analysis.estimates import Figure, Unknown
from boardbench.analysis.percentiles import RunLevel, pooled_percentile, run_level

PERCENTILES = (50.0, 95.0, 99.0)


@dataclass(frozen=True)
class LoadRun:
    """One valid run: nodes that answered (with their counts and 50th percentiles), rate, and all good latencies."""

    arm: str
    nodes: Mapping[str, int]
    node_p50_ms: Mapping[str, float]
    rate_per_s: float
    under_way: float | None
    mean_latency_ms: float
    latencies_ms: Sequence[float]
    percentiles_ms: Mapping[float, float]
    stages: Mapping[str, float | str]


@dataclass(frozen=True)
class ArmLoad:
    """One arm. `speedup` and `efficiency` (speed-up over node count) only ever stand together, against `against`.

    `law`: rate x mean latency over the requests under way, minus 1; `residual`: share of the direct rate that is lost
    per node. `stages_ms`: mean over runs of each stage's 50th percentile, or why there is none.
    """

    arm: str
    runs: int
    nodes: int
    rate_per_s: float
    rate_stdev_per_s: float | None
    speedup: float | None
    efficiency: float | None
    against: str | None
    pooled: Mapping[float, Figure]
    per_run: Mapping[float, RunLevel | Unknown]
    shares: Mapping[str, float]
    node_spread: float | None
    law: float | None
    residual: float | None
    stages_ms: Mapping[str, float | str]


def arms_of(runs: Sequence[LoadRun], direct_per_s: float | None = None) -> tuple[ArmLoad, ...]:
    """The arms in the order in which they come first; scaling is against the fastest arm with the fewest nodes."""
    by_arm: dict[str, list[LoadRun]] = {}
    for run in runs:
        by_arm.setdefault(run.arm, []).append(run)
    counts = {arm: max(len(run.nodes) for run in mine) for arm, mine in by_arm.items()}
    rates = {arm: fmean(run.rate_per_s for run in mine) for arm, mine in by_arm.items()}
    base = None
    if len(set(counts.values())) > 1:
        fewest = min(counts.values())
        base = max((arm for arm in by_arm if counts[arm] == fewest), key=lambda arm: rates[arm])
    return tuple(_arm(arm, mine, counts, rates, base, direct_per_s) for arm, mine in by_arm.items())


def _arm(
    arm: str,
    runs: Sequence[LoadRun],
    counts: Mapping[str, int],
    rates: Mapping[str, float],
    base: str | None,
    direct_per_s: float | None,
) -> ArmLoad:
    speedup = rates[arm] / rates[base] if base is not None and rates[base] > 0 else None
    # One node more than the base is an efficiency of what that node could bring.
    efficiency = None if speedup is None or base is None else speedup * counts[base] / counts[arm]
    everything = [value for run in runs for value in run.latencies_ms]
    laws = [run.rate_per_s * run.mean_latency_ms / 1000 / run.under_way - 1 for run in runs if run.under_way]
    return ArmLoad(
        arm=arm,
        runs=len(runs),
        nodes=counts[arm],
        rate_per_s=rates[arm],
        rate_stdev_per_s=stdev(run.rate_per_s for run in runs) if len(runs) > 1 else None,
        speedup=speedup,
        efficiency=efficiency,
        against=base,
        pooled={p: pooled_percentile(everything, p) for p in PERCENTILES},
        per_run={p: run_level([run.percentiles_ms.get(p) for run in runs], p) for p in PERCENTILES},
        shares=_shares(runs),
        node_spread=_spread(runs),
        law=fmean(laws) if laws else None,
        residual=None if direct_per_s is None else 1 - rates[arm] / (counts[arm] * direct_per_s),
        stages_ms=_stages(runs),
    )


def _shares(runs: Sequence[LoadRun]) -> dict[str, float]:
    total = sum(sum(run.nodes.values()) for run in runs)
    names = sorted({name for run in runs for name in run.nodes})
    return {name: sum(run.nodes.get(name, 0) for run in runs) / total for name in names} if total else {}


def _spread(runs: Sequence[LoadRun]) -> float | None:
    spreads = [
        max(run.node_p50_ms.values()) / min(run.node_p50_ms.values())
        for run in runs
        if len(run.node_p50_ms) > 1 and min(run.node_p50_ms.values()) > 0
    ]
    return fmean(spreads) if spreads else None


def _stages(runs: Sequence[LoadRun]) -> dict[str, float | str]:
    found: dict[str, float | str] = {}
    for name in dict.fromkeys(name for run in runs for name in run.stages):
        seen = [run.stages[name] for run in runs if name in run.stages]
        numbers = [value for value in seen if isinstance(value, int | float)]
        found[name] = fmean(numbers) if len(numbers) == len(seen) else str(next(v for v in seen if isinstance(v, str)))
    return found
