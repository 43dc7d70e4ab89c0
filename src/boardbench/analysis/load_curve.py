"""The operating point with what is unsure about it, and how a rate scales over nodes.

Definition (the field rig's 98 % rule, `operating_point`): the lowest load whose mean rate is at least 98 % of the
greatest mean rate of its configuration.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from boardbench.analysis.arms import MIN_PAIRS, compare_unpaired
from boardbench.analysis.estimates import Estimate, Figure, Unknown, known, mapped, present
from boardbench.analysis.operating_point import SHARE_OF_PEAK, LoadPoint, operating_point
from boardbench.analysis.series import Summary, summarise


@dataclass(frozen=True)
class OperatingPoint:
    """The operating point of one configuration.

    `concurrency`; `rate`: its repetitions; `share_of_peak` (0 to 1); `peak_at`: each load with the greatest mean (a tie
    names several); `plateau`: all measured loads with at least 98 %; `below`: the next lower load that was measured,
    so the true boundary lies in (below, concurrency]; None where it is the lowest one. `unresolved`: what the data do
    not settle, in words: empty is as good as it gets.
    """

    configuration: str
    concurrency: int
    rate: Summary
    share_of_peak: float
    peak_at: tuple[int, ...]
    plateau: tuple[int, ...]
    below: int | None
    unresolved: tuple[str, ...]

    @property
    def text(self) -> str:
        """For people: `c12: 136.4 +- 0.3 (n 3), 100 % of the peak at c12`."""
        peaks = ", ".join(f"c{at}" for at in self.peak_at)
        return f"c{self.concurrency}: {self.rate.text}, {100 * self.share_of_peak:.1f} % of the peak at {peaks}"


def find_operating_point(points: Sequence[LoadPoint], configuration: str) -> OperatingPoint | Unknown:
    """The operating point of `configuration` from all rows of it, one row a repetition.

    A boundary is unresolved when the ratio to the peak of the chosen load, or of the next lower one, has an interval
    that holds 0.98 (unpaired, 3 repetitions needed), and when nothing was measured below the point or above the peak.
    Not determinable: fewer than 2 loads, or no rate above 0.
    """
    rates: dict[int, list[float]] = {}
    for point in points:
        if point.configuration == configuration:
            rates.setdefault(point.concurrency, []).extend(present([point.rate_per_s]))
    if len(rates) < 2:
        return Unknown(f"{configuration}: an operating point needs 2 loads, there are {len(rates)}")
    means = {load: float(np.mean(found)) for load, found in sorted(rates.items())}
    peak = max(means.values())
    if peak <= 0:
        return Unknown(f"{configuration}: no rate is above 0")
    chosen = operating_point([point for point in points if point.configuration == configuration])
    peak_at = tuple(load for load, mean in means.items() if mean >= peak * (1 - 1e-12))
    lower = [load for load in means if load < chosen]
    summary = summarise(rates[chosen])
    assert isinstance(summary, Summary)  # rates[chosen] is not empty
    return OperatingPoint(
        configuration=configuration, concurrency=chosen, rate=summary, share_of_peak=means[chosen] / peak,
        peak_at=peak_at, plateau=tuple(load for load, mean in means.items() if mean >= SHARE_OF_PEAK * peak),
        below=max(lower, default=None),
        unresolved=(*_boundary(rates, chosen, max(lower, default=None), peak_at[0]), *_edges(means, chosen, peak_at)),
    )  # fmt: skip


def scaling_efficiency(by_nodes: Mapping[int, Sequence[float | None]]) -> Mapping[int, tuple[Figure, Figure]]:
    """Per node count: (speed-up over one node, efficiency in percent = 100 x speed-up / nodes), from repetitions.

    Ratios of arithmetic means, unpaired, with intervals from 3 repetitions on; with fewer the value stands alone. Each
    node count should stand at its own operating point. Not determinable: one node was not measured, or has no rate
    above 0; a count without a reading.
    """
    one = present(by_nodes.get(1, ()))
    found: dict[int, tuple[Figure, Figure]] = {}
    for nodes, values in sorted(by_nodes.items()):
        if nodes < 1:
            raise ValueError(f"{nodes} nodes")
        ratio = _ratio(values, one, nodes)
        found[nodes] = (ratio, _efficiency(ratio, nodes))
    return found


def _ratio(values: Sequence[float | None], one: Sequence[float], nodes: int) -> Figure:
    mine = present(values)
    if not one or min(one) <= 0:
        return Unknown("one node was not measured" if not one else "one node did no work")
    if not mine:
        return Unknown(f"{nodes} nodes were not measured")
    if nodes == 1:
        return Estimate(1.0, "", len(one), "by definition")
    if min(len(mine), len(one)) >= MIN_PAIRS:
        return compare_unpaired(mine, one, f"{nodes} nodes", "one node").ratio
    value = float(np.mean(mine) / np.mean(one))
    note = f"no interval: {len(mine)} and {len(one)} repetitions"
    return Estimate(value, "", len(mine), "ratio of arithmetic means", None, note)


def _efficiency(ratio: Figure, nodes: int) -> Figure:
    return mapped(ratio, 100.0 / nodes, "percent")


def _boundary(rates: Mapping[int, Sequence[float]], chosen: int, below: int | None, peak: int) -> list[str]:
    said = []
    for load in (chosen, below):
        if load is None or load == peak:
            continue
        ratio = compare_unpaired(rates[load], rates[peak], f"c{load}", f"c{peak}").ratio
        if not known(ratio) or ratio.interval is None:
            said.append(f"c{load} against the 98 % boundary: {ratio.text}")
        elif ratio.interval.holds(SHARE_OF_PEAK):
            ends = ratio.interval
            said.append(
                f"c{load} gives {100 * ratio.value:.1f} % [{100 * ends.low:.1f}, {100 * ends.high:.1f}] of c{peak}: "
                f"on either side of the 98 % boundary"
            )
    return said


def _edges(means: Mapping[int, float], chosen: int, peak_at: Sequence[int]) -> list[str]:
    loads = sorted(means)
    said = []
    if chosen == loads[0]:
        said.append(f"c{chosen} is the lowest load that was measured: the point may lie below it")
    if peak_at[-1] == loads[-1]:
        said.append(f"the peak is at the highest load, c{loads[-1]}: the rate may still grow")
    if len(peak_at) > 1:
        said.append("the peak is shared by " + ", ".join(f"c{load}" for load in peak_at))
    return said
