"""What a parser for Python 3.8 accepts and 3.8 itself does not: generic built-ins that are evaluated when imported."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import boardbench

PACKAGE = Path(boardbench.__file__).parent
# A board that builds for itself runs the steps of a build.
MODULES = [*sorted((PACKAGE / "remote").rglob("*.py")), PACKAGE / "builds" / "steps.py"]
GENERIC_SINCE_3_9 = {"list", "dict", "tuple", "set", "frozenset", "type"}


def evaluated(tree: ast.AST) -> list[ast.AST]:
    """All nodes but those in annotations."""
    found: list[ast.AST] = []
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        found.append(node)
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns"):
                continue
            waiting += [item for item in (value if isinstance(value, list) else [value]) if isinstance(item, ast.AST)]
    return found


def faults(source: str) -> list[str]:
    tree = ast.parse(source)
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
    annotated = any(isinstance(node, (ast.AnnAssign, ast.FunctionDef)) for node in ast.walk(tree))
    found = ["no `from __future__ import annotations`"] if annotated and "annotations" not in imported else []
    for node in evaluated(tree):
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id in GENERIC_SINCE_3_9:
            found.append(f"line {node.lineno}: {node.value.id}[...] is evaluated")
    return found


def test_the_check_finds_what_it_looks_for() -> None:
    assert faults("def f(x: int) -> None: ...\n") == ["no `from __future__ import annotations`"]
    assert faults("from __future__ import annotations\nx: list[int] = []\nY = dict[str, int]\n") == [
        "line 3: dict[...] is evaluated"
    ]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_the_boards_side_can_be_imported_by_python_3_8(path: Path) -> None:
    assert faults(path.read_text(encoding="utf-8")) == []
