"""Two campaigns against each other, cell by cell. Unlike conditions are refused unless the user names them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from boardbench.analysis import aa
from boardbench.analysis.arms import Comparison, compare_paired
from boardbench.analysis.estimates import LEVEL, Unknown
from boardbench.errors import InputError
from boardbench.imports import stored as imports
from boardbench.report.campaign_report import load_report
from boardbench.results import conditions, store
from boardbench.results.figures import Figures
from boardbench.yamlfile import nearest

ALL_CELLS = "all cells"
NO_RATIO = ("degC",)
"""Units whose zero is arbitrary: 60 degC is not 1.5 times 40 degC. Their cells are compared by difference only."""


@dataclass(frozen=True)
class MeasuredCell:
    """One cell of a campaign. `values`: metric -> reading, only of a run that counts; `why`: why there is none."""

    board: str
    levels: Mapping[str, str]
    phase: str | None
    repetition: int
    values: Mapping[str, float | None]
    why: str
    control_of: Mapping[str, str] | None = None

    def key(self, without: str | None) -> tuple[str, tuple[tuple[str, str], ...], int]:
        """What it is paired by: board, levels (one factor left out), repetition."""
        levels = tuple(sorted((name, level) for name, level in self.levels.items() if name != without))
        return self.board, levels, self.repetition


@dataclass(frozen=True)
class Measured:
    """A campaign, ready to be compared. `units`: metric -> unit; `better`: metric -> direction."""

    name: str
    matrix: str
    folder: Path
    virtual: bool
    imported: bool
    cells: tuple[MeasuredCell, ...]
    units: Mapping[str, str]
    better: Mapping[str, str]
    phase_factor: str | None


@dataclass(frozen=True)
class PairedCell:
    """The same cell of both, for one metric; None where there is no reading, and why."""

    board: str
    arm: str
    repetition: int
    metric: str
    a: float | None
    b: float | None
    why: str

    unit: str = ""

    @property
    def ratio(self) -> float | None:
        """b / a; None without both, where a is 0, or where the unit has no true zero."""
        if self.a is None or self.b is None or self.a == 0 or self.unit in NO_RATIO:
            return None
        return self.b / self.a

    @property
    def difference(self) -> float | None:
        """b - a; None without both."""
        return None if self.a is None or self.b is None else self.b - self.a


@dataclass(frozen=True)
class Row:
    """One comparison: a metric over all cells, or over those of one arm. `noise`: its A/A noise floor in words."""

    metric: str
    arm: str
    unit: str
    better: str
    comparison: Comparison
    noise: str

    @property
    def meaning(self) -> str:
        """better, worse, or nothing where no direction is better or nothing was decided."""
        verdict = self.comparison.verdict
        if verdict not in ("higher", "lower") or self.better not in ("higher-is-better", "lower-is-better"):
            return ""
        return "better" if (verdict == "higher") == (self.better == "higher-is-better") else "worse"


@dataclass(frozen=True)
class Compared:
    """B against the baseline A. `despite`: unlike conditions that the user named, as (name, in A, in B)."""

    a: Measured
    b: Measured
    rows: tuple[Row, ...]
    cells: tuple[PairedCell, ...]
    despite: tuple[tuple[str, str, str], ...]
    only_a: int
    only_b: int
    minimum_effect: float

    @property
    def twins(self) -> tuple[str, ...]:
        """Metrics whose numbers are the very same in both throughout: one campaign may be a copy of the other."""
        metrics = dict.fromkeys(cell.metric for cell in self.cells)
        return tuple(
            name for name in metrics
            if aa.twins([c.a for c in self.cells if c.metric == name], [c.b for c in self.cells if c.metric == name])
        )  # fmt: skip

    def as_json(self) -> dict[str, object]:
        """All of it."""
        return {
            "a": {"campaign": self.a.name, "matrix": self.a.matrix, "virtual": self.a.virtual},
            "b": {"campaign": self.b.name, "matrix": self.b.matrix, "virtual": self.b.virtual},
            "ratio_is": "b / a",
            "baseline": self.a.name,
            "despite": [{"condition": name, "a": one, "b": other} for name, one, other in self.despite],
            "minimum_effect_share": self.minimum_effect,
            "twins": list(self.twins),
            "only_in_a": self.only_a,
            "only_in_b": self.only_b,
            "comparisons": [
                {
                    "metric": row.metric,
                    "unit": row.unit,
                    "arm": row.arm,
                    "ratio": row.comparison.ratio.as_json(),
                    "verdict": row.comparison.verdict,
                    "means": row.meaning,
                    "bar_share": row.comparison.bar,
                    "noise_floor": row.noise,
                    "how": row.comparison.how,
                    "why": row.comparison.why,
                    "pairs": row.comparison.pairs,
                    "missing": row.comparison.missing,
                }
                for row in self.rows
            ],
            "cells": [
                {
                    "board": cell.board,
                    "arm": cell.arm,
                    "repetition": cell.repetition,
                    "metric": cell.metric,
                    "a": cell.a,
                    "b": cell.b,
                    "ratio": cell.ratio,
                    "difference": cell.difference,
                    "why": cell.why,
                }
                for cell in self.cells
            ],
        }


def compare(
    folder_a: Path, folder_b: Path, metric: str = "", despite: Sequence[str] = (), minimum_effect: float = 0.01
) -> Compared:
    """B against A. Raises InputError for unlike conditions that `despite` does not name, no shared cell or metric."""
    for name in despite:
        if name not in conditions.NAMES:
            near = nearest(name, conditions.NAMES)
            raise InputError(
                f"no condition '{name}'",
                where="--despite",
                advice=f"did you mean '{near}'?" if near else f"there are: {', '.join(conditions.NAMES)}",
            )
    if folder_a.resolve() == folder_b.resolve():
        raise InputError(f"{folder_a.name} is compared with itself", advice="name two campaigns")
    a, b = measured(folder_a), measured(folder_b)
    free = "cooling" in despite
    cells_a = _by_key(a, a.phase_factor if free else None)
    cells_b = _by_key(b, b.phase_factor if free else None)
    shared = [key for key in cells_a if key in cells_b]
    if not shared:
        raise InputError(
            f"{a.name} and {b.name} have no cell in common (board, arm and repetition)",
            advice="compare campaigns of the same matrix"
            + ("" if free else "; --despite cooling pairs cells of different cooling phases"),
        )
    known = _refuse_unlike(a, b, [(cells_a[key], cells_b[key]) for key in shared], despite)
    wanted = _metrics(a, b, metric)
    floors = {name: _noise(a, b, name) for name in wanted}
    cells = tuple(_pair(key, name, cells_a[key], cells_b[key], a.units[name]) for name in wanted for key in shared)
    return Compared(
        a, b, _rows(a, b, cells, floors, minimum_effect), cells, known,
        len(cells_a) - len(shared), len(cells_b) - len(shared), minimum_effect,
    )  # fmt: skip


def measured(folder: Path) -> Measured:
    """A campaign's cells with the readings of its metrics. Raises InputError when it is no finished campaign."""
    return _imported(folder) if imports.is_imported(folder) else _native(folder)


