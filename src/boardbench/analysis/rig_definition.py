"""Peak, steady rate and loss as the field rig defines them, so that its published figures come out of its data.

It says nothing about whether a rate has stopped falling: that is what `steady` asks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from boardbench.analysis.estimates import Unknown, present


@dataclass(frozen=True)
class RigFigures:
    """The field rig's definition. `steady_stdev`: sample deviation of the last third; None with one reading.

    `loss_percent`: 1 - steady / peak; None where the peak is 0. `word`: its own classes, none (< 3 %), mild (< 10 %),
    marked.
    """

    peak: float
    steady: float
    steady_stdev: float | None
    loss_percent: float | None
    word: str
    runs: int
    steady_runs: int

    @property
    def text(self) -> str:
        """As it was published: `peak 389.4, steady 345.4 +- 3.8, -11.3 %`."""
        spread = f" +- {self.steady_stdev:.1f}" if self.steady_stdev is not None else ""
        loss = f", {-self.loss_percent:+.1f} %" if self.loss_percent is not None else ""
        return f"peak {self.peak:.1f}, steady {self.steady:.1f}{spread}{loss}"


def rig_figures(rates: Sequence[float | None]) -> RigFigures | Unknown:
    """Peak, steady and loss by the field rig's definition; n // 3 readings (at least one) are the last third.

    It says nothing about whether the rate has stopped falling. No readings: not determinable.
    """
    found = present(rates)
    if not found:
        return Unknown("there is no rate")
    last = found[-max(1, len(found) // 3) :]
    peak, steady = max(found), fmean(last)
    loss = 100.0 * (1.0 - steady / peak) if peak > 0 else None
    word = "unknown" if loss is None else "none" if loss < 3 else "mild" if loss < 10 else "marked"
    return RigFigures(peak, steady, stdev(last) if len(last) > 1 else None, loss, word, len(found), len(last))
