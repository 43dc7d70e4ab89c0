"""Throughput over time, a panel a board, a line a run."""

from __future__ import annotations

from collections.abc import Sequence

from boardbench.analysis.estimates import Estimate
from boardbench.report.page.drawing import by_series, document, heading, minutes
from boardbench.report.page.model import Cell, Chart, Part, Table
from boardbench.report.page.run_view import RunView

HEIGHT = 150


def rate_chart(runs: Sequence[RunView], arms: Sequence[str]) -> Chart | None:
    """The chart of all runs that have intervals; None when none has."""
    drawn = [run for run in runs if run.rates]
    if not drawn:
        return None
    boards = list(dict.fromkeys(run.board for run in drawn))
    units = sorted({run.unit for run in drawn})
    end = max(run.scale * (run.rates[-1][1] - run.rates[0][0]) for run in drawn) / 60
    top = max(rate for run in drawn for _, _, rate in run.rates)
    data: dict[str, tuple[Part, ...]] = {}
    panels = []
    shown_arms = [arm for arm in arms if any(run.arm == arm for run in drawn)]
    for at, board in enumerate(boards):
        mine = [run for run in drawn if run.board == board]
        data[f"rate{at}"] = tuple(_part(run) for run in mine)
        data[f"level{at}"] = tuple(part for run in mine if (part := _level(run)) is not None)
        y = {"field": "v", "type": "quantitative", "scale": {"domain": [0, top], "nice": True},
             "axis": {"tickCount": 4, "format": "~s"}}  # fmt: skip
        x = minutes(title="minutes under load" if board == boards[-1] else None, domain=(0, end))
        few = max(len(run.rates) for run in mine) <= 60
        panels.append({
            "title": heading(board, f"{' and '.join(units)}/s"),
            "width": "fill", "height": HEIGHT,
            "layer": [
                {"data": {"name": f"rate{at}"},
                 "mark": {"type": "line", "point": {"size": 18} if few else False, "tooltip": True},
                 "encoding": {"x": x, "y": y, "detail": {"field": "r"}, **by_series(shown_arms)}},
                {"data": {"name": f"level{at}"},
                 "mark": {"type": "rule", "strokeDash": [5, 4], "strokeWidth": 1.5},
                 "encoding": {"x": x, "x2": {"field": "t2"}, "y": y, **by_series(shown_arms)}},
            ],
        })  # fmt: skip
    return Chart(
        key="throughput",
        title="Rate of every run, by board",
        says=_says(drawn, units),
        spec=document(vconcat=panels, spacing=22),
        data=data,
        table=_table(drawn),
        notes=(
            "Dashed: the level over the stretch that was found to be flat, where one was found.",
            "The axis starts at 0: heights are shares of the rate.",
        ),
    )


def _part(run: RunView) -> Part:
    first = run.rates[0][0]
    return Part(
        {"s": run.arm, "r": f"{run.arm} {run.repetition}"},
        {
            "t": [round(((start + end) / 2 - first) * run.scale / 60, 4) for start, end, _ in run.rates],
            "v": [round(rate, 4) for _, _, rate in run.rates],
        },
    )


def _level(run: RunView) -> Part | None:
    found = run.steady
    if found is None or not isinstance(found.steady, Estimate) or found.tail_from is None:
        return None
    end = (run.rates[-1][1] - run.rates[0][0]) * run.scale / 60
    return Part({"s": run.arm, "v": found.steady.value}, {"t": [found.tail_from / 60], "t2": [end]})


def _says(runs: Sequence[RunView], units: Sequence[str]) -> str:
    told = [
        f"{run.board} {run.arm}: from {run.rates[0][2]:,.0f} to {run.rates[-1][2]:,.0f}"
        + (f", {run.steady.verdict}" if run.steady else "")
        for run in runs[:12]
    ]
    more = f"; and {len(runs) - 12} more runs" if len(runs) > 12 else ""
    return f"Line chart of {' and '.join(units)} per second over minutes under load. {'; '.join(told)}{more}."


def _table(runs: Sequence[RunView]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for run in runs:
        rate, found = run.throughput, run.steady
        rows.append((
            run.board, run.arm, run.repetition,
            rate.first_per_s if rate else None, rate.peak_per_s if rate else None,
            rate.steady_per_s if rate else None, rate.degradation_percent if rate else None,
            found.verdict if found else None, found.steady.text if found else None,
            _loss(run), found.why if found else None,
        ))  # fmt: skip
    return Table(
        ("board", "arm", "repetition", "first /s", "peak /s", "mean of last third /s", "loss by it %",
         "settled?", "steady rate", "loss to the tail", "why"),
        tuple(rows), frozenset({2, 3, 4, 5, 6}),
    )  # fmt: skip


def _loss(run: RunView) -> Cell:
    if run.steady is None:
        return None
    text = run.steady.degradation.text
    return f"at least {text}" if run.steady.at_least and isinstance(run.steady.degradation, Estimate) else text
