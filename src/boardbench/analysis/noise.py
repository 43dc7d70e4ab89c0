"""How much a comparison may differ when nothing differs: from A/A controls, else from the repetitions, else unknown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from boardbench.analysis.rules import AGGREGATES, Rule


@dataclass(frozen=True)
class Noise:
    """A noise floor in the units of the comparison. `source`: `controls`, `repetitions` or `unknown`; `n`: of what."""

    value: float | None
    source: str
    n: int


UNKNOWN = Noise(None, "unknown", 0)


def noise_of(
    rule: Rule, effect: float, pairs: Sequence[Sequence[tuple[float, float]]], values: Sequence[Sequence[float]]
) -> Noise:
    """The noise of `effect`.

    `pairs`, per arm: (arm, its A/A control) of one repetition. With any, the noise is the largest difference that an
    arm showed against itself. `values`, per arm: its repetitions. Without controls the noise is the widest range of
    an arm's own repetitions, if every arm has two. Both are plain on purpose: with the two to five repetitions that a
    rig affords, an interval that assumes a distribution promises more than the data hold.
    """
    flat = [pair for per_arm in pairs for pair in per_arm]
    if rule.compare == "ratio" and (any(a == 0 for a, _ in flat) or any(0 in side for side in values)):
        return UNKNOWN  # nothing is relative to 0
    if flat:
        return Noise(max(_scaled(rule, effect, abs(b - a), a) for a, b in flat), "controls", len(flat))
    if values and all(len(side) >= 2 for side in values):
        found = [_scaled(rule, effect, max(side) - min(side), AGGREGATES[rule.aggregate](side)) for side in values]
        return Noise(max(found), "repetitions", min(len(side) for side in values))
    return UNKNOWN


def _scaled(rule: Rule, effect: float, difference: float, of: float) -> float:
    """A difference of readings in the units of the comparison: relative for a ratio, never less for a small one."""
    if rule.compare != "ratio":
        return difference
    return difference / abs(of) * max(1.0, abs(effect))
