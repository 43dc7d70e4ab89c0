"""Energy of a window, by the real time between readings."""

from __future__ import annotations

from boardbench.analysis.estimates import Estimate, Figure, Unknown
from boardbench.analysis.series import Series, held

WHOLE = 0.95
"""Below this share of covered time the energy of the window is not told."""


def energy(watts: Series, start_s: float, end_s: float) -> Figure:
    """Joules drawn from `start_s` to `end_s` (monotonic): trapezoids over the real intervals between readings.

    A log that is written late is no error: intervals are measured, never taken as the nominal period. A missing
    reading or a gap over 2.5 periods leaves its time out; the mean power of the covered time then stands for it, and
    `note` says so. Not determinable: less than 95 % covered, or no two neighbouring readings. Negative readings
    (idle offset of a sensor) count as they are.
    """
    if not end_s > start_s:
        return Unknown(f"the window from {start_s:g} s to {end_s:g} s has no length")
    widths, powers = held(watts, start_s, end_s)
    covered, length = float(widths.sum()), end_s - start_s
    if covered <= 0:
        return Unknown("no two neighbouring power readings inside the window")
    share = covered / length
    if share < WHOLE:
        return Unknown(f"power was read for {100 * share:.0f} % of the window, {100 * WHOLE:.0f} % are needed")
    note = "" if share > 1 - 1e-9 else f"{100 * (1 - share):.2g} % of the window filled with the mean power of the rest"
    joules = float(widths @ powers) / share
    return Estimate(joules, "J", len(widths), "trapezoids over real intervals", None, note)


def mean_power(watts: Series, start_s: float, end_s: float) -> Figure:
    """Time-weighted mean watts over the window: its energy / its length; the same edge cases."""
    joules = energy(watts, start_s, end_s)
    if isinstance(joules, Unknown):
        return joules
    method = "energy of the window / its length"
    return Estimate(joules.value / (end_s - start_s), "W", joules.n, method, None, joules.note)
