"""What a matrix varies: factors, their levels, and what each level does. Values only; nothing here knows a board."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from boardbench.errors import InputError
from boardbench.matrix.option_values import value_of
from boardbench.yamlfile import Document

PHASES = ("active", "fanless")
NO_CAP = "none"
"""The level of a cap that lets every policy go up to its maximum."""
_SLUG = re.compile(r"[A-Za-z0-9][A-Za-z0-9.]*")


@dataclass(frozen=True)
class Setting:
    """One kernel setting for the time of a run; `where` is file:line."""

    resource: str
    args: Mapping[str, Any]
    where: str

    @property
    def target(self) -> str:
        """What is set, for people and to find two settings of one thing."""
        name = self.args.get("path") or self.args.get("name") or ""
        return f"{self.resource} {name}".strip()


@dataclass(frozen=True)
class Factor:
    """What is varied.

    - `phase`: levels are states of cooling;
    - `setting`: `settings` gives each level's kernel settings;
    - `cap`: levels are MHz (or `none`) for `scaling_max_freq` of `policies` (empty: all) on `boards` (empty: all);
    - `workload`: `options` gives each level's value of the workload's option `option`;
    - `stage`: a level sets several things at once: `settings`, and the workload's options in `bundles`.

    `blocked`: its levels need hands or restarts, so the runs of one level stay together.
    """

    name: str
    kind: str
    levels: tuple[str, ...]
    blocked: bool = False
    settings: Mapping[str, tuple[Setting, ...]] = field(default_factory=dict)
    policies: tuple[str, ...] = ()
    boards: tuple[str, ...] = ()
    option: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    bundles: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def options_of(self, level: str) -> dict[str, Any]:
        """What a level overrides of the workload."""
        own = {self.option: self.options[level]} if self.option is not None else {}
        return {**self.bundles.get(level, {}), **own}

    def slug(self, level: str) -> str:
        """The level as a part of an arm's name: a bare number gets the factor's name before it."""
        if level.replace(".", "", 1).isdigit():
            return f"{self.name.removesuffix('_mhz').replace('_', '')}{level}"
        return level

    def body(self) -> dict[str, object]:
        """The factor as the plan locks it."""
        return {
            "name": self.name,
            "kind": self.kind,
            "levels": list(self.levels),
            "blocked": self.blocked,
            "settings": {
                level: [{"resource": s.resource, "args": dict(s.args)} for s in settings]
                for level, settings in self.settings.items()
            },
            "policies": list(self.policies),
            "boards": list(self.boards),
            "option": self.option,
            "options": dict(self.options),
            **({"bundles": {level: dict(options) for level, options in self.bundles.items()}} if self.bundles else {}),
        }


def factors_of(document: Document) -> tuple[Factor, ...]:
    """The factors of a matrix file that its schema has passed. Raises InputError with file and line."""
    found = tuple(_factor(document, name, data) for name, data in document.data["factors"].items())
    phases = [factor.name for factor in found if factor.kind == "phase"]
    if len(phases) > 1:
        raise document.error("factors", phases[1], what="there is a second factor of kind 'phase'", advice="keep one")
    return found


def settings_of(document: Document) -> tuple[Setting, ...]:
    """The settings that hold in every run."""
    data: Mapping[str, Any] = document.data.get("settings", {})
    found: list[Setting] = []
    if "governor" in data:
        found.append(_governor(data["governor"], document.where("settings", "governor")))
    for name, value in data.get("sysctl", {}).items():
        args = {"name": name, "value": str(value)}
        found.append(Setting("sysctl", args, document.where("settings", "sysctl", name)))
    for index, entry in enumerate(data.get("sysfs", ())):
        args = {"path": entry["path"], "value": str(entry["value"])}
        found.append(Setting("sysfs", args, document.where("settings", "sysfs", index)))
    return tuple(found)


def check_targets(document: Document, settings: Sequence[Setting], factors: Sequence[Factor]) -> None:
    """Nothing is set twice, and each level of a factor sets the same things, else one run would leak into the next."""
    owner = {setting.target: "settings" for setting in settings}
    for factor in factors:
        mine = {level: {setting.target for setting in found} for level, found in factor.settings.items()}
        everything = set().union(*mine.values())
        for level, targets in mine.items():
            if lacking := sorted(everything - targets):
                raise document.error(
                    "factors", factor.name, "levels", level,
                    what=f"level '{level}' does not set {lacking[0]}, which another level sets",
                    advice="name its value in every level: what one run sets would stay for the next",
                )  # fmt: skip
        for target in sorted(everything):
            if target in owner:
                raise document.error(
                    "factors", factor.name,
                    what=f"{target} is set by '{factor.name}' and by '{owner[target]}'", advice="set it in one place",
                )  # fmt: skip
            owner[target] = factor.name


def _factor(document: Document, name: str, data: Mapping[str, Any]) -> Factor:
    kind: str = data["kind"]
    given = data["levels"]
    if (kind in ("setting", "stage")) != isinstance(given, Mapping):
        shape = "a mapping from each level to what it sets" if kind in ("setting", "stage") else "a list"
        raise document.error("factors", name, "levels", what=f"levels of kind '{kind}' must be {shape}")
    for key, kinds in (("policies", "cap"), ("boards", "cap"), ("option", "workload")):
        if key in data and kind != kinds:
            raise document.error("factors", name, key, what=f"'{key}' belongs to factors of kind '{kinds}' only")
    levels = tuple(_text(level) for level in given)
    if len(set(levels)) != len(levels):
        raise document.error("factors", name, "levels", what="a level is there twice", advice="keep one")
    _check_levels(document, name, kind, levels)
    policies = data.get("policies", "all")
    set_by = {level: _settings_in(document, name, level) for level in given} if isinstance(given, Mapping) else {}
    return Factor(
        name=name,
        kind=kind,
        levels=levels,
        blocked=bool(data.get("blocked", kind == "phase")),
        settings=_level_settings(document, name, set_by),
        policies=() if policies == "all" else tuple(policies),
        boards=tuple(data.get("boards", ())),
        option=data.get("option", name) if kind == "workload" else None,
        options=_level_options(document, name, levels) if kind == "workload" else {},
        bundles=_bundles(document, name) if kind == "stage" else {},
    )


def _level_options(document: Document, name: str, levels: Sequence[str]) -> dict[str, Any]:
    """What each level gives the workload."""
    data = document.data["factors"][name]
    option, at = data.get("option", name), ("factors", name)
    given = zip(levels, data["levels"], strict=True)
    return {
        level: value_of(document, option, value, (*at, "levels", index), at)
        for index, (level, value) in enumerate(given)
    }


def _bundles(document: Document, name: str) -> dict[str, dict[str, Any]]:
    """What each level of a stage gives the workload."""
    at = ("factors", name, "levels")
    return {
        str(level): {
            option: value_of(document, option, value, (*at, level, "workload", option))
            for option, value in given["workload"].items()
        }
        for level, given in document.data["factors"][name]["levels"].items()
    }


def _settings_in(document: Document, name: str, level: str) -> tuple[tuple[str | int, ...], Sequence[Any]]:
    """Where the settings of a level stand, and what they are. A level of another shape than its kind's is an error."""
    data = document.data["factors"][name]
    found = data["levels"][level]
    if isinstance(found, Mapping) != (data["kind"] == "stage"):
        shape = "a mapping with 'workload' and 'settings'" if data["kind"] == "stage" else "a list of settings"
        raise document.error("factors", name, "levels", level, what=f"a level of kind '{data['kind']}' is {shape}")
    at = ("factors", name, "levels", level)
    return ((*at, "settings"), found.get("settings", ())) if isinstance(found, Mapping) else (at, found)


