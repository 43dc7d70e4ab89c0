"""A matrix file as frozen values. All times are board time, in seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from boardbench import yamlfile
from boardbench.errors import InputError
from boardbench.inventory import Board

ALL_GATES = ("strays", "cool", "settings", "logger", "cooling", "boot-id", "load", "clock")


@dataclass(frozen=True)
class Factor:
    """What is varied. Kind `phase`: levels are states of cooling."""

    name: str
    kind: str
    levels: tuple[str, ...]


@dataclass(frozen=True)
class Cool:
    """The start temperature: the first zone type that the board has must read below the limit."""

    zone_types: tuple[str, ...]
    below_celsius: float
    timeout_s: float


@dataclass(frozen=True)
class Logger:
    """The thermal logger; `max_gap_periods`: a longer hole between two rows makes the run invalid."""

    payload: str
    period_s: float
    max_gap_periods: float


@dataclass(frozen=True)
class Metric:
    """What will be reported; locked with the plan."""

    name: str
    unit: str
    direction: str


@dataclass(frozen=True)
class Setting:
    """One kernel setting for the time of a run; `where` is file:line."""

    resource: str
    args: Mapping[str, Any]
    where: str


@dataclass(frozen=True)
class Selector:
    """Which of the given boards take part; an empty tuple does not restrict."""

    groups: tuple[str, ...]
    kinds: tuple[str, ...]
    capabilities: tuple[str, ...]


@dataclass(frozen=True)
class Matrix:
    """A set of measurements as the file states it."""

    path: Path
    name: str
    question: str
    selector: Selector
    workload: str
    workload_options: Mapping[str, Any]
    interval_s: float
    duration_s: float
    factors: tuple[Factor, ...]
    repeats: int
    order: str
    seed: int
    attempts: int
    cool: Cool | None
    settings: tuple[Setting, ...]
    logger: Logger
    metrics: tuple[Metric, ...]
    gates: tuple[str, ...]

    @property
    def phases(self) -> tuple[str, ...]:
        """The states of cooling that it varies; none when it has no such factor."""
        return tuple(level for factor in self.factors if factor.kind == "phase" for level in factor.levels)


def load_matrix(path: Path) -> Matrix:
    """Read and check a matrix file. Raises InputError with file and line."""
    document = yamlfile.load(path, "matrix")
    data: dict[str, Any] = document.data
    _check_together(document)
    workload = dict(data["workload"])
    cool = data.get("cool")
    return Matrix(
        path=path,
        name=data["name"],
        question=data["question"],
        selector=Selector(
            tuple(data["boards"].get("groups", ())),
            tuple(data["boards"].get("kinds", ())),
            tuple(data["boards"].get("capabilities", ())),
        ),
        workload=workload.pop("name"),
        interval_s=float(workload.pop("interval_s")),
        workload_options=workload,
        duration_s=float(data["duration_s"]),
        factors=tuple(Factor(name, f["kind"], tuple(f["levels"])) for name, f in data["factors"].items()),
        repeats=data.get("repeats", 1),
        order=data.get("order", "blocked"),
        seed=data.get("seed", 0),
        attempts=data.get("attempts", 1),
        cool=Cool(tuple(cool["zone_types"]), float(cool["below_celsius"]), float(cool["timeout_s"])) if cool else None,
        settings=_settings(document),
        logger=_logger(data.get("logger", {})),
        metrics=tuple(Metric(m["name"], m["unit"], m["direction"]) for m in data["metrics"]),
        gates=tuple(data.get("gates", ALL_GATES)),
    )


def choose_boards(matrix: Matrix, boards: Sequence[Board]) -> tuple[Board, ...]:
    """Those of `boards` that the matrix is for, in their order. Raises InputError when none is."""
    wanted = matrix.selector
    chosen = tuple(
        board
        for board in boards
        if (not wanted.kinds or board.kind in wanted.kinds)
        and (not wanted.groups or set(wanted.groups) & set(board.groups))
        and set(wanted.capabilities) <= board.capabilities
    )
    if not chosen:
        raise InputError(
            f"none of the {len(boards)} boards given is one that this matrix is for",
            where=str(matrix.path),
            advice="see its 'boards', and the kinds, groups and capabilities in the inventory",
        )
    return chosen


def _check_together(document: yamlfile.Document) -> None:
    data = document.data
    if data["workload"]["interval_s"] > data["duration_s"]:
        raise document.error(
            "workload", "interval_s", what="the interval is longer than the whole run", advice="make it shorter"
        )
    phases = [name for name, factor in data["factors"].items() if factor["kind"] == "phase"]
    if len(phases) > 1:
        raise document.error("factors", phases[1], what="there is a second factor of kind 'phase'", advice="keep one")
    for name in phases:
        for index, level in enumerate(data["factors"][name]["levels"]):
            if level not in ("active", "fanless"):
                raise document.error(
                    "factors", name, "levels", index,
                    what=f"'{level}' is not a phase of cooling", advice="use active or fanless",
                )  # fmt: skip


def _logger(data: Mapping[str, Any]) -> Logger:
    return Logger(
        data.get("payload", "thermal-logger"), float(data.get("period_s", 1.0)), float(data.get("max_gap_periods", 5.0))
    )


def _settings(document: yamlfile.Document) -> tuple[Setting, ...]:
    data: Mapping[str, Any] = document.data.get("settings", {})
    found: list[Setting] = []
    if "governor" in data:
        args = {"governor": data["governor"], "policies": "all"}
        found.append(Setting("governor", args, document.where("settings", "governor")))
    for name, value in data.get("sysctl", {}).items():
        args = {"name": name, "value": str(value)}
        found.append(Setting("sysctl", args, document.where("settings", "sysctl", name)))
    for index, entry in enumerate(data.get("sysfs", ())):
        args = {"path": entry["path"], "value": str(entry["value"])}
        found.append(Setting("sysfs", args, document.where("settings", "sysfs", index)))
    return tuple(found)
