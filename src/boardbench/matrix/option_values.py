"""The workload's options, wherever a matrix names them. One that the workload does not have would change nothing, and a
value that an option cannot have would fail on the boards: both are errors of the file."""

from __future__ import annotations

from typing import Any

from boardbench.schemafault import schema_faults
from boardbench.workloads.registry import workload
from boardbench.yamlfile import Document, did_you_mean, nearest

_OF_THE_MATRIX = ("name", "interval_s")
Place = tuple[str | int, ...]


def check_options(document: Document) -> None:
    """The section `workload` names options of its workload only. Raises InputError with file and line."""
    for option in document.data["workload"]:
        if option not in _OF_THE_MATRIX:
            _check_known(document, option, ("workload", option))


def value_of(document: Document, option: str, given: object, at: Place, named_at: Place | None = None) -> Any:
    """The option's value that `given` stands for: itself, or what the workload calls so in levels.

    `at`: where `given` stands; `named_at`: where the option is named, if that is elsewhere. Raises InputError with file
    and line.
    """
    _check_known(document, option, at if named_at is None else named_at)
    load = document.data["workload"]
    words = workload(load["name"]).traits.level_words.get(option, {})
    value = words.get(str(given), given)
    trial = {**document.data, "workload": {**load, option: value}}
    for fault in schema_faults(trial, "matrix", lambda _: False, nearest):
        if fault.keys[:2] == ("workload", option):
            raise document.error(
                *at, what=f"option '{option}' cannot be '{given}'",
                advice=f"levels for it: {', '.join(words)}" if words else fault.advice,
            )  # fmt: skip
    return value


def _check_known(document: Document, option: str, at: Place) -> None:
    name = document.data["workload"]["name"]
    known = workload(name).traits.options
    if option not in known:
        raise document.error(
            *at, what=f"workload {name} has no option '{option}'", advice=did_you_mean(option, known, kind="options")
        )
