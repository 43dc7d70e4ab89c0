"""What one token costs: a part that is always paid and a part per MiB that is read; energy and processor time a token.

Source of the definitions: the report on a MoE model streamed from storage (time per token = fixed + per-MiB x read).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from boardbench.analysis.estimates import LEVEL, Estimate, Figure, Interval, Unknown, known, present
from boardbench.analysis.line import Line, robust_line

MIN_POINTS = 6
"""Below this the robust scale of the residuals is no scale."""


@dataclass(frozen=True)
class DecodePoint:
    """One request: MiB that were read for each of its tokens, and milliseconds a token. `None` is a missing reading."""

    mib_per_token: float | None
    ms_per_token: float | None


@dataclass(frozen=True)
class Decomposition:
    """Time per token = `fixed` (ms) + `per_mib` (ms/MiB) x MiB per token.

    `bound`: tokens/s that decode would reach without any read (1000 / fixed). `residual_ms`: robust standard
    deviation around the line. `outliers`: indices of the given points further than 3 of these from it (they are kept,
    and weigh less). `line` gives the band for a drawing; None where there is no line.
    """

    fixed: Figure
    per_mib: Figure
    bound: Figure
    residual_ms: Figure
    outliers: tuple[int, ...]
    line: Line | None
    points: int
    missing: int


def decompose(points: Sequence[DecodePoint], level: float = LEVEL) -> Decomposition:
    """Splits the time of a token by a Huber line through requests, with HC3 intervals (t, n - 2).

    Units: MiB per token in, ms and ms/MiB out. The reads are taken as exact; where they are noisy the slope reads low.
    Not determinable: fewer than 6 whole points, or reads that do not differ. A point with a missing half is left out
    and counted. The intervals cover the truth in 95 % of trials with normal, proportional, heavy-tailed and
    contaminated scatter (tests: 1,000 trials each, 24 points). The bound is only given where `fixed` is above 0; its
    upper end is unbounded where the interval of `fixed` reaches 0.
    """
    kept = [
        (index, float(p.mib_per_token), float(p.ms_per_token))
        for index, p in enumerate(points)
        if p.mib_per_token is not None and p.ms_per_token is not None
    ]
    missing = len(points) - len(kept)
    present([value for _, x, y in kept for value in (x, y)])
    line = robust_line([x for _, x, _ in kept], [y for _, _, y in kept], level=level, min_points=MIN_POINTS)
    if isinstance(line, Unknown):
        return Decomposition(line, line, line, line, (), None, len(kept), missing)
    method = "Huber line over requests"
    fixed = Estimate(line.intercept, "ms", line.n, method, line.intercept_interval)
    slope = Estimate(line.slope, "ms/MiB", line.n, method, line.slope_interval)
    residual = Estimate(line.scale, "ms", line.n, "robust standard deviation around the line")
    far = tuple(kept[i][0] for i in line.outliers)
    return Decomposition(fixed, slope, decode_bound(fixed), residual, far, line, len(kept), missing)


def decode_bound(fixed: Figure) -> Figure:
    """The greatest decode rate (tokens/s) when nothing is read: 1000 / fixed ms. The interval's ends swap."""
    if not known(fixed):
        return fixed
    if fixed.value <= 0:
        return Unknown(f"the fixed part of a token is {fixed.value:.3g} ms, so the line bounds nothing")
    inside = fixed.interval
    ends = None
    if inside is not None:
        high = 1000.0 / inside.low if inside.low > 0 else float("inf")
        ends = Interval(1000.0 / inside.high, high, inside.level, inside.method)
    return Estimate(1000.0 / fixed.value, "token/s", fixed.n, "1 / fixed time of a token", ends)


def busy_per_token(utilisation_percent: float | None, token_ms: float | None) -> Figure:
    """Milliseconds a token in which a processor (the GPU) was busy: utilisation x time of a token.

    Holds only when both were taken over the same window. Not determinable: a missing reading, a utilisation outside 0
    to 100 %, a time that is not above 0.
    """
    if utilisation_percent is None or token_ms is None:
        return Unknown("the utilisation or the time of a token is missing")
    present([utilisation_percent, token_ms])
    if not 0 <= utilisation_percent <= 100 or token_ms <= 0:
        return Unknown(f"{utilisation_percent:g} % of {token_ms:g} ms is no busy time")
    return Estimate(utilisation_percent / 100.0 * token_ms, "ms/token", 1, "utilisation x time of a token")


def energy_per_token(joules: Figure, tokens: int) -> Figure:
    """Joules a token from the energy of a window (`energy` of analysis.power) and the tokens made in that same window.

    Includes what the board uses at rest. Not determinable: no energy, or no token.
    """
    if not known(joules):
        return joules
    if tokens <= 0:
        return Unknown("no token was made in the window")
    inside = joules.interval
    if inside is not None:
        inside = Interval(inside.low / tokens, inside.high / tokens, inside.level, inside.method)
    return Estimate(
        joules.value / tokens, "J/token", joules.n, "energy of the window / its tokens", inside, joules.note
    )


def energy_per_token_at(watts: float | None, tokens_per_s: float | None) -> Figure:
    """Joules a token from a mean power and a decode rate: W / (token/s); both of one window, or the figure is false."""
    if watts is None or tokens_per_s is None:
        return Unknown("the power or the decode rate is missing")
    present([watts, tokens_per_s])
    if tokens_per_s <= 0:
        return Unknown("no token was made")
    return Estimate(watts / tokens_per_s, "J/token", 1, "mean power / decode rate")


def coefficient_of_variation(values: Sequence[float | None], level: float = LEVEL) -> Figure:
    """Sample standard deviation over mean of requests or runs, in percent, missing ones left out.

    Interval: chi-square (modified McKay, Vangel 1996), for normal scatter and values below about 33 %; above, it has
    none. Not determinable: fewer than 3 values, or a mean that is not above 0.
    """
    found = np.asarray(present(values))
    if len(found) < 3:
        return Unknown(f"a coefficient of variation needs 3 values, there are {len(found)}")
    mean = float(found.mean())
    if mean <= 0:
        return Unknown(f"the mean is {mean:.3g}: nothing varies relative to it")
    share = float(found.std(ddof=1)) / mean
    ends = None if share > 0.33 else _vangel(share, len(found), level)
    return Estimate(100 * share, "percent", len(found), "sample standard deviation / mean", ends)


def _vangel(share: float, n: int, level: float) -> Interval:
    df = n - 1
    ends = []
    for quantile in ((1 + level) / 2, (1 - level) / 2):
        u = float(stats.chi2.ppf(quantile, df))
        ends.append(100 * share / np.sqrt(((u + 2) / n - 1) * share**2 + u / df))
    return Interval(float(ends[0]), float(ends[1]), level, "modified McKay")
