"""The noise floor: what an arm shows against itself, and whether the bench calls that a difference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log

import numpy as np
from scipy import stats

from boardbench.analysis.estimates import LEVEL, Unknown, present


@dataclass(frozen=True)
class NoiseFloor:
    """`share`: an A/A ratio of one more such comparison stays within 1 +- share at `level` (0.01 = 1 %).

    `typical`: root mean square of the log ratios seen; `worst`: the greatest |ratio - 1| seen; `n`: A/A comparisons.
    """

    share: float
    typical: float
    worst: float
    n: int
    level: float

    @property
    def text(self) -> str:
        """For people."""
        return f"A/A noise floor {100 * self.share:.2g} % (from {self.n} A/A pairs, worst {100 * self.worst:.2g} %)"


def noise_floor(pairs: Sequence[tuple[float | None, float | None]], level: float = LEVEL) -> NoiseFloor | Unknown:
    """The floor from A/A pairs (an arm, the same arm again), each of them one comparison.

    Prediction limit for the next A/A log ratio with a mean that is 0 by definition: t(n) x root mean square, so few
    pairs give a high floor (n = 1: 12.7 times the difference that was seen). It is the floor for comparisons of the
    same kind: of single cells if the pairs are single cells, of campaign means if they are campaign means. Not
    determinable: no whole pair, or a value that is not above 0. Pairs that are exactly equal give a floor of 0: two
    counters that agree to the last digit are more likely one run read twice.
    """
    whole = [(a, b) for a, b in pairs if a is not None and b is not None]
    if not whole:
        return Unknown("there is no A/A pair")
    if min(present([value for pair in whole for value in pair])) <= 0:
        return Unknown("a value is not above 0: there is no ratio")
    logs = np.array([log(b / a) for a, b in whole])
    n = len(logs)
    typical = float(np.sqrt((logs**2).mean()))
    half = float(stats.t.ppf((1 + level) / 2, n)) * typical
    # A floor of hundreds of percent says "unknown"; exp of it must not overflow.
    return NoiseFloor(exp(min(half, 50.0)) - 1, typical, max(abs(exp(x) - 1) for x in logs.tolist()), n, level)


def twins(a: Sequence[float | None], b: Sequence[float | None]) -> bool:
    """Whether two arms carry the very same numbers throughout: one of them did not take effect, or was read twice.

    At least 2 readings in both, all equal to the last digit.
    """
    pairs = [(x, y) for x, y in zip(a, b, strict=False) if x is not None and y is not None]
    return len(pairs) >= 2 and len(a) == len(b) and all(x == y for x, y in pairs)
