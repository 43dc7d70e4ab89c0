"""The loss of a sustained rate, one definition for tables, rules, JSON and the page."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

NEIGHBOURS = 3


def best_level(rates: Sequence[float]) -> float:
    """The best median of three neighbouring rates, in their unit.

    A peak is the best of many readings and so too high by chance; one lucky reading does not move this. Fewer than
    three rates have no such median: the best of them is taken, the raw peak. ValueError for none.
    """
    if len(rates) < NEIGHBOURS:
        return float(max(rates))
    return max(float(median(rates[at : at + NEIGHBOURS])) for at in range(len(rates) - NEIGHBOURS + 1))


def loss_percent(steady: float, best: float) -> float | None:
    """How far `steady` lies below `best` (see `best_level`): 1 - steady / best, in percent; below 0 where it is above.

    None where `best` is not above 0: there is nothing to lose.
    """
    return 100.0 * (1.0 - steady / best) if best > 0 else None
