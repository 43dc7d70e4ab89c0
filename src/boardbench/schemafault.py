"""JSON Schema errors as sentences for people: which entry, what is wrong with it, which word was probably meant."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

import jsonschema

from boardbench.errors import BugError

Nearest = Callable[[str, Iterable[str]], str | None]

_TYPE_WORDS = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "a mapping of keys",
    "null": "nothing",
}
# Keywords that judge the value itself; they wait while a value still holds a variable.
_VALUE_KEYWORDS = {"type", "enum", "const", "pattern", "format", "minLength", "maxLength", "minimum", "maximum"}


@dataclass(frozen=True)
class Fault:
    """One fault: path of the entry, what is wrong, what to do; a lower rank tells more.

    `about`: the key that is missing, or the key that was probably meant.
    """

    keys: tuple[str | int, ...]
    what: str
    advice: str
    rank: int
    about: str | None = None


def _pattern(_: Any, pattern: str, instance: object, __: Any) -> Iterable[jsonschema.ValidationError]:
    # In JSON Schema `$` is the very end; Python's `$` would also let a final newline through.
    ecma = pattern[:-1] + r"\Z" if pattern.endswith("$") else pattern
    if isinstance(instance, str) and not re.search(ecma, instance):
        yield jsonschema.ValidationError(f"{instance!r} does not match {pattern!r}")


_extend: Any = jsonschema.validators.extend
_Validator: Any = _extend(jsonschema.Draft202012Validator, {"pattern": _pattern})


@functools.cache
def validator(schema_name: str) -> Any:
    """The validator of `schemas/<schema_name>.schema.json`."""
    file = resources.files("boardbench").joinpath("schemas", f"{schema_name}.schema.json")
    try:
        schema = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BugError(f"there is no schema '{schema_name}'") from None
    _Validator.check_schema(schema)
    return _Validator(schema)


def schema_faults(data: object, schema_name: str, leave_out: Callable[[object], bool], nearest: Nearest) -> list[Fault]:
    """Every fault of the data against the schema, each once."""
    faults: dict[tuple[tuple[str | int, ...], str], Fault] = {}
    for error in validator(schema_name).iter_errors(data):
        for fault in _faults(error, leave_out, nearest):
            faults.setdefault((fault.keys, fault.what), fault)
    # `kidn: host` is one mistake, not an unknown key and a missing one.
    meant = {(fault.keys[:-1], fault.about) for fault in faults.values() if fault.rank == 0 and fault.about}
    return [fault for fault in faults.values() if fault.rank == 0 or (fault.keys, fault.about) not in meant]


def _faults(error: Any, leave_out: Callable[[object], bool], nearest: Nearest) -> Iterable[Fault]:
    keys = tuple(error.absolute_path)
    keyword = str(error.validator)
    if keyword in _VALUE_KEYWORDS and leave_out(error.instance):
        return
    if keyword in {"anyOf", "oneOf"} and error.context:
        deepest = max(len(inner.absolute_path) for inner in error.context)
        if deepest > len(keys):
            for inner in error.context:
                if len(inner.absolute_path) == deepest:
                    yield from _faults(inner, leave_out, nearest)
            return
    if keyword == "additionalProperties" and isinstance(error.instance, dict):
        yield from _unknown_keys(error, keys, nearest)
    elif "propertyNames" in error.absolute_schema_path:
        yield Fault((*keys, str(error.instance)), f"'{error.instance}' {_rule(error, 'is not a good name')}", "", 1)
    elif keyword == "required":
        for name in error.validator_value:
            if name not in error.instance:
                yield Fault(keys, f"{_entry(keys)} has no '{name}'".lstrip(), f"add '{name}:'", 4, name)
    else:
        yield _value_fault(error, keys, keyword, nearest)


def _unknown_keys(error: Any, keys: tuple[str | int, ...], nearest: Nearest) -> Iterable[Fault]:
    known: Mapping[str, object] = error.schema.get("properties", {})
    inside = error.schema.get("title")
    for key in error.instance:
        if key not in known:
            best = nearest(key, known)
            advice = f"did you mean '{best}'?" if best else f"known here: {', '.join(known)}"
            yield Fault((*keys, key), f"unknown key '{key}'" + (f" in {inside}" if inside else ""), advice, 0, best)


def _value_fault(error: Any, keys: tuple[str | int, ...], keyword: str, nearest: Nearest) -> Fault:
    value, limit, entry = error.instance, error.validator_value, _entry(keys)
    shown = _shown(value)
    if keyword == "enum":
        words = [word for word in limit if isinstance(word, str)]
        best = nearest(value, words) if isinstance(value, str) else None
        advice = f"did you mean '{best}'?" if best else f"use one of: {', '.join(map(_plain, limit))}"
        return Fault(keys, f"{entry} cannot be {shown}", advice, 1)
    if keyword == "const":
        return Fault(keys, f"{entry} cannot be {shown}", f"write {_plain(limit)}", 1)
    if keyword == "type":
        wanted = [limit] if isinstance(limit, str) else list(limit)
        types = " or ".join(_TYPE_WORDS[word] for word in wanted)
        advice = ""
        if "boolean" in wanted and isinstance(value, str) and value.lower() in {"yes", "no", "on", "off", "y", "n"}:
            advice = "'yes', 'no', 'on' and 'off' are text; write true or false"
        elif wanted == ["string"] and isinstance(value, (bool, int, float)):
            advice = f'write "{_plain(value)}" in quotes'
        return Fault(keys, f"{entry} must be {types}, not {shown}", advice, 2)
    if keyword == "pattern":
        return Fault(keys, f"{entry} is {shown}, which {_rule(error, f'does not match {limit}')}", "", 2)
    sentences = {
        "minimum": f"{entry} is {shown}; the least is {limit}",
        "exclusiveMinimum": f"{entry} is {shown}; it must be more than {limit}",
        "maximum": f"{entry} is {shown}; the most is {limit}",
        "minItems": f"{entry} needs {limit} or more items",
        "maxItems": f"{entry} takes {limit} items at most",
        "minLength": f"{entry} must not be empty",
        "maxLength": f"{entry} is longer than {limit} characters",
        "minProperties": f"{entry} needs {limit} or more keys",
        "maxProperties": f"{entry} takes {limit} keys at most",
        "uniqueItems": f"{entry} has the same item twice",
    }
    return Fault(keys, sentences.get(keyword, f"{entry}: {_rule(error, error.message)}"), "", 3)


def _rule(error: Any, otherwise: str) -> str:
    """The schema's own words for what it wants there (`description`), else a general sentence."""
    said = error.schema.get("description") if isinstance(error.schema, dict) else None
    return f"is not {said}" if said else otherwise


def _entry(keys: tuple[str | int, ...]) -> str:
    text = ""
    for key in keys:
        text += f"[{key + 1}]" if isinstance(key, int) else f".{key}" if text else key
    return f"'{text}'" if text else "the file"


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return "a mapping of keys"
    if isinstance(value, list):
        return "a list"
    if value is None:
        return "nothing"
    if isinstance(value, str):
        return f"'{value if len(value) <= 60 else value[:57] + '...'}'"
    return _plain(value)


def _plain(value: object) -> str:
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value)