def _native(folder: Path) -> Measured:
    plan: dict[str, Any] = store.read_object(folder / "plan.json")
    found: dict[str, tuple[bool, dict[str, float | None]]] = {}

    def look(cell: Mapping[str, Any], _: Path, run: Mapping[str, Any], figures: Figures) -> None:
        values = {
            one["name"]: figures.value_of(plan["workload"]["name"], one["from"], one["unit"])[0]
            for one in plan["metrics"]
        }
        found[str(cell["name"])] = (bool(run["valid"]), values)

    report = load_report(folder, look)
    arms = {arm["name"]: arm for arm in plan["arms"]}
    cells = []
    for cell in plan["cells"]:
        arm = arms[cell["arm"]]
        valid, values = found.get(str(cell["name"]), (False, {}))
        origin = arms[arm["control_of"]]["levels"] if arm["control_of"] else None
        cells.append(MeasuredCell(
            "+".join(cell["boards"]), arm["levels"], arm["phase"], int(cell["repetition"]), values if valid else {},
            "" if valid else ("the run does not count" if cell["name"] in found else "there is no run"), origin,
        ))  # fmt: skip
    factor = next((one["name"] for one in plan["factors"] if one["kind"] == "phase"), None)
    return Measured(
        folder.name, report.matrix, folder, report.virtual, False, tuple(cells),
        {one["name"]: one["unit"] for one in plan["metrics"]},
        {one["name"]: one["direction"] for one in plan["metrics"]}, factor,
    )  # fmt: skip


def _imported(folder: Path) -> Measured:
    stored = imports.load(folder)
    names = list(dict.fromkeys(name for run in stored.measured for name in run.metrics))
    seen: dict[object, int] = {}
    cells = []
    for run in stored.measured:
        boards, levels = "+".join(run.boards), tuple(sorted(run.arm.items()))
        # Sources number repetitions as they like: the n-th run of an arm is its n-th repetition.
        seen[(boards, levels)] = seen.get((boards, levels), 0) + 1
        values = {name: run.number(name) for name in names} if run.valid else {}
        cells.append(MeasuredCell(boards, run.arm, run.phase, seen[(boards, levels)], values,
                                  "" if run.valid else "the run does not count"))  # fmt: skip
    units = dict.fromkeys(names, "in its name")
    return Measured(folder.name, str(stored.campaign["matrix"]), folder, False, True, tuple(cells), units,
                    {name: _direction(name) for name in names}, None)  # fmt: skip


