"""The JSON Schemas of results, and one way to ask them."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from importlib import resources
from typing import Any

import jsonschema
import referencing
import referencing.jsonschema

IMPORTED = ("imported.campaign", "imported.runs", "imported.faults", "imported.facts")
NAMES = (
    "campaign",
    "plan",
    "run",
    "verdict",
    "facts",
    "thermal.meta",
    "burn.line",
    "llama.line",
    "journal.line",
    *IMPORTED,
)
SHOWN_CHARACTERS = 160


def document(name: str) -> dict[str, Any]:
    """The schema `<name>.schema.json` as it lies in the package."""
    file = resources.files("boardbench.results").joinpath("schemas", f"{name}.schema.json")
    value: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return value


@functools.cache
def _validator(name: str) -> jsonschema.Draft202012Validator:
    registry: referencing.Registry[Any] = referencing.Registry()
    for known in ("common", *NAMES):
        contents = document(known)
        resource = referencing.Resource.from_contents(contents)
        registry = registry.with_resource(contents["$id"], resource)
    return jsonschema.Draft202012Validator(document(name), registry=registry)


def faults(value: object, name: str) -> Iterator[str]:
    """Each way in which `value` is not what the schema says, as one sentence that begins with the place in it."""
    for error in _validator(name).iter_errors(value):
        best = jsonschema.exceptions.best_match([error])
        found = best if best is not None else error
        place = "/".join(str(part) for part in found.absolute_path) or "top"
        yield f"{place}: {found.message[:SHOWN_CHARACTERS]}"
