"""How a board cools when its load ends: time constants with intervals, and the wait until it is cool enough."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp

import numpy as np
import numpy.typing as npt
from scipy import optimize, stats

from boardbench.analysis.estimates import LEVEL, Estimate, Figure, Interval, Unknown
from boardbench.analysis.series import Series
from boardbench.analysis.trend import effective_count, lag1_correlation

Array = npt.NDArray[np.float64]
MIN_READINGS = 10
MIN_FOR_TWO = 14
"""Two exponentials have five numbers to find."""
_GRID = 121


@dataclass(frozen=True)
class CoolDown:
    """T(t) = `ambient` + sum of `parts` (degC at the load's end, time constant in s).

    `slow`, `fast`: time constants in seconds, with intervals; `fast` is unknown where one exponential tells the
    readings as well. `settles_at`: the temperature that is approached, degC. `residual`: standard deviation, degC.
    """

    slow: Figure
    fast: Figure
    settles_at: float
    parts: tuple[tuple[float, float], ...]
    residual: float
    n: int
    missing: int

    def at(self, seconds: float) -> float:
        """The temperature so long after the load's end."""
        return self.settles_at + sum(size * exp(-seconds / tau) for size, tau in self.parts)

    def time_to(self, celsius: float) -> Figure:
        """Seconds from the load's end until the fit is down to `celsius`; not determinable at or below `settles_at`."""
        if celsius >= self.at(0.0):
            return Estimate(0.0, "s", self.n, "cool already when the load ended")
        if celsius <= self.settles_at:
            return Unknown(f"it settles at {self.settles_at:.1f} degC, not below {celsius:.1f}")
        longest = 100.0 * max(tau for _, tau in self.parts)
        if self.at(longest) > celsius:
            return Unknown(f"it comes no nearer to {celsius:.1f} degC than it settles, {self.settles_at:.1f}")
        found = float(optimize.brentq(lambda t: self.at(t) - celsius, 0.0, longest))
        return Estimate(found, "s", self.n, "from the fitted cool-down")


def cool_down(temperature: Series, load_end_s: float, until_s: float, level: float = LEVEL) -> CoolDown | Unknown:
    """Fits one exponential, and two where the data ask for it (corrected Akaike criterion), after the load's end.

    Seconds of the monotonic clock; degC. Intervals: profile of the squared error for one time constant, linearised for
    two; residuals that resemble their neighbours (a sensor with coarse steps) count as fewer. Not determinable: fewer
    than 10 readings, no fall, or a record too short to bound the time constant.
    """
    if not until_s > load_end_s:
        return Unknown("there is no time after the load")
    cut = temperature.inside(load_end_s, until_s)
    kept = [(t - load_end_s, v) for t, v in zip(cut.times_s, cut.values, strict=True) if v is not None]
    if len(kept) < MIN_READINGS:
        return Unknown(f"a cool-down needs {MIN_READINGS} readings after the load, there are {len(kept)}")
    at, found = np.array([t for t, _ in kept]), np.array([v for _, v in kept])
    if float(found[-3:].mean()) >= float(found[:2].max()):
        return Unknown("the temperature does not fall after the load")
    one = _one(at, found, level)
    two = _two(at, found, level) if len(kept) >= MIN_FOR_TWO else None
    if isinstance(one, Unknown) and two is None:
        return one
    missing = len(cut.values) - len(kept)
    if two is not None and (isinstance(one, Unknown) or _criterion(two[1], at, 5) < _criterion(one[1], at, 3)):
        figures, residuals, ambient, parts = two
        return CoolDown(figures[1], figures[0], ambient, parts, float(residuals.std(ddof=5)), len(kept), missing)
    if isinstance(one, Unknown):
        return one
    tau, residuals, ambient, parts = one
    fast = Unknown("one exponential tells the readings as well as two")
    return CoolDown(tau, fast, ambient, parts, float(residuals.std(ddof=3)), len(kept), missing)


_Fit = tuple[Estimate, Array, float, tuple[tuple[float, float], ...]]


def _linear(at: Array, found: Array, taus: tuple[float, ...]) -> tuple[Array, Array]:
    """Ambient and sizes for given time constants, and the residuals."""
    design = np.column_stack([np.ones(len(at)), *[np.exp(-at / tau) for tau in taus]])
    sizes, *_ = np.linalg.lstsq(design, found, rcond=None)
    return sizes, found - design @ sizes


def _one(at: Array, found: Array, level: float) -> _Fit | Unknown:
    grid = np.geomspace(max(float(np.diff(at).min()) / 4, 1e-3), 20 * float(at[-1]), _GRID)

    def error(log_tau: float) -> float:
        return float((_linear(at, found, (float(np.exp(log_tau)),))[1] ** 2).sum())

    errors = np.array([error(x) for x in np.log(grid)])
    best = int(errors.argmin())
    if best in (0, _GRID - 1):
        return Unknown(f"{at[-1]:.0f} s of cooling do not bound a time constant")
    low, high = float(np.log(grid[best - 1])), float(np.log(grid[best + 1]))
    tau = float(np.exp(optimize.minimize_scalar(error, bounds=(low, high), method="bounded").x))
    sizes, residuals = _linear(at, found, (tau,))
    worth = max(4.0, effective_count(len(at), lag1_correlation(residuals)))
    least = float((residuals**2).sum())
    if sizes[1] <= 0:
        return Unknown("the temperature does not fall towards a settled value")
    limit = least * (1 + float(stats.f.ppf(level, 1, worth - 3)) / (worth - 3)) + 1e-12
    outside = np.nonzero(errors > limit)[0]
    shorter, longer = outside[grid[outside] < tau], outside[grid[outside] > tau]
    if not len(shorter) or not len(longer):
        return Unknown(f"{at[-1]:.0f} s of cooling do not bound the time constant")
    low, high = (
        float(np.exp(optimize.brentq(lambda x: error(x) - limit, np.log(grid[edge]), np.log(tau))))
        for edge in (shorter[-1], longer[0])
    )
    ends = Interval(low, high, level, "profile of the squared error")
    figure = Estimate(tau, "s", len(at), "one exponential towards a settled temperature", ends)
    return figure, residuals, float(sizes[0]), ((float(sizes[1]), tau),)


def _two(
    at: Array, found: Array, level: float
) -> tuple[tuple[Estimate, Estimate], Array, float, tuple[tuple[float, float], ...]] | None:
    """Two time constants at least 3 apart (as a factor), both with a falling part; None where there is no such fit."""
    length = float(at[-1])
    shortest = max(float(np.diff(at).min()) / 4, 1e-3)
    best: tuple[float, Array] | None = None
    for slow, ratio in ((length / 6, 8.0), (length / 2, 15.0)):
        start = np.log([max(slow / ratio, 2 * shortest), slow])
        fit = optimize.least_squares(
            lambda x: _linear(at, found, (float(np.exp(x[0])), float(np.exp(x[1]))))[1],
            start, bounds=(np.log(shortest / 4), np.log(50 * length)), max_nfev=40,
        )  # fmt: skip
        if best is None or fit.cost < best[0]:
            best = (float(fit.cost), np.sort(fit.x))
    if best is None:
        return None
    taus = tuple(float(t) for t in np.exp(np.clip(best[1], -50, 50)))
    sizes, residuals = _linear(at, found, taus)
    if not (shortest < taus[0] < taus[1] / 3 and taus[1] < 5 * length and sizes[1] > 0 and sizes[2] > 0):
        return None
    decay = [np.exp(-at / tau) for tau in taus]
    slopes = [size * at / tau * part for size, tau, part in zip(sizes[1:], taus, decay, strict=True)]
    jacobian = np.column_stack([np.ones(len(at)), *decay, *slopes])
    worth = max(6.0, effective_count(len(at), lag1_correlation(residuals)))
    inflate = (len(at) - 5) / (worth - 5) if worth > 5 else float(len(at))
    try:
        covariance = np.linalg.inv(jacobian.T @ jacobian) * float((residuals**2).sum()) / (len(at) - 5) * inflate
    except np.linalg.LinAlgError:
        return None
    half = float(stats.t.ppf((1 + level) / 2, max(1.0, worth - 5))) * np.sqrt(np.maximum(np.diag(covariance)[3:], 0))
    figures = [
        Estimate(tau, "s", len(at), "two exponentials towards a settled temperature",
                 Interval(tau * float(np.exp(-h)), tau * float(np.exp(h)), level, "linearised, log scale"))
        for tau, h in zip(taus, half, strict=True)
    ]  # fmt: skip
    parts = tuple((float(size), tau) for size, tau in zip(sizes[1:], taus, strict=True))
    return (figures[0], figures[1]), residuals, float(sizes[0]), parts


def _criterion(residuals: Array, at: Array, parameters: int) -> float:
    """Corrected Akaike criterion; less is better."""
    n, k = len(at), parameters + 1
    square = max(float((residuals**2).mean()), 1e-12)
    return n * float(np.log(square)) + 2 * k + 2 * k * (k + 1) / (n - k - 1) if n > k + 1 else float("inf")
