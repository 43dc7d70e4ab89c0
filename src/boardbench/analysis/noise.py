"""How much a comparison may differ when nothing differs.

From A/A controls, else from the repetitions, each arm's own or arm and baseline of one repetition together, else as the
rule assumes, else unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log
from statistics import fmean, stdev

from scipy import stats

from boardbench.analysis.estimates import LEVEL
from boardbench.analysis.rules import AGGREGATES, Rule


@dataclass(frozen=True)
class Noise:
    """A noise floor in the units of the comparison.

    `source`: `controls`, `repetitions`, `couples`, `assumed` or `unknown`; `n`: of how many of them.
    """

    value: float | None
    source: str
    n: int


UNKNOWN = Noise(None, "unknown", 0)
# Student's t for 95 % and one pair. One difference tells how large the noise can be, hardly how small: two equal arms
# differ by more than one A/A pair did every second time.
_ONE_PAIR = 12.7
# Two couples would give an interval that holds almost any effect.
_COUPLES = 3


def noise_of(
    rule: Rule,
    effect: float,
    pairs: Sequence[Sequence[tuple[float, float]]],
    values: Sequence[Sequence[float]],
    couples: Sequence[tuple[float, float]],
    reference: float,
) -> Noise:
    """The noise of `effect`; `reference`: what a percentage is of, the baseline's number or the threshold.

    `pairs`, per arm: (arm, its A/A control) of one repetition. With two or more, the noise is the largest difference
    that an arm showed against itself; with a single one, Student's limit for it. `values`, per arm: its repetitions.
    Without controls the noise is the widest range of an arm's own repetitions, if every arm has two; or, where it is
    less, how far the effect lies from the further end of Student's interval (95 %) of the effects within one
    repetition: what a repetition does to both its arms (the room, the hour) is then no noise. `couples`: (arm,
    baseline) of one repetition, three at least. Else the noise is what the rule assumes. Two equal arms are told apart
    in at most 5 % of campaigns, whether their repetitions have something in common or not.
    """
    flat = [pair for per_arm in pairs for pair in per_arm]
    if rule.compare == "ratio" and (any(a == 0 for a, _ in flat) or any(0 in side for side in values)):
        return UNKNOWN  # nothing is relative to 0
    if flat:
        worst = max(_scaled(rule, effect, abs(b - a), a) for a, b in flat)
        return Noise(worst * (_ONE_PAIR if len(flat) == 1 else 1.0), "controls", len(flat))
    if values and all(len(side) >= 2 for side in values):
        found = [_scaled(rule, effect, max(side) - min(side), AGGREGATES[rule.aggregate](side)) for side in values]
        ranges = Noise(max(found), "repetitions", min(len(side) for side in values))
        within = _within_repetitions(rule, effect, couples)
        return ranges if within is None or within >= max(found) else Noise(within, "couples", len(couples))
    if rule.assumed_noise is not None:
        return Noise(rule.assumed_noise.size.margin(rule.compare, reference), "assumed", 0)
    return UNKNOWN


def _scaled(rule: Rule, effect: float, difference: float, of: float) -> float:
    """A difference of readings in the units of the comparison: relative for a ratio, never less for a small one."""
    if rule.compare != "ratio":
        return difference
    return difference / abs(of) * max(1.0, abs(effect))


def _within_repetitions(rule: Rule, effect: float, couples: Sequence[tuple[float, float]]) -> float | None:
    """From `effect` to the further end of the interval of the couples' own effects; None where there is none."""
    relative = rule.compare == "ratio"
    if len(couples) < _COUPLES or (relative and any(value <= 0 for couple in couples for value in couple)):
        return None
    effects = [log(a / b) if relative else a - b for a, b in couples]
    half = float(stats.t.ppf((1 + LEVEL) / 2, len(effects) - 1)) * stdev(effects) / len(effects) ** 0.5
    if relative:
        half = min(half, 50.0)  # e^50 says "unknown" as well as anything beyond it, and does not overflow
    ends = [fmean(effects) + sign * half for sign in (-1, 1)]
    return float(max(abs((exp(end) if relative else end) - effect) for end in ends))
