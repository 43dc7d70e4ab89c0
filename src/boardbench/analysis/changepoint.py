"""Where the level of a series steps: binary segmentation, with the noise judged by a long-run variance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from boardbench.analysis.estimates import present
from boardbench.analysis.trend import lag1_correlation

Array = npt.NDArray[np.float64]
CRITICAL = 1.628
"""A step is told where the CUSUM passes this: 1 % of series without a step do (supremum of a Brownian bridge)."""
MIN_SEGMENT = 3


@dataclass(frozen=True)
class ChangePoint:
    """A step before reading `index` (of the readings that are there): from `before` to `after`, segment means."""

    index: int
    before: float
    after: float
    score: float

    @property
    def relative(self) -> float:
        """The step as a share of the level before it; infinite from 0."""
        return (self.after - self.before) / abs(self.before) if self.before else float("inf")


def change_points(values: Sequence[float | None], critical: float = CRITICAL) -> tuple[ChangePoint, ...]:
    """Steps of the level, in order, by binary segmentation on the CUSUM of each piece.

    The score is max |CUSUM| / (long-run standard deviation x sqrt(n)), the deviation taken around the two levels that
    the step would leave, and enlarged for correlated neighbours (AR(1)). A piece that a straight line tells as well
    as two levels has no step: ask the trend. Missing readings are left out. Fewer than 6 readings have no step. A
    step between noise-free levels has an infinite score.
    """
    found = np.asarray(present(values))
    cuts = sorted(_split(found, 0, critical))
    edges = [0, *[at for at, _ in cuts], len(found)]
    return tuple(
        ChangePoint(at, float(found[edges[k] : at].mean()), float(found[at : edges[k + 2]].mean()), score)
        for k, (at, score) in enumerate(cuts)
    )


def _split(piece: Array, offset: int, critical: float) -> list[tuple[int, float]]:
    n = len(piece)
    if n < 2 * MIN_SEGMENT:
        return []
    at, score = _best(piece)
    if score <= critical or _is_slope(piece, at):
        return []
    left, right = piece[:at], piece[at:]
    return [*_split(left, offset, critical), (offset + at, score), *_split(right, offset + at, critical)]


def _is_slope(piece: Array, at: int) -> bool:
    """Whether a straight line tells the piece as well as two levels do: then it is a trend's, not a step's."""
    x = np.arange(len(piece), dtype=float) - (len(piece) - 1) / 2
    off = piece - piece.mean()
    line = float(off @ off) - float(x @ off) ** 2 / float(x @ x)
    left, right = piece[:at], piece[at:]
    return line <= float(((left - left.mean()) ** 2).sum() + ((right - right.mean()) ** 2).sum())


def _best(piece: Array) -> tuple[int, float]:
    """The split with the greatest CUSUM, each side keeping 3 readings, and its score."""
    n = len(piece)
    sums = np.abs(np.cumsum(piece - piece.mean())[:-1])
    allowed = sums[MIN_SEGMENT - 1 : n - MIN_SEGMENT]
    at = int(np.argmax(allowed)) + MIN_SEGMENT
    left, right = piece[:at], piece[at:]
    residuals = np.concatenate([left - left.mean(), right - right.mean()])
    lag1 = min(lag1_correlation(residuals), 0.8)
    deviation = float(np.sqrt(residuals @ residuals / (n - 2) * (1 + lag1) / (1 - lag1)))
    top = float(sums[at - 1])
    if deviation <= 1e-9 * max(1.0, float(np.abs(piece).max())):
        return at, float("inf") if top > 1e-9 * n * max(1.0, float(np.abs(piece).max())) else 0.0
    return at, top / (deviation * n**0.5)
