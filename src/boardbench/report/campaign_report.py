"""A campaign's figures, read from its folder: what the terminal report and `report --json` show.

Only files are read, and each attempt is used only if it is whole (every file has its hash).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from boardbench.analysis.deadtime import DeadTime
from boardbench.analysis.thermal import Heat, Throughput, spread
from boardbench.errors import InputError
from boardbench.report.dead_time import dead_time_of
from boardbench.report.stages import Stage, load_stages
from boardbench.results import store
from boardbench.results.figures import Figures, figures_of
from boardbench.results.verdict import whole_run
from boardbench.workloads.chains import label as load_label_of
from boardbench.workloads.cluster import LOAD


@dataclass(frozen=True)
class CellFigures:
    """One cell as far as it got: figures where there are raw files, reasons where it does not count."""

    board: str
    arm: str
    throughput: Throughput | None
    heat: Heat | None
    valid: bool
    invalid_reasons: tuple[str, ...]
    missing_why: str | None
    notes: tuple[str, ...]

    def as_json(self) -> dict[str, object]:
        """The figures by name with units; `null` where there is none."""
        rate, hot = self.throughput, self.heat
        return {
            "valid": self.valid,
            "invalid_reasons": list(self.invalid_reasons),
            "missing": self.missing_why,
            "notes": list(self.notes),
            "first_operations_per_s": rate.first_per_s if rate else None,
            "peak_operations_per_s": rate.peak_per_s if rate else None,
            "steady_operations_per_s": rate.steady_per_s if rate else None,
            "steady_stdev_operations_per_s": rate.steady_stdev_per_s if rate else None,
            "degradation_percent": rate.degradation_percent if rate else None,
            "soc_start_celsius": hot.soc_start_celsius if hot else None,
            "soc_max_celsius": hot.soc_max_celsius if hot else None,
            "power_max_watts": hot.power_max_watts if hot else None,
            "cpu_median_mhz": hot.cpu_median_mhz if hot else None,
            "cpu_min_mhz": hot.cpu_min_mhz if hot else None,
            "npu_median_mhz": hot.npu_median_mhz if hot else None,
            "npu_min_mhz": hot.npu_min_mhz if hot else None,
            "throttled": hot.throttled if hot else None,
            "throttle_onset_s": hot.throttle_onset_s if hot else None,
            "thermal_samples": hot.samples if hot else None,
        }


@dataclass(frozen=True)
class CampaignReport:
    """A whole campaign. `spreads` is per arm: largest over smallest steady rate of its valid cells."""

    name: str
    matrix: str
    question: str
    virtual: bool
    time_scale: float
    rate_unit: str
    cells: tuple[CellFigures, ...]
    spreads: Mapping[str, float | None]
    counts: Mapping[str, int]
    decisions: Mapping[str, Any]
    dead_time: DeadTime
    load_label: str = ""
    stages: tuple[Stage, ...] = ()

    def remarks(self) -> dict[str, list[str]]:
        """Each note once, with the cells that it is about; boards named alone when it holds in all of their arms."""
        found: dict[str, list[CellFigures]] = {}
        for cell in self.cells:
            for text in cell.notes:
                found.setdefault(text, []).append(cell)
        shown: dict[str, list[str]] = {}
        for text, cells in found.items():
            for board in dict.fromkeys(cell.board for cell in cells):
                here = [cell.arm for cell in cells if cell.board == board]
                everywhere = len(here) == len([cell for cell in self.cells if cell.board == board])
                shown.setdefault(text, []).extend([board] if everywhere else [f"{board} {arm}" for arm in here])
        return shown

    def as_json(self) -> dict[str, object]:
        """One document: per board and arm the figures, per arm the spread, the counts, and whether it is virtual."""
        boards: dict[str, dict[str, object]] = {}
        for cell in self.cells:
            boards.setdefault(cell.board, {})[cell.arm] = cell.as_json()
        return {
            "campaign": self.name,
            "matrix": self.matrix,
            "question": self.question,
            "virtual": self.virtual,
            "time_scale": self.time_scale,
            "load": self.load_label or "sustained",
            "rate_unit": f"{self.rate_unit}/s",
            "steady_is": "mean of the last third of the intervals",
            "degradation_is": "1 - steady / best median of three neighbouring intervals (fewer than three: the peak)",
            "boards": boards,
            "arms": {arm: {"steady_spread_ratio": ratio} for arm, ratio in self.spreads.items()},
            "counts": dict(self.counts),
            "decisions": dict(self.decisions),
            "dead_time_s": self.dead_time.as_json(),
            **({"stages": [stage.as_json() for stage in self.stages]} if self.stages else {}),
        }


Look = Callable[[Mapping[str, Any], Path, Mapping[str, Any], Figures], None]
"""What else to do with a run while its raw files are at hand: its cell, its folder, its run.json, its figures."""


def load_report(folder: Path, look: Look | None = None) -> CampaignReport:
    """The report of a campaign folder; `look` is called for each cell's run. Raises InputError when it is no finished
    campaign."""
    if not (folder / "campaign.json").is_file():
        raise InputError("is not a campaign folder (no campaign.json)", where=str(folder))
    if not (folder / "verdict.json").is_file():
        raise InputError(
            "the campaign has no verdict: it still runs, or its controller was killed",
            where=str(folder),
            advice=f"./inv collect {folder.name} closes it",
        )
    campaign = store.read_object(folder / "campaign.json")
    plan: dict[str, Any] = store.read_object(folder / "plan.json")
    verdict: dict[str, Any] = store.read_object(folder / "verdict.json")
    why = {entry["cell"]: entry["why"] for entry in verdict["missing"]}
    left_out = {entry["cell"] for entry in verdict["cells"] if entry["state"] == "not-selected"}
    several = plan["repeats"] > 1
    # The rate of a cluster's load is the sum of its nodes: it is no board beside them.
    loads = {"+".join(cell["boards"]) for cell in plan["cells"] if cell.get("role") == LOAD}
    judged = {entry["cell"]: entry["attempts"] for entry in verdict["cells"]}
    cells: list[CellFigures] = []
    units: set[str] = set()
    for cell in plan["cells"]:
        if cell["name"] in left_out:
            continue
        label = f"{cell['arm']}#{cell['repetition']}" if several else cell["arm"]
        figures, unit = _cell(folder, cell, label, why.get(cell["name"]), plan, judged[cell["name"]], look)
        cells.append(figures)
        units |= {unit} if unit else set()
    return CampaignReport(
        name=folder.name,
        matrix=str(plan["matrix"]),
        question=str(plan["question"]),
        virtual=bool(campaign["virtual"]),
        time_scale=float(plan["time_scale"]),
        rate_unit="/".join(sorted(units)) or "operations",
        cells=tuple(cells),
        spreads=_spreads([cell for cell in cells if cell.board not in loads]),
        counts=verdict["counts"],
        decisions=verdict["decisions"],
        dead_time=dead_time_of(folder, plan),
        load_label=load_label_of(plan["workload"]["options"]),
        stages=load_stages(folder, plan),
    )


def _spreads(cells: Sequence[CellFigures]) -> dict[str, float | None]:
    arms = dict.fromkeys(cell.arm for cell in cells)
    return {
        arm: spread([c.throughput.steady_per_s for c in cells if c.arm == arm and c.valid and c.throughput is not None])
        for arm in arms
    }


def _cell(
    folder: Path,
    cell: Mapping[str, Any],
    label: str,
    missing_why: str | None,
    plan: Mapping[str, Any],
    judged: Sequence[Mapping[str, Any]],
    look: Look | None,
) -> tuple[CellFigures, str | None]:
    """Figures of the attempt that counts (the last valid one, else the last whole one), and the unit of its rate."""
    board = "+".join(cell["boards"])
    found = [(path, run) for path in _attempts(folder, cell["name"]) if (run := whole_run(path)) is not None]
    if not found:
        why = missing_why or "its files lack or changed"
        return CellFigures(board, label, None, None, False, (), why, ()), None
    path, run = next(((p, r) for p, r in reversed(found) if r["valid"]), found[-1])
    # What only the whole campaign shows against a run stands in the verdict.
    said: Mapping[str, Any] = next((entry for entry in judged if entry["attempt"] == run["attempt"]), run)
    reasons = tuple(f"{reason['code']}: {reason['detail']}" for reason in said["invalid_reasons"])
    notes: list[str] = []
    if len(found) > 1:
        notes.append(f"attempt {run['attempt']} of {len(found)}; the others do not count")
    figures = figures_of(path, run, float(plan["time_scale"]))
    if look is not None:
        look(cell, path, run, figures)
    notes += figures.notes
    return (
        CellFigures(board, label, figures.throughput, figures.heat, bool(said["valid"]), reasons, None, tuple(notes)),
        figures.unit,
    )


def _attempts(folder: Path, cell: str) -> list[Path]:
    found = [path for path in (folder / "cells" / cell).glob("attempt-*") if path.suffix != ".partial"]
    return sorted(found, key=lambda path: int(path.name.removeprefix("attempt-")))
