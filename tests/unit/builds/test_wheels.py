"""Python libraries for boards: which wheels fit, and what of a wheel a board gets."""

from __future__ import annotations

import subprocess
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from boardbench.builds import wheels
from boardbench.builds.wheels import Interpreter
from boardbench.errors import RigError

PINNED = ("small==1.0",)
R76S = Interpreter("3.12", "aarch64")


def wheel(path: Path, *names: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, f"content of {name}")
    return path


@pytest.fixture
def pip(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """A pip that brings one small wheel; its command lines."""
    calls: list[list[str]] = []

    def run(argv: Sequence[str], **_: Any) -> subprocess.CompletedProcess[str]:
        calls.append(list(argv))
        target = Path(argv[argv.index("--dest") + 1])
        wheel(target / "small-1.0.whl", "small/__init__.py", "small/fast.so", "small-1.0.data/scripts/tool")
        return subprocess.CompletedProcess(argv, 0, "", "")

    monkeypatch.setattr(wheels.subprocess, "run", run)
    return calls


def test_wheels_are_asked_for_the_boards_python_and_never_built(tmp_path: Path, pip: list[list[str]]) -> None:
    wheels.ensure(PINNED, R76S, tmp_path)
    (argv,) = pip
    assert {"--only-binary=:all:", "--no-deps", "--python-version=3.12", "--abi=cp312"} <= set(argv)
    assert "--platform=manylinux_2_17_aarch64" in argv
    assert argv[-2:] == ["--", "small==1.0"]


def test_they_are_fetched_once_and_hashed(tmp_path: Path, pip: list[list[str]]) -> None:
    first = wheels.ensure(PINNED, R76S, tmp_path)
    assert wheels.ensure(PINNED, R76S, tmp_path) == first
    assert len(pip) == 1
    assert {file.path: file.mode for file in first} == {"small/__init__.py": "0644", "small/fast.so": "0755"}


def test_another_python_gets_others(tmp_path: Path, pip: list[list[str]]) -> None:
    wheels.ensure(PINNED, R76S, tmp_path)
    wheels.ensure(PINNED, Interpreter("3.11", "x86_64"), tmp_path)
    assert len(pip) == 2


def test_what_cannot_be_had_is_one_sentence_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(argv: Sequence[str], **_: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(argv, 1, "", "WARNING: x\nERROR: No matching distribution found for small")

    monkeypatch.setattr(wheels.subprocess, "run", run)
    with pytest.raises(RigError, match=r"for Python 3\.12 on aarch64 cannot be had: No matching distribution"):
        wheels.ensure(PINNED, R76S, tmp_path)
    assert [path.name for path in (tmp_path / "builds").iterdir() if path.is_dir()] == []


def test_a_wheel_that_leads_out_of_its_folder_is_refused(tmp_path: Path) -> None:
    made = wheel(tmp_path / "bad.whl", "../outside.py")
    (tmp_path / "into").mkdir()
    with pytest.raises(RigError, match="outside"):
        wheels.unpack(made, tmp_path / "into")
    assert not (tmp_path / "outside.py").exists()


@pytest.mark.parametrize("facts", [None, {}, {"python": "2.7.18", "arch": "x86_64"}, {"python": "3.12.3"}])
def test_a_board_that_does_not_tell_its_python_is_no_guess(facts: Any) -> None:
    with pytest.raises(RigError, match="which Python"):
        wheels.interpreter_of(facts, "king")
