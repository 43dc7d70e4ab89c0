"""Two arms against each other: the ratio with an interval, and whether it says anything. Never a bare p-value.

A difference counts only when its interval leaves out 1, and the effect is beyond the minimum effect and beyond what
the same arm shows against itself (A/A).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

from boardbench.analysis.estimates import LEVEL, Estimate, Figure, Interval, Unknown, known, present

Array = npt.NDArray[np.float64]
HIGHER, LOWER, ALIKE, UNDECIDED = "higher", "lower", "alike", "undecided"
MIN_BOOTSTRAP = 5
"""Below, resamples with almost no spread make the tails of the pivot worthless: Student's t speaks alone."""
MIN_PAIRS = 3
"""Two pairs give an interval that holds almost any ratio: that is no comparison."""
RESAMPLES = 4000
_EXACT = 4096
"""Up to so many resamples (5 values: 3125) all of them are drawn instead of a sample of them."""


@dataclass(frozen=True)
class Comparison:
    """An arm against a named baseline.

    `ratio`: arm / baseline, without unit. `verdict`: higher, lower (beyond noise and minimum effect), alike (the whole
    interval lies within the minimum effect), undecided. `bar`: the effect that is needed, as a share (0.01 = 1 %):
    the greater of minimum effect and A/A noise floor. `how`: the aggregation, in words. `why` explains the verdict.
    """

    arm: str
    baseline: str
    ratio: Figure
    verdict: str
    bar: float
    how: str
    why: str
    pairs: int
    missing: int

    @property
    def text(self) -> str:
        """One phrase: `b / a: ratio 1.23 [1.19, 1.27], higher`."""
        return f"{self.arm} / {self.baseline}: ratio {self.ratio.text}, {self.verdict}"


def compare_paired(
    pairs: Sequence[tuple[float | None, float | None]],
    arm: str,
    baseline: str,
    minimum_effect: float = 0.01,
    noise_floor: float = 0.0,
    level: float = LEVEL,
    seed: int = 0,
) -> Comparison:
    """Geometric mean of arm / baseline over cells that belong together (same board, same repetition).

    `pairs`: (arm, baseline) of each cell; a pair with a missing half is left out and counted. `minimum_effect`,
    `noise_floor` (see `aa.noise_floor`): shares. Interval: studentised bootstrap of the log ratios joined with
    Student's t, the wider end of each; below 5 pairs t alone. Simulated coverage of the 95 % interval, 1,000 trials
    each with normal, log-normal and heavy-tailed (t with 3 degrees) noise: 95 to 97 % at 3 and 4 pairs, 95 to 98 %
    at 5 to 30. Not determinable: fewer than 3 pairs, or a value that is not above 0.
    """
    whole = [(a, b) for a, b in pairs if a is not None and b is not None]
    missing = len(pairs) - len(whole)
    values = present([value for pair in whole for value in pair])
    how = "geometric mean of paired ratios"
    ratio: Figure
    if len(whole) < MIN_PAIRS:
        ratio = Unknown(f"{len(whole)} pairs, {MIN_PAIRS} are needed")
    elif min(values) <= 0:
        ratio = Unknown("a value is not above 0: there is no ratio")
    else:
        logs = np.log([a for a, _ in whole]) - np.log([b for _, b in whole])
        low, high = _mean_ends(logs, level, seed)
        ends = Interval(float(np.exp(low)), float(np.exp(high)), level, _method(len(whole), "Student's t"))
        ratio = Estimate(float(np.exp(logs.mean())), "", len(whole), how, ends)
    return _judged(arm, baseline, ratio, minimum_effect, noise_floor, how, len(whole), missing)


def compare_unpaired(
    arm_values: Sequence[float | None],
    baseline_values: Sequence[float | None],
    arm: str,
    baseline: str,
    minimum_effect: float = 0.01,
    noise_floor: float = 0.0,
    level: float = LEVEL,
    seed: int = 0,
) -> Comparison:
    """Ratio of the arithmetic means of two arms whose cells do not belong together.

    Interval: studentised bootstrap of the log of the ratio (delta-method errors) joined with Welch's t, the wider end
    of each; below 5 values in an arm t alone. Simulated coverage as in `compare_paired`: 95 to 99 %. Missing values
    are left out and counted. Use the paired form whenever boards differ: here their spread is noise. Not
    determinable: fewer than 3 values in an arm, or one that is not above 0.
    """
    a, b = np.asarray(present(arm_values)), np.asarray(present(baseline_values))
    missing = len(arm_values) + len(baseline_values) - len(a) - len(b)
    how = "ratio of arithmetic means, unpaired"
    ratio: Figure
    if min(len(a), len(b)) < MIN_PAIRS:
        ratio = Unknown(f"{len(a)} and {len(b)} values, {MIN_PAIRS} in each arm are needed")
    elif min(a.min(), b.min()) <= 0:
        ratio = Unknown("a value is not above 0: there is no ratio")
    else:
        low, high = _ratio_ends(a, b, level, seed)
        ends = Interval(float(np.exp(low)), float(np.exp(high)), level, _method(min(len(a), len(b)), "Welch's t"))
        ratio = Estimate(float(a.mean() / b.mean()), "", len(a) + len(b), how, ends)
    return _judged(arm, baseline, ratio, minimum_effect, noise_floor, how, min(len(a), len(b)), missing)


