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
    """What a file of a payload may import beside the standard library: what the cluster's payloads bring themselves."""
    payloads = PROJECT / "payloads"
    if not path.is_relative_to(payloads) or not path.relative_to(payloads).parts[0].startswith("npu-"):
        return frozenset()
    ours = {folder.parent.name for folder in payloads.glob("npu-*/*/__init__.py")}
    # Pinned in npu-wheels; and those that only the backend needs that was asked for by name.
    return frozenset(ours | {"grpc", "google", "uvloop"} | {"numpy", "onnxruntime", "rknnlite"})


def test_no_module_is_longer_than_400_lines() -> None:
    long = {
        str(path.relative_to(PROJECT)): count
        for path in [*(PROJECT / "src").rglob("*.py"), *(PROJECT / "tasks").rglob("*.py")]
        if (count := len(path.read_text(encoding="utf-8").splitlines())) > 400
    }
    assert long == {}
