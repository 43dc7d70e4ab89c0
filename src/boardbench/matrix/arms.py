"""The arms of a matrix: combinations of levels, less `exclude`, and the A/A controls beside the arms they repeat."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from boardbench.errors import InputError
from boardbench.matrix.factors import Factor


@dataclass(frozen=True)
class Arm:
    """One combination of levels. `control_of`: the arm whose levels it repeats to show the noise; `options`: what its
    levels override of the workload."""

    name: str
    levels: Mapping[str, str]
    phase: str | None
    control_of: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Control:
    """An arm that runs again under another name: whatever differs between the two is noise."""

    name: str
    of: str


@dataclass(frozen=True)
class Choice:
    """Which combinations are arms. `include` wins over `exclude`; `only` are the levels that the user restricts to."""

    include: tuple[Mapping[str, str], ...] = ()
    exclude: tuple[Mapping[str, str], ...] = ()
    only: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def arms_of(factors: Sequence[Factor], controls: Sequence[Control], choice: Choice, where: str) -> tuple[Arm, ...]:
    """Every arm, a control right after its original. Raises InputError when none is left or a name is there twice."""
    arms: list[Arm] = []
    for arm in _combinations(factors, choice):
        arms.append(arm)
        arms += [
            Arm(control.name, arm.levels, arm.phase, arm.name, arm.options)
            for control in controls
            if control.of == arm.name
        ]
    if not arms:
        raise InputError("no arm is left", where=where, advice="see exclude, include and --set")
    names = [arm.name for arm in arms]
    if doubles := sorted({name for name in names if names.count(name) > 1}):
        raise InputError(f"two arms are called '{doubles[0]}'", where=where, advice="rename a level or a control")
    return tuple(arms)


def _combinations(factors: Sequence[Factor], choice: Choice) -> Iterator[Arm]:
    for combination in itertools.product(*(factor.levels for factor in factors)):
        levels = {factor.name: level for factor, level in zip(factors, combination, strict=True)}
        if any(levels[name] not in wanted for name, wanted in choice.only.items()):
            continue
        if _fits(levels, choice.exclude) and not _fits(levels, choice.include):
            continue
        phase = next((levels[factor.name] for factor in factors if factor.kind == "phase"), None)
        name = "-".join(factor.slug(levels[factor.name]) for factor in factors)
        options = {key: value for f in factors for key, value in f.options_of(levels[f.name]).items()}
        yield Arm(name, levels, phase, None, options)


def _fits(levels: Mapping[str, str], patterns: Sequence[Mapping[str, str]]) -> bool:
    return any(all(levels[name] == level for name, level in pattern.items()) for pattern in patterns)


def blocks_of(arms: Sequence[Arm], factors: Sequence[Factor]) -> tuple[tuple[int, ...], ...]:
    """Indices of arms that stay together: equal in every blocked factor. Without such a factor: one block."""
    names = [factor.name for factor in factors if factor.blocked]
    groups: dict[tuple[str, ...], list[int]] = {}
    for index, arm in enumerate(arms):
        groups.setdefault(tuple(arm.levels[name] for name in names), []).append(index)
    return tuple(tuple(group) for group in groups.values())