def _check_levels(document: Document, name: str, kind: str, levels: Sequence[str]) -> None:
    if kind == "phase" and document.data["factors"][name].get("blocked") is False:
        raise document.error("factors", name, "blocked", what="a phase is always blocked: a fan may need a hand")
    for index, level in enumerate(levels):
        at = ("factors", name, "levels", index)
        if not _SLUG.fullmatch(level):
            raise document.error(*at, what=f"'{level}' is no level", advice="use letters, digits and dots")
        if kind == "phase" and level not in PHASES:
            raise document.error(*at, what=f"'{level}' is not a phase of cooling", advice="use active or fanless")
        if kind == "cap" and level != NO_CAP and not (_is_number(level) and float(level) > 0):
            raise document.error(*at, what=f"'{level}' is no cap", advice=f"give MHz above 0, or {NO_CAP}")
    if kind == "cap" and not name.endswith("_mhz"):
        raise document.error(
            "factors", name, what="the name of a cap does not say its unit", advice=f"call it {name}_mhz"
        )


def _text(level: object) -> str:
    return f"{level:g}" if isinstance(level, float) else str(level)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _governor(governor: str, where: str) -> Setting:
    return Setting("governor", {"governor": governor, "policies": "all"}, where)


def _level_settings(
    document: Document, name: str, levels: Mapping[str, tuple[tuple[str | int, ...], Sequence[Any]]]
) -> dict[str, tuple[Setting, ...]]:
    found: dict[str, tuple[Setting, ...]] = {}
    for level, (at, steps) in levels.items():
        settings: list[Setting] = []
        for index, step in enumerate(steps):
            where = document.where(*at, index)
            if "unit" in step:
                settings.append(Setting("unit", dict(step["unit"]), where))
            if "governor" in step:
                settings.append(_governor(step["governor"], where))
            for resource in ("sysctl", "sysfs"):
                if resource in step:
                    settings.append(Setting(resource, {k: str(v) for k, v in step[resource].items()}, where))
        targets = [setting.target for setting in settings]
        if len(set(targets)) != len(targets):
            raise document.error("factors", name, "levels", level, what="a level sets one thing twice")
        found[str(level)] = tuple(settings)
    return found


def restricted(factors: Sequence[Factor], chosen: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """Factor -> levels that the user wants, in the file's order. Raises InputError for a word that the file lacks."""
    by_name = {factor.name: factor for factor in factors}
    found: dict[str, tuple[str, ...]] = {}
    for name, levels in chosen.items():
        if name not in by_name:
            raise InputError(f"no factor '{name}'", where="--set", advice=f"there are: {', '.join(by_name)}")
        for level in levels:
            if level not in by_name[name].levels:
                raise InputError(
                    f"factor '{name}' has no level '{level}'",
                    where="--set",
                    advice=f"there are: {', '.join(by_name[name].levels)}",
                )
        found[name] = tuple(level for level in by_name[name].levels if level in levels)
    return found
