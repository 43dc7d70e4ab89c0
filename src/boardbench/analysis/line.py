"""A straight line that single bad points cannot bend, with intervals that hold for uneven scatter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

from boardbench.analysis.estimates import LEVEL, Interval, Unknown

Array = npt.NDArray[np.float64]
_TUNING = 1.345
"""Huber's constant: 95 % as efficient as least squares for normal scatter."""


@dataclass(frozen=True)
class Line:
    """y = intercept + slope x. `scale`: robust standard deviation around it; `outliers`: points beyond 3 of these.

    `covariance`: of (intercept, slope); `t`: the quantile that the intervals use.
    """

    intercept: float
    slope: float
    intercept_interval: Interval
    slope_interval: Interval
    scale: float
    outliers: tuple[int, ...]
    n: int
    covariance: tuple[tuple[float, float], tuple[float, float]]
    t: float

    def at(self, x: float) -> float:
        """The line's value."""
        return self.intercept + self.slope * x

    def band(self, x: float) -> tuple[float, float]:
        """The interval of the line (not of one more point) at x, pointwise at the level of the intervals."""
        (v00, v01), (_, v11) = self.covariance
        half = self.t * max(0.0, v00 + 2 * x * v01 + x * x * v11) ** 0.5
        return self.at(x) - half, self.at(x) + half


def robust_line(x: Sequence[float], y: Sequence[float], level: float = LEVEL, min_points: int = 6) -> Line | Unknown:
    """Huber regression of y on x, started from Theil-Sen, HC3 sandwich covariance, t intervals with n - 2 degrees.

    Bad y values are tamed; a lone x far from all others is not. Not determinable: fewer points than `min_points`,
    all x equal. Points exactly on a line give a scale of 0 and intervals of no width.
    """
    xs, ys = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    if len(xs) != len(ys):
        raise ValueError(f"{len(xs)} x values and {len(ys)} y values are no points")
    n = len(xs)
    if n < min_points:
        return Unknown(f"a line with intervals needs {min_points} points, there are {n}")
    if np.ptp(xs) <= 1e-12 * max(1.0, float(np.abs(xs).max())):
        return Unknown("all points lie at one x: intercept and slope cannot be told apart")
    centre = float(xs.mean())
    design = np.column_stack([np.ones(n), xs - centre])
    beta, scale = _huber(design, ys)
    residuals = ys - design @ beta
    covariance = _hc3(design, residuals, scale)
    back = np.array([[1.0, -centre], [0.0, 1.0]])
    beta, covariance = back @ beta, back @ covariance @ back.T
    t = float(stats.t.ppf((1 + level) / 2, n - 2))
    errors = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    ends = [Interval(float(b - t * e), float(b + t * e), level, "HC3, t") for b, e in zip(beta, errors, strict=True)]
    far: list[int] = np.nonzero(np.abs(residuals) > 3 * scale)[0].tolist() if scale > 0 else []
    return Line(
        intercept=float(beta[0]), slope=float(beta[1]), intercept_interval=ends[0], slope_interval=ends[1],
        scale=scale, outliers=tuple(far), n=n,
        covariance=((float(covariance[0, 0]), float(covariance[0, 1])),
                    (float(covariance[1, 0]), float(covariance[1, 1]))),
        t=t,
    )  # fmt: skip


def _huber(design: Array, y: Array) -> tuple[Array, float]:
    i, j = np.triu_indices(len(y), 1)
    runs = design[j, 1] - design[i, 1]
    apart = runs != 0
    slope = float(np.median((y[j] - y[i])[apart] / runs[apart]))
    beta = np.array([float(np.median(y - slope * design[:, 1])), slope])
    floor = 1e-12 * max(1.0, float(np.abs(y).max()))
    scale = 0.0
    for _ in range(200):
        residuals = y - design @ beta
        scale = _scale(residuals)
        if scale <= floor:
            return beta, 0.0
        weights = np.minimum(1.0, _TUNING * scale / np.maximum(np.abs(residuals), 1e-300))
        new = np.linalg.solve(design.T @ (weights[:, None] * design), design.T @ (weights * y))
        moved = float(np.max(np.abs(new - beta)))
        beta = new
        if moved <= 1e-10 * max(1.0, float(np.abs(beta).max())):
            break
    return beta, scale


def _scale(residuals: Array) -> float:
    """Median absolute residual as a standard deviation, enlarged for the two numbers that were fitted."""
    n = len(residuals)
    middle = 1.4826 * float(np.median(np.abs(residuals)))
    if middle <= 1e-9 * float(np.abs(residuals).max(initial=0.0)):
        # More than half lie exactly on the line: the rest must still count, or the interval would have no width.
        middle = float(np.sqrt(np.mean(residuals**2)))
    return middle * float((n / (n - 2)) ** 0.5)


def _hc3(design: Array, residuals: Array, scale: float) -> Array:
    """Each point's own (bounded) residual carries the variance, enlarged by its leverage."""
    inverse = np.linalg.inv(design.T @ design)
    if scale == 0.0:
        return np.zeros((2, 2))
    leverage = np.minimum(np.einsum("ij,jk,ik->i", design, inverse, design), 0.999)
    bent = np.clip(residuals, -_TUNING * scale, _TUNING * scale)
    linear = max(float(np.mean(np.abs(residuals) <= _TUNING * scale)), 1.0 / len(residuals))
    own = bent / linear / (1.0 - leverage)
    found: Array = inverse @ (design.T @ ((own**2)[:, None] * design)) @ inverse
    return found
