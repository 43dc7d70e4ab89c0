"""How much a comparison may differ when nothing differs.

From A/A controls, else from the repetitions, else as the rule assumes, else unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from boardbench.analysis.rules import AGGREGATES, Rule


@dataclass(frozen=True)
class Noise:
    """A noise floor in the units of the comparison.

    `source`: `controls`, `repetitions`, `assumed` or `unknown`; `n`: of how many pairs or repetitions.
    """

    value: float | None
    source: str
    n: int


UNKNOWN = Noise(None, "unknown", 0)
# Student's t for 95 % and one pair. One difference tells how large the noise can be, hardly how small: two equal arms
# differ by more than one A/A pair did every second time.
_ONE_PAIR = 12.7


def noise_of(
    rule: Rule,
    effect: float,
    pairs: Sequence[Sequence[tuple[float, float]]],
    values: Sequence[Sequence[float]],
    reference: float,
) -> Noise:
    """The noise of `effect`; `reference`: what a percentage is of, the baseline's number or the threshold.

    `pairs`, per arm: (arm, its A/A control) of one repetition. With two or more, the noise is the largest difference
    that an arm showed against itself; with a single one, Student's limit for it. `values`, per arm: its repetitions.
    Without controls the noise is the widest range of an arm's own repetitions, if every arm has two; else what the rule
    assumes. All are plain on purpose: with the two to five repetitions that a rig affords, an interval that assumes a
    distribution promises more than the data hold. Two equal arms are told apart in at most 5 % of campaigns.
    """
    flat = [pair for per_arm in pairs for pair in per_arm]
    if rule.compare == "ratio" and (any(a == 0 for a, _ in flat) or any(0 in side for side in values)):
        return UNKNOWN  # nothing is relative to 0
    if flat:
        worst = max(_scaled(rule, effect, abs(b - a), a) for a, b in flat)
        return Noise(worst * (_ONE_PAIR if len(flat) == 1 else 1.0), "controls", len(flat))
    if values and all(len(side) >= 2 for side in values):
        found = [_scaled(rule, effect, max(side) - min(side), AGGREGATES[rule.aggregate](side)) for side in values]
        return Noise(max(found), "repetitions", min(len(side) for side in values))
    if rule.assumed_noise is not None:
        return Noise(rule.assumed_noise.size.margin(rule.compare, reference), "assumed", 0)
    return UNKNOWN


def _scaled(rule: Rule, effect: float, difference: float, of: float) -> float:
    """A difference of readings in the units of the comparison: relative for a ratio, never less for a small one."""
    if rule.compare != "ratio":
        return difference
    return difference / abs(of) * max(1.0, abs(effect))