def _direction(metric: str) -> str:
    if metric.endswith("_per_s"):
        return "higher-is-better"
    return "lower-is-better" if metric.startswith("latency_") or metric == "error_share" else "none"


def _by_key(campaign: Measured, without: str | None) -> dict[object, MeasuredCell]:
    """Cells by what they are paired by; controls are left out: they repeat what is there."""
    found: dict[object, MeasuredCell] = {}
    for cell in campaign.cells:
        if cell.control_of is not None:
            continue
        key = cell.key(without)
        if key in found:
            raise InputError(
                f"several cells of {campaign.name} are alike but for '{without}'",
                advice="compare campaigns of one cooling phase each (bench --set), or leave out --despite cooling",
            )
        found[key] = cell
    return found


def _refuse_unlike(
    a: Measured, b: Measured, pairs: Sequence[tuple[MeasuredCell, MeasuredCell]], despite: Sequence[str]
) -> tuple[tuple[str, str, str], ...]:
    def told(campaign: Measured, cells: Sequence[MeasuredCell]) -> dict[str, str]:
        phases = [cell.phase for cell in cells]
        if campaign.imported:
            return conditions.of_import(phases)
        return conditions.of_campaign(campaign.folder, list(dict.fromkeys(cell.board for cell in cells)), phases)

    found = conditions.unlike(told(a, [one for one, _ in pairs]), told(b, [other for _, other in pairs]))
    refused = [entry for entry in found if entry[0] not in despite]
    if refused:
        texts = "; ".join(f"{name}: {_short(one)} against {_short(other)}" for name, one, other in refused)
        raise InputError(
            f"{a.name} and {b.name} were not measured under like conditions: {texts}",
            advice=f"if that is what you mean to compare: --despite {','.join(name for name, _, _ in found)}",
        )
    return found


def _short(text: str) -> str:
    return text if len(text) <= 120 else f"{text[:119]}…"


def _metrics(a: Measured, b: Measured, wanted: str) -> list[str]:
    shared = [name for name in a.units if b.units.get(name) == a.units[name]]
    if wanted and wanted not in shared:
        near = nearest(wanted, shared)
        raise InputError(
            f"no metric '{wanted}' in both campaigns",
            where="--metric",
            advice=f"did you mean '{near}'?" if near else f"there are: {', '.join(shared) or 'none'}",
        )
    if not shared:
        raise InputError(f"{a.name} and {b.name} have no metric in common")
    return [wanted] if wanted else shared


def _pair(key: Any, metric: str, one: MeasuredCell, other: MeasuredCell, unit: str) -> PairedCell:
    board, levels, repetition = key
    why = "; ".join(f"{name}: {cell.why}" for name, cell in (("A", one), ("B", other)) if cell.why)
    arm = ", ".join(f"{name}={level}" for name, level in levels) or "all"
    return PairedCell(board, arm, repetition, metric, one.values.get(metric), other.values.get(metric), why, unit)


def _rows(
    a: Measured, b: Measured, cells: Sequence[PairedCell], floors: Mapping[str, tuple[float, str]], minimum: float
) -> tuple[Row, ...]:
    """All rows as one family: each interval is widened so that they hold together, as in `arms.compare_many`."""
    groups: dict[tuple[str, str], list[tuple[float | None, float | None]]] = {}
    for name in (name for name in floors if a.units[name] not in NO_RATIO):
        mine = [cell for cell in cells if cell.metric == name]
        arms = list(dict.fromkeys(cell.arm for cell in mine))
        groups[(name, ALL_CELLS)] = [(cell.b, cell.a) for cell in mine]
        for arm in arms if len(arms) > 1 else ():
            groups[(name, arm)] = [(cell.b, cell.a) for cell in mine if cell.arm == arm]
    level = 1 - (1 - LEVEL) / max(1, len(groups))
    found = []
    for (name, arm), pairs in groups.items():
        floor, noise = floors[name]
        one = compare_paired(pairs, b.name, a.name, minimum, floor, level)
        found.append(Row(name, arm, a.units[name], a.better[name], one, noise))
    return tuple(found)


def _noise(a: Measured, b: Measured, metric: str) -> tuple[float, str]:
    """The A/A noise floor from the control arms of both, as a share; 0 and why where there is none."""
    pairs: list[tuple[float | None, float | None]] = []
    for campaign in (a, b):
        plain = {cell.key(None): cell for cell in campaign.cells if cell.control_of is None}
        for cell in campaign.cells:
            if cell.control_of is None:
                continue
            of = plain.get((cell.board, tuple(sorted(cell.control_of.items())), cell.repetition))
            if of is not None:
                pairs.append((of.values.get(metric), cell.values.get(metric)))
    if not pairs:
        return 0.0, "not known: neither campaign has an A/A control"
    found = aa.noise_floor(pairs)
    if isinstance(found, Unknown):
        return 0.0, found.text
    return found.share, found.text