def compare_many(
    arms: Mapping[str, Sequence[tuple[float | None, float | None]]],
    baseline: str,
    minimum_effect: float = 0.01,
    noise_floor: float = 0.0,
    level: float = LEVEL,
    seed: int = 0,
) -> tuple[Comparison, ...]:
    """Several arms (or metrics, or boards) against one baseline, with simultaneous intervals.

    `arms`: name -> pairs, as in `compare_paired`. Each interval is widened to 1 - (1 - level) / m (Bonferroni), so that
    all of them hold together at `level`, whatever the arms share; the verdicts follow from these.
    """
    each = 1 - (1 - level) / max(1, len(arms))
    return tuple(
        compare_paired(pairs, name, baseline, minimum_effect, noise_floor, each, seed) for name, pairs in arms.items()
    )


def _judged(
    arm: str, baseline: str, ratio: Figure, minimum: float, floor: float, how: str, pairs: int, missing: int
) -> Comparison:
    if minimum < 0 or floor < 0:
        raise ValueError("a minimum effect and a noise floor are shares of 0 or more")
    bar = max(minimum, floor)
    verdict, why = _word(ratio, minimum, floor)
    return Comparison(arm, baseline, ratio, verdict, bar, how, why, pairs, missing)


def _word(ratio: Figure, minimum: float, floor: float) -> tuple[str, str]:
    if not known(ratio) or ratio.interval is None:
        return UNDECIDED, ratio.why if isinstance(ratio, Unknown) else "the ratio has no interval"
    bar, inside = max(minimum, floor), ratio.interval
    effect = ratio.value - 1
    if inside.holds(1.0):
        if minimum > 0 and 1 - minimum <= inside.low and inside.high <= 1 + minimum:
            return ALIKE, f"the whole interval lies within the minimum effect of {100 * minimum:g} %"
        return UNDECIDED, "the interval holds 1: no difference shown, and none ruled out"
    if abs(effect) <= bar:
        what = "A/A noise floor" if floor > minimum else "minimum effect"
        return UNDECIDED, f"{100 * effect:+.2g} % is not beyond the {what} of {100 * bar:.2g} %"
    return (HIGHER if effect > 0 else LOWER), f"{100 * effect:+.3g} %, beyond {100 * bar:.2g} %"


def _draws(n: int, seed: int, level: float) -> npt.NDArray[np.int64]:
    """Row indices of bootstrap resamples: all of them where they are few, else seeded ones."""
    if n**n <= _EXACT:
        return np.stack(np.meshgrid(*[np.arange(n)] * n, indexing="ij"), axis=-1).reshape(-1, n)
    count = max(RESAMPLES, round(100 / (1 - level)))
    return np.random.default_rng(seed).integers(0, n, (min(count, 40_000), n))


def _method(n: int, by: str) -> str:
    return f"the wider of studentised bootstrap and {by}" if n >= MIN_BOOTSTRAP else by


def _pivot_ends(pivots: Array, level: float) -> tuple[float, float]:
    """Quantiles of the studentised pivots; a resample without spread has an infinite one and pushes the end out."""
    low, high = np.quantile(pivots, [(1 - level) / 2, (1 + level) / 2], method="inverted_cdf")
    return float(low), float(high)


def _mean_ends(logs: Array, level: float, seed: int) -> tuple[float, float]:
    n, mean = len(logs), float(logs.mean())
    error = float(logs.std(ddof=1)) / n**0.5
    t = float(stats.t.ppf((1 + level) / 2, n - 1))
    if error <= 1e-15:
        return mean, mean
    low, high = -t, t
    if n >= MIN_BOOTSTRAP:
        drawn = logs[_draws(n, seed, level)]
        errors = np.maximum(drawn.std(axis=1, ddof=1) / n**0.5, 1e-12 * error)
        low, high = _pivot_ends((drawn.mean(axis=1) - mean) / errors, level)
    return mean - max(high, t) * error, mean - min(low, -t) * error


def _ratio_ends(a: Array, b: Array, level: float, seed: int) -> tuple[float, float]:
    mean = float(np.log(a.mean() / b.mean()))
    parts = [float(x.var(ddof=1)) / len(x) / float(x.mean()) ** 2 for x in (a, b)]
    error = sum(parts) ** 0.5
    if error <= 1e-15:
        return mean, mean
    degrees = sum(parts) ** 2 / sum(part**2 / (len(x) - 1) for part, x in zip(parts, (a, b), strict=True))
    t = float(stats.t.ppf((1 + level) / 2, degrees))
    low, high = -t, t
    if min(len(a), len(b)) >= MIN_BOOTSTRAP:
        rng = np.random.default_rng(seed)
        count = min(max(RESAMPLES, round(100 / (1 - level))), 40_000)
        drawn = [x[rng.integers(0, len(x), (count, len(x)))] for x in (a, b)]
        means = [x.mean(axis=1) for x in drawn]
        errors = np.sqrt(sum(x.var(axis=1, ddof=1) / x.shape[1] / m**2 for x, m in zip(drawn, means, strict=True)))
        low, high = _pivot_ends((np.log(means[0] / means[1]) - mean) / np.maximum(errors, 1e-12 * error), level)
    return mean - max(high, t) * error, mean - min(low, -t) * error
