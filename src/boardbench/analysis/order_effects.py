"""Whether the order of runs, rather than the arms, made the figures: drift over a campaign, and who went first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

from boardbench.analysis.estimates import LEVEL, Estimate, Figure, Interval, Unknown, known

Array = npt.NDArray[np.float64]
CONFOUNDED = 0.8
"""Above this share of the order explained by the arms, a drift cannot be told from an effect of the arms."""


@dataclass(frozen=True)
class Ordered:
    """One run: its place in the campaign (0, 1, 2, ...), its arm, and the reading, None where it is missing."""

    place: int
    arm: str
    value: float | None


@dataclass(frozen=True)
class OrderEffect:
    """An effect of the order. `figure`: percent with its interval; `shown`: the interval leaves out 0.

    `material`: shown, and greater than the minimum effect: comparisons of this campaign need care.
    """

    figure: Figure
    shown: bool
    material: bool
    why: str


def drift(runs: Sequence[Ordered], minimum_effect: float = 0.01, level: float = LEVEL) -> OrderEffect:
    """How much readings change from the first to the last place, all arms alike, in percent.

    Least squares of the log readings on arm and place, t interval. Not determinable: fewer than 3 readings more than
    arms, a reading that is not above 0, or arms run one after another as blocks, where order and arm cannot be told
    apart. Holds for a drift that is about even; a step at one place is halved.
    """
    whole = [(run.place, run.arm, run.value) for run in runs if run.value is not None]
    names = sorted({arm for _, arm, _ in whole})
    spare = len(whole) - len(names) - 1
    if spare < 2 or not names:
        return _not(f"{len(whole)} readings of {len(names)} arms do not tell a drift")
    values = np.array([value for _, _, value in whole])
    if float(values.min()) <= 0:
        return _not("a reading is not above 0")
    place = np.array([float(at) for at, _, _ in whole])
    dummies = np.array([[arm == name for name in names] for _, arm, _ in whole], dtype=float)
    inside = place - dummies @ np.linalg.lstsq(dummies, place, rcond=None)[0]
    total = float(((place - place.mean()) ** 2).sum())
    left = float(inside @ inside)
    if total <= 0 or 1 - left / total > CONFOUNDED:
        return _not("arms were run in blocks: order and arm cannot be told apart")
    logs = np.log(values)
    slope = float(inside @ logs) / left
    residuals = logs - slope * place
    residuals = residuals - dummies @ np.linalg.lstsq(dummies, residuals, rcond=None)[0]
    half = float(stats.t.ppf((1 + level) / 2, spare)) * (float(residuals @ residuals) / spare / left) ** 0.5
    length = float(np.ptp(place))
    low, value, high = (100 * (float(np.exp(x * length)) - 1) for x in (slope - half, slope, slope + half))
    figure = Estimate(value, "percent", len(whole), "drift from first to last place", Interval(low, high, level, "t"))
    return _said(figure, minimum_effect, "drift over the campaign")


def first_mover(
    pairs: Sequence[tuple[str, float | None, float | None]], arm: str, minimum_effect: float = 0.01,
    level: float = LEVEL,
) -> OrderEffect:  # fmt: skip
    """Whether arm / baseline depends on who ran first, in percent: (ratio with `arm` first) / (ratio with it second).

    `pairs`: (name of the arm that ran first, reading of `arm`, reading of the baseline). Welch t interval on log
    ratios. Not determinable: fewer than 2 whole pairs in either order.
    """
    logs: dict[bool, list[float]] = {True: [], False: []}
    for first, a, b in pairs:
        if a is None or b is None:
            continue
        if a <= 0 or b <= 0:
            return _not("a reading is not above 0")
        logs[first == arm].append(float(np.log(a / b)))
    if min(len(found) for found in logs.values()) < 2:
        return _not(
            f"{len(logs[True])} pairs with {arm} first and {len(logs[False])} with it second; 2 of each are needed"
        )
    one, two = np.array(logs[True]), np.array(logs[False])
    parts = [float(x.var(ddof=1)) / len(x) for x in (one, two)]
    error = sum(parts) ** 0.5
    degrees = sum(parts) ** 2 / sum(p**2 / (len(x) - 1) for p, x in zip(parts, (one, two), strict=True)) if error else 1
    half = float(stats.t.ppf((1 + level) / 2, degrees)) * error
    mean = float(one.mean() - two.mean())
    low, value, high = (100 * (float(np.exp(min(x, 50.0))) - 1) for x in (mean - half, mean, mean + half))
    ends = Interval(low, high, level, "Welch's t")
    figure = Estimate(value, "percent", len(one) + len(two), f"ratio with {arm} first / with it second", ends)
    return _said(figure, minimum_effect, "effect of who ran first")


def _said(figure: Figure, minimum_effect: float, what: str) -> OrderEffect:
    if not known(figure) or figure.interval is None:
        return _not("there is no interval")
    shown = not figure.interval.holds(0.0)
    material = shown and abs(figure.value) > 100 * minimum_effect
    word = "material" if material else "shown, but under the minimum effect" if shown else "not shown"
    return OrderEffect(figure, shown, material, f"{what} {figure.text}: {word}")


def _not(why: str) -> OrderEffect:
    return OrderEffect(Unknown(why), False, False, f"not determinable: {why}")
