"""`${name}` in a playbook: the board's variables, put in as they are. No templates, no expressions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from boardbench.inventory import Board, Value
from boardbench.yamlfile import Document, Key, did_you_mean

_REFERENCE = re.compile(r"\$\$\{|\$\{([^}]*)(\}?)")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def variables_of(board: Board, defaults: Mapping[str, Value]) -> dict[str, Value]:
    """What `${...}` can name for a board: the playbook's defaults < the inventory < `board` and `kind`."""
    return {**defaults, **board.vars, "board": board.name, "kind": board.kind}


def holds_variable(value: object) -> bool:
    """Whether a text refers to a variable, so that its final form is not known yet."""
    return isinstance(value, str) and any(match.group(0) != "$${" for match in _REFERENCE.finditer(value))


def put_in(value: Any, variables: Mapping[str, Value], document: Document, *keys: Key) -> Any:
    """The value with every `${name}` replaced, in nested texts too; `$${` stands for `${` itself.

    A text that is one reference and nothing else takes the variable's own type. `InputError` with file:line for an
    unknown variable.
    """
    if isinstance(value, dict):
        return {key: put_in(inner, variables, document, *keys, key) for key, inner in value.items()}
    if isinstance(value, list):
        return [put_in(inner, variables, document, *keys, index) for index, inner in enumerate(value)]
    if not isinstance(value, str) or "${" not in value:
        return value

    def looked_up(match: re.Match[str]) -> Value:
        name = match.group(1)
        if not match.group(2) or not _NAME.match(name):
            raise document.error(
                *keys,
                what=f"'{match.group(0)[:40]}' is not a variable",
                advice="write ${name}, or $${ for the characters themselves",
            )
        if name not in variables:
            raise document.error(
                *keys,
                what=f"unknown variable '{name}' for board '{variables['board']}'",
                advice=did_you_mean(name, variables, kind="variables"),
            )
        return variables[name]

    whole = _REFERENCE.fullmatch(value)
    if whole is not None and whole.group(1) is not None:
        return looked_up(whole)
    return _REFERENCE.sub(lambda match: "${" if match.group(0) == "$${" else _text(looked_up(match)), value)


def _text(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
