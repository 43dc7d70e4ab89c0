"""The figures of a campaign by condition (board and arm), and of every run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean, stdev

from boardbench.analysis.estimates import Unknown
from boardbench.report.campaign_report import CampaignReport
from boardbench.report.page.model import Cell, Table
from boardbench.report.page.run_view import RunView

SHORT = ("peak /s", "steady /s", "loss %", "SoC max °C", "CPU median MHz", "CPU min MHz")
"""Figures of the table that everybody reads; all are in the one of all runs."""
MOST_RUNS = 500
"""A page lists so many runs; `report --csv` has them all."""

Pick = Callable[[RunView], float | None]

FIGURES: tuple[tuple[str, Pick], ...] = (
    ("first /s", lambda run: run.throughput.first_per_s if run.throughput else None),
    ("peak /s", lambda run: run.throughput.peak_per_s if run.throughput else None),
    ("steady /s", lambda run: run.throughput.steady_per_s if run.throughput else None),
    ("loss %", lambda run: run.throughput.degradation_percent if run.throughput else None),
    ("SoC max °C", lambda run: run.heat.soc_max_celsius if run.heat else None),
    ("CPU median MHz", lambda run: run.heat.cpu_median_mhz if run.heat else None),
    ("CPU min MHz", lambda run: run.heat.cpu_min_mhz if run.heat else None),
    ("NPU MHz", lambda run: run.heat.npu_median_mhz if run.heat else None),
)


def conditions_table(runs: Sequence[RunView], report: CampaignReport) -> Table:
    """A row per board and arm over its valid repetitions: mean ± sample standard deviation where there are several."""
    groups: dict[tuple[str, str], list[RunView]] = {}
    for run in runs:
        groups.setdefault((run.board, run.arm), []).append(run)
    rows: list[tuple[Cell, ...]] = []
    marks: dict[int, str] = {}
    for (board, arm), every in groups.items():
        valid = [run for run in every if run.valid]
        marks[len(rows)] = "good" if len(valid) == len(every) else "bad"
        rows.append((
            board, arm, *(_mean([pick(run) for run in valid]) for name, pick in FIGURES if name in SHORT),
            _onset(valid), _settled(valid), f"{len(valid)} of {len(every)}",
        ))  # fmt: skip
    unit = f"rates: {report.rate_unit} per second of the controller's clock"
    spreads = [f"{arm} {'–' if ratio is None else f'{ratio:.2f} x'}" for arm, ratio in report.spreads.items()]
    return Table(
        ("board", "arm", *SHORT, "throttled at s", "settled?", "valid runs"),
        tuple(rows),
        frozenset(range(2, len(SHORT) + 3)),
        (
            f"{unit}; steady = mean of the last third of the intervals, loss = from the best median of three "
            "neighbouring intervals to it; settled? = by steps and slope of the whole record.",
            f"Spread of steady rates over boards (greatest / least): {', '.join(spreads) or 'not known'}.",
            "Only valid runs count. ± is the sample standard deviation over repetitions; n in brackets.",
        ),
        marks=marks,
    )


def runs_table(runs: Sequence[RunView]) -> Table:
    """A row per run, folded."""
    rows: list[tuple[Cell, ...]] = []
    marks: dict[int, str] = {}
    for run in runs[:MOST_RUNS]:
        marks[len(rows)] = "good" if run.valid else "bad"
        rows.append((
            run.cell, run.board, run.arm, run.repetition, *(pick(run) for _, pick in FIGURES),
            _onset([run]), _settled([run]), "yes" if run.valid else "no",
        ))  # fmt: skip
    notes = (
        (f"The first {MOST_RUNS} of {len(runs)} runs; ./inv report --csv has all.",) if len(runs) > MOST_RUNS else ()
    )
    return Table(
        ("cell", "board", "arm", "repetition", *(name for name, _ in FIGURES), "throttled at s", "settled?", "valid"),
        tuple(rows), frozenset(range(3, len(FIGURES) + 5)), notes, f"All {len(runs)} runs", folded=True, marks=marks,
    )  # fmt: skip


def _mean(values: Sequence[float | None]) -> Cell:
    found = [value for value in values if value is not None]
    if len(found) < 2:
        return found[0] if found else None
    return f"{_figure(fmean(found))} ± {_figure(stdev(found))} ({len(found)})"


def _figure(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}" if abs(value) < 100 else f"{value:.1f}"


def _onset(runs: Sequence[RunView]) -> Cell:
    """Board seconds until the allowed clock first fell: the earliest; `never` where that is known of every run."""
    known = [run.held for run in runs if not isinstance(run.held, Unknown)]
    onsets = [held.onset_s for held in known if held.onset_s is not None]
    if onsets:
        return f"{min(onsets):,.0f}" + (f" ({len(onsets)} of {len(runs)} runs)" if len(runs) > 1 else "")
    return "never" if known and len(known) == len(runs) else None


def _settled(runs: Sequence[RunView]) -> Cell:
    words = [run.steady.verdict for run in runs if run.steady is not None]
    told = [f"{word} ({words.count(word)})" if len(words) > 1 else word for word in dict.fromkeys(words)]
    return ", ".join(told) or None
