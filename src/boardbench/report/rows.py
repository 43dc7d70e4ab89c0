"""A campaign as CSV (RFC 4180): a row per run, units in the names, an empty field for what is not known."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from boardbench.analysis.thermal import Heat, Throughput
from boardbench.imports import stored as imports
from boardbench.report.campaign_report import load_report
from boardbench.report.cluster import cluster_of, columns_of
from boardbench.results.figures import Figures

FIGURES = (
    "first_per_s", "peak_per_s", "mean_of_last_third_per_s", "stdev_of_last_third_per_s", "loss_percent",
    "soc_start_celsius", "soc_max_celsius", "cpu_median_mhz", "cpu_min_mhz", "npu_median_mhz", "npu_min_mhz",
    "throttled", "throttle_onset_s", "thermal_samples",
)  # fmt: skip


def campaign_csv(folder: Path) -> str:
    """The whole table with its header line. Raises InputError when the folder is no finished campaign."""
    return _imported(folder) if imports.is_imported(folder) else _native(folder)


def _native(folder: Path) -> str:
    rows: dict[str, dict[str, Any]] = {}
    factors: dict[str, None] = {}

    def look(cell: Mapping[str, Any], _: Path, run: Mapping[str, Any], found: Figures) -> None:
        factors.update(dict.fromkeys(run["arm"]))
        rows[str(cell["name"])] = {
            "attempt": run["attempt"], "valid": _word(bool(run["valid"])),
            "invalid_reasons": "; ".join(f"{one['code']}: {one['detail']}" for one in run["invalid_reasons"]),
            "unit": found.unit, **{f"factor_{name}": level for name, level in run["arm"].items()},
            **_figures(found.throughput, found.heat),
        }  # fmt: skip

    report = load_report(folder, look)
    plan_cells: Sequence[Mapping[str, Any]] = _plan_cells(folder)
    cluster = columns_of(cluster_of(folder))
    more = dict.fromkeys(name for row in cluster.values() for name in row)
    names = [f"factor_{name}" for name in factors]
    head = ["campaign", "matrix", "virtual", "time_scale", "cell", "board", "arm", "repetition", "attempt", "valid",
            "missing_why", "invalid_reasons", "unit", *names, *FIGURES, *more]  # fmt: skip
    missing = {(cell.board, cell.arm): cell.missing_why for cell in report.cells}
    table = []
    for cell in plan_cells:
        found = rows.get(str(cell["name"]), {})
        board = "+".join(cell["boards"])
        why = missing.get((board, str(cell["arm"]))) or missing.get((board, f"{cell['arm']}#{cell['repetition']}"))
        table.append({
            "campaign": report.name, "matrix": report.matrix, "virtual": _word(report.virtual),
            "time_scale": report.time_scale, "cell": cell["name"], "board": board, "arm": cell["arm"],
            "repetition": cell["repetition"], "missing_why": None if found else why, "valid": _word(False), **found,
            **cluster.get(str(cell["name"]), {}),
        })  # fmt: skip
    return _text(head, table)


def _plan_cells(folder: Path) -> Sequence[Mapping[str, Any]]:
    from boardbench.results import store

    cells = store.read_object(folder / "plan.json")["cells"]
    return cells if isinstance(cells, list) else []


def _figures(rate: Throughput | None, hot: Heat | None) -> dict[str, object]:
    values: list[object] = [None] * len(FIGURES)
    if rate is not None:
        values[:5] = [
            rate.first_per_s,
            rate.peak_per_s,
            rate.steady_per_s,
            rate.steady_stdev_per_s,
            rate.degradation_percent,
        ]
    if hot is not None:
        values[5:] = [
            hot.soc_start_celsius, hot.soc_max_celsius, hot.cpu_median_mhz, hot.cpu_min_mhz, hot.npu_median_mhz,
            hot.npu_min_mhz, None if hot.throttled is None else _word(hot.throttled), hot.throttle_onset_s, hot.samples,
        ]  # fmt: skip
    return dict(zip(FIGURES, values, strict=True))


def _imported(folder: Path) -> str:
    stored = imports.load(folder)
    factors = list(dict.fromkeys(name for run in stored.measured for name in run.arm))
    metrics = list(dict.fromkeys(name for run in stored.measured for name in run.metrics))
    head = ["campaign", "matrix", "imported_from", "run", "cell", "boards", "repetition", "valid", "invalid_reasons",
            *(f"factor_{name}" for name in factors), *metrics]  # fmt: skip
    table = [
        {
            "campaign": folder.name, "matrix": stored.campaign["matrix"], "imported_from": run.source, "run": run.run,
            "cell": run.cell, "boards": "+".join(run.boards), "repetition": run.repetition, "valid": _word(run.valid),
            "invalid_reasons": "; ".join(f"{code}: {detail}" for code, detail in run.reasons),
            **{f"factor_{name}": level for name, level in run.arm.items()},
            **{name: run.number(name) for name in run.metrics},
        }
        for run in stored.measured
    ]  # fmt: skip
    return _text(head, table)


def _word(value: bool) -> str:
    return "true" if value else "false"


def _text(head: Sequence[str], rows: Sequence[Mapping[str, object]]) -> str:
    file = io.StringIO()
    writer = csv.DictWriter(file, head, lineterminator="\r\n", restval="")
    writer.writeheader()
    writer.writerows({name: _field(value) for name, value in row.items()} for row in rows)
    return file.getvalue()


def _field(value: object) -> object:
    """Text that a spreadsheet would take for a formula is kept from being one."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value
