"""Style, types and the import direction are held by tests, so that they cannot rot."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
BOARD_SIDE = sorted((PROJECT / "src/boardbench/remote").rglob("*.py")) + sorted((PROJECT / "payloads").rglob("*.py"))


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", *command], cwd=PROJECT, capture_output=True, text=True, check=False)


def test_ruff_finds_nothing() -> None:
    done = run("ruff", "check", ".")
    assert done.returncode == 0, done.stdout + done.stderr


def test_files_are_formatted() -> None:
    done = run("ruff", "format", "--check", ".")
    assert done.returncode == 0, done.stdout + done.stderr


def test_mypy_strict_finds_nothing() -> None:
    done = run("mypy")
    assert done.returncode == 0, done.stdout + done.stderr


def test_imports_run_one_way() -> None:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", BOARD_SIDE, ids=lambda path: str(path.relative_to(PROJECT)))
def test_what_runs_on_boards_is_python_3_8(path: Path) -> None:
    ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 8))


@pytest.mark.parametrize("path", BOARD_SIDE, ids=lambda path: str(path.relative_to(PROJECT)))
def test_what_runs_on_boards_imports_only_the_standard_library(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module or ""]
        else:
            continue
        for name in names:
            top = name.split(".")[0]
            allowed = top in sys.stdlib_module_names or top == "boardbench_remote" or top in libraries_of(path)
            assert allowed, f"{path}: imports {name}"


def libraries_of(path: Path) -> frozenset[str]:
    """What a file of a payload may import beside the standard library: its own modules, and what the cluster brings."""
    payloads = PROJECT / "payloads"
    if not path.is_relative_to(payloads):
        return frozenset()
    payload = path.relative_to(payloads).parts[0]
    if not payload.startswith("npu-"):
        return frozenset(module.stem for module in (payloads / payload).glob("*.py"))
    ours = {folder.parent.name for folder in payloads.glob("npu-*/*/__init__.py")}
    # Pinned in npu-wheels; and those that only the backend needs that was asked for by name.
    return frozenset(ours | {"grpc", "google", "uvloop"} | {"numpy", "onnxruntime", "rknnlite"})


def modules() -> list[Path]:
    """All modules but the tests', on both sides. What the compiler of the protocol makes is nobody's to cut."""
    found = [path for room in ("src", "tasks", "payloads") for path in sorted((PROJECT / room).rglob("*.py"))]
    return [path for path in found if not path.name.endswith("_pb2.py")]


def test_no_module_is_longer_than_400_lines() -> None:
    long = {
        str(path.relative_to(PROJECT)): count
        for path in modules()
        if (count := len(path.read_text(encoding="utf-8").splitlines())) > 400
    }
    assert long == {}


def test_what_is_abstract_says_so_by_abc() -> None:
    """A class that raises NotImplementedError can be made, and fails only where the method is first called."""
    assert [str(path.relative_to(PROJECT)) for path in modules() if "NotImplementedError" in path.read_text()] == []
