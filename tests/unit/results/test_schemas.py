"""Our own lint over the schemas: closed objects, numbers with units, one vocabulary of reasons."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

from boardbench.results import schema
from boardbench.results.problems import REASON_CODES

UNITS = ("_s", "_bytes", "_celsius", "_khz", "_hz", "_volts", "volts", "amperes", "watts", "celsius", "_per_s")


def objects(node: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(node, dict):
        yield path, node
        for key, value in node.items():
            yield from objects(value, f"{path}/{key}")
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from objects(value, f"{path}/{index}")


def is_number(node: Any) -> bool:
    if not isinstance(node, dict):
        return False
    if node.get("type") in ("number", "integer") or str(node.get("$ref", "")).endswith("number_reading"):
        return True
    return any(is_number(option) for option in node.get("anyOf", [])) or is_number(node.get("items"))


@pytest.mark.parametrize("name", ["common", *schema.NAMES])
def test_each_schema_is_a_schema(name: str) -> None:
    jsonschema.Draft202012Validator.check_schema(schema.document(name))


@pytest.mark.parametrize("name", ["common", *schema.NAMES])
def test_no_object_is_open_unless_it_says_why(name: str) -> None:
    for path, node in objects(schema.document(name)):
        if node.get("type") == "object":
            assert "additionalProperties" in node or node.get("x-open"), f"{name}{path}"


@pytest.mark.parametrize("name", ["common", *schema.NAMES])
def test_every_number_has_a_unit_in_its_name_or_beside_it(name: str) -> None:
    for path, node in objects(schema.document(name)):
        for key, value in node.get("properties", {}).items() if isinstance(node.get("properties"), dict) else ():
            if is_number(value):
                beside = "x-unit" in value or "x-unit" in (value.get("items") or {})
                assert key.endswith(UNITS) or beside, f"{name}{path}/{key}"


def test_the_schema_and_the_code_have_one_vocabulary_of_reasons() -> None:
    assert schema.document("common")["$defs"]["reason"]["properties"]["code"]["enum"] == list(REASON_CODES)
