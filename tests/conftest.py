"""Fixtures that tests of several folders share."""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import settings

from boardbench import locations
from boardbench.builds import programs, toolchain
from boardbench.builds.voice import Voice
from boardbench.payload import load_payload

PROJECT = Path(__file__).resolve().parents[1]
# Before any test sets other folders: what takes ten minutes is made once for all sessions, like the base image.
CACHE = locations.cache_dir()

# A deadline per example measures how busy the machine is, not whether the property holds.
settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")


@pytest.fixture(scope="session", autouse=True)
def ledgers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder for all ledgers of this session: no campaign of a test may come into the user's own.

    It is set in the environment, so that fixtures of whole modules and programs that tests start have it too.
    """
    folder = tmp_path_factory.mktemp("ledgers")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BOARDBENCH_LEDGER", str(folder / "session"))
        yield folder


_numbers = itertools.count(1)


@pytest.fixture(autouse=True)
def own_ledger(ledgers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test's ledger is empty when it begins. (The folder is made by whoever writes the first entry.)"""
    monkeypatch.setenv("BOARDBENCH_LEDGER", str(ledgers / str(next(_numbers))))


@pytest.fixture(scope="session")
def tiny() -> ModuleType:
    """The payload with a tiny program, `unit/builds/tiny.py`: packages of tests cannot see each other."""
    spec = importlib.util.spec_from_file_location("tiny_payload", PROJECT / "tests/unit/builds/tiny.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _step(title: str, done: int, total: int) -> None:
    if done == total or done % 20 == 0:
        print(f"{title} [{done}/{total}]", flush=True)


@pytest.fixture(scope="session")
def llama_build() -> Callable[[str], Path]:
    """`llama_build("stock"|"patched")`: a folder with llama-server, llama-bench, llama-perplexity and their libraries.

    The very build that `provision` would push: taken from the user's cache, made first when it is not there.
    """
    lacking = toolchain.missing(toolchain.controller_arch())
    if lacking and not toolchain.may_install():
        pytest.skip(f"no llama.cpp can be built here: {' '.join(lacking)} are missing, and only root may install them")

    def build(variant: str) -> Path:
        payload = load_payload(PROJECT / "payloads" / "llama-expert-cache")
        return programs.built_here(payload, variant, cache=CACHE, voice=Voice(print, _step)).folder

    return build
