"""A matrix file as frozen values. All times are board time, in seconds."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from boardbench import yamlfile
from boardbench.analysis.rules import Prediction, Rule
from boardbench.errors import InputError
from boardbench.inventory import Board
from boardbench.matrix.arms import Arm, Choice, Control, arms_of
from boardbench.matrix.cluster import LoadBoard, cluster_workload
from boardbench.matrix.factors import Factor, Setting, check_targets, factors_of, restricted, settings_of
from boardbench.matrix.guard import Guard
from boardbench.matrix.option_values import check_options
from boardbench.matrix.promises import Baseline, Metric, promises_of
from boardbench.results.gatewords import DEFAULT_GATES

ALL_GATES = DEFAULT_GATES


@dataclass(frozen=True)
class Cool:
    """The start temperature: the first zone type that the board has must read below the limit."""

    zone_types: tuple[str, ...]
    below_celsius: float
    timeout_s: float


@dataclass(frozen=True)
class Logger:
    """The thermal logger; `max_gap_periods`: a longer hole between two rows makes the run invalid.

    Two periods are one row that is missing; the half is for a row that comes late.
    """

    payload: str
    period_s: float
    max_gap_periods: float


@dataclass(frozen=True)
class Selector:
    """Which of the given boards take part; an empty tuple does not restrict. `where` is file:line of the groups.

    `load`: for boards that work together, the one more that loads them.
    """

    groups: tuple[str, ...]
    kinds: tuple[str, ...]
    capabilities: tuple[str, ...]
    where: str
    load: LoadBoard | None = None


@dataclass(frozen=True)
class Matrix:
    """A set of measurements as the file states it. `limits`: of the load's control group, in bytes, as the wire has
    them."""

    path: Path
    file_sha256: str
    name: str
    question: str
    domain: str
    selector: Selector
    workload: str
    workload_options: Mapping[str, Any]
    interval_s: float
    duration_s: float
    factors: tuple[Factor, ...]
    choice: Choice
    controls: tuple[Control, ...]
    baselines: tuple[Baseline, ...]
    repeats: int
    order: str
    seed: int
    attempts: int
    cool: Cool | None
    limits: Mapping[str, int]
    guard: Guard | None
    settings: tuple[Setting, ...]
    logger: Logger
    metrics: tuple[Metric, ...]
    rules: tuple[Rule, ...]
    prediction: Prediction | None
    gates: tuple[str, ...]
    min_wall_s: float = 0.0

    @property
    def phases(self) -> tuple[str, ...]:
        """The states of cooling that it varies; none when it has no such factor."""
        return tuple(dict.fromkeys(arm.phase for arm in self.arms if arm.phase is not None))

    @property
    def arms(self) -> tuple[Arm, ...]:
        """Every arm that will run."""
        return arms_of(self.factors, self.controls, self.choice, str(self.path))

    def restrict(self, chosen: Mapping[str, Sequence[str]]) -> Matrix:
        """The same matrix with only these levels of these factors. Raises InputError for a word that it lacks."""
        only = restricted(self.factors, chosen)
        found = replace(self, choice=replace(self.choice, only=only))
        arms_of(self.factors, self.controls, found.choice, str(self.path))  # says when nothing is left
        return found


def load_matrix(path: Path) -> Matrix:
    """Read and check a matrix file. Raises InputError with file and line."""
    document = yamlfile.load(path, "matrix")
    data: dict[str, Any] = document.data
    _check_together(document)
    check_options(document)
    factors, settings = factors_of(document), settings_of(document)
    check_targets(document, settings, factors)
    choice = _choice(document, factors)
    controls = tuple(Control(control["name"], control["of"]) for control in data.get("controls", ()))
    arms = arms_of(factors, controls, choice, str(path))
    _check_controls(document, arms)
    promises = promises_of(document, [arm.name for arm in arms])
    workload = dict(data["workload"])
    cool, guard = data.get("cool"), data.get("guard")
    return Matrix(
        path=path,
        file_sha256=hashlib.sha256(yamlfile.read_bytes(path)).hexdigest(),
        name=data["name"],
        question=data["question"],
        domain=data.get("domain", ""),
        selector=Selector(
            tuple(data["boards"].get("groups", ())),
            tuple(data["boards"].get("kinds", ())),
            tuple(data["boards"].get("capabilities", ())),
            document.where("boards", *(["groups"] if "groups" in data["boards"] else [])),
            _load_board(data["boards"]),
        ),
        workload=workload.pop("name"),
        interval_s=float(workload.pop("interval_s")),
        workload_options=workload,
        duration_s=float(data["duration_s"]),
        factors=factors,
        choice=choice,
        controls=controls,
        baselines=promises.baselines,
        repeats=data.get("repeats", 1),
        order=data.get("order", "blocked"),
        seed=data.get("seed", 0),
        attempts=data.get("attempts", 1),
        cool=Cool(tuple(cool["zone_types"]), float(cool["below_celsius"]), float(cool["timeout_s"])) if cool else None,
        limits={key.replace("_mib", "_bytes"): mib << 20 for key, mib in data.get("limits", {}).items()},
        guard=Guard(tuple(guard["zone_types"]), float(guard["above_celsius"])) if guard else None,
        settings=settings,
        logger=_logger(data.get("logger", {})),
        metrics=promises.metrics,
        rules=promises.rules,
        prediction=promises.prediction,
        gates=tuple(data.get("gates", ALL_GATES)),
        min_wall_s=float(data.get("min_wall_s", 0.0)),
    )


def choose_boards(
    matrix: Matrix, boards: Sequence[Board], known_groups: Collection[str] | None = None
) -> tuple[Board, ...]:
    """Those of `boards` that the matrix is for, in their order. `known_groups` are the inventory's.

    Of boards that work together the last one is the load's.
    Raises InputError when none is, and for a group that the inventory does not have.
    """
    wanted = matrix.selector
    if known_groups is not None:
        _check_groups(wanted, known_groups)
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
    if wanted.load is None:
        return chosen
    load = wanted.load.choose(boards, chosen, str(matrix.path))
    return (*(board for board in chosen if board != load), load)


def _check_groups(wanted: Selector, known: Collection[str]) -> None:
    for group in wanted.groups:
        if group not in known:
            raise InputError(
                f"the inventory has no group '{group}'",
                where=wanted.where,
                advice=yamlfile.did_you_mean(group, known, kind="groups"),
            )


def _load_board(boards: Mapping[str, Any]) -> LoadBoard | None:
    if boards["together"] != "cluster":
        return None
    given = boards.get("load", {})
    return LoadBoard(*(tuple(given.get(key, ())) for key in ("names", "groups", "kinds")))


def _check_together(document: yamlfile.Document) -> None:
    data = document.data
    name, together = data["workload"]["name"], data["boards"]["together"]
    if (cluster_workload(name) is not None) != (together == "cluster"):
        right = "each" if together == "cluster" else "cluster"
        raise document.error("boards", "together", what=f"workload '{name}' is for 'together: {right}'", advice=right)
    if "load" in data["boards"] and together != "cluster":
        raise document.error("boards", "load", what="'load' belongs to 'together: cluster'", advice="leave it out")
    if data["workload"]["interval_s"] > data["duration_s"]:
        raise document.error(
            "workload", "interval_s", what="the interval is longer than the whole run", advice="make it shorter"
        )
    _check_chain(document)
    options = set(data["workload"]) - {"name", "interval_s"}
    # A stage may well override what the others leave as it is.
    for name, factor in data["factors"].items():
        option = factor.get("option", name)
        if factor["kind"] == "workload" and option in options:
            raise document.error(
                "workload", option, what=f"'{option}' is varied by factor '{name}'", advice="leave it out here"
            )


def _check_chain(document: yamlfile.Document) -> None:
    load: Mapping[str, Any] = document.data["workload"]
    chain = load.get("chain")
    if (load.get("mode") == "chained") != (chain is not None):
        raise document.error(
            "workload", "chain" if chain is not None else "mode",
            what="'mode: chained' and 'chain' belong together", advice="chain: {run_s: 60, gap_s: 5}, or neither",
        )  # fmt: skip
    if chain is not None and not load["interval_s"] <= chain["run_s"] <= document.data["duration_s"]:
        raise document.error(
            "workload", "chain", "run_s", what="a short run must hold an interval, and fit into the whole",
            advice="interval_s <= run_s <= duration_s",
        )  # fmt: skip


def _choice(document: yamlfile.Document, factors: Sequence[Factor]) -> Choice:
    levels = {factor.name: factor.levels for factor in factors}
    found: dict[str, tuple[dict[str, str], ...]] = {}
    for key in ("include", "exclude"):
        patterns = []
        for index, given in enumerate(document.data.get(key, ())):
            pattern = {name: str(level) for name, level in given.items()}
            for name, level in pattern.items():
                if level not in levels.get(name, ()):
                    raise document.error(
                        key, index, name, what=f"there is no factor '{name}' with level '{level}'",
                        advice=f"factors: {', '.join(levels)}",
                    )  # fmt: skip
            patterns.append(pattern)
        found[key] = tuple(patterns)
    return Choice(found["include"], found["exclude"])


def _check_controls(document: yamlfile.Document, arms: Sequence[Arm]) -> None:
    names = [arm.name for arm in arms if arm.control_of is None]
    for index, control in enumerate(document.data.get("controls", ())):
        if control["of"] not in names:
            raise document.error(
                "controls", index, "of", what=f"no arm is called '{control['of']}'",
                advice=yamlfile.did_you_mean(control["of"], names, kind="arms"),
            )  # fmt: skip


def _logger(data: Mapping[str, Any]) -> Logger:
    return Logger(
        data.get("payload", "thermal-logger"), float(data.get("period_s", 1.0)), float(data.get("max_gap_periods", 2.5))
    )
