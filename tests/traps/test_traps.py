"""Every trap is caught by its name, and goes unnoticed when its detection is switched off."""

from __future__ import annotations

from pathlib import Path

import pytest

from .catalogue import KINDS, TRAPS
from .harness import Trap, switch_off
from .scene import Scene

EACH = pytest.mark.parametrize(
    "trap", [pytest.param(trap, id=trap.name, marks=[pytest.mark.boards] if trap.on_boards else []) for trap in TRAPS]
)


@EACH
def test_it_is_caught_by_its_name(trap: Trap, scene: Scene) -> None:
    said = trap.spring(scene)
    assert trap.is_named_in(said), f"nothing of {list(said)} is {trap.caught_as!r}"


@EACH
def test_with_its_detection_off_it_goes_unnoticed(
    trap: Trap, scene: Scene, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with monkeypatch.context() as patch:
        switch_off(trap, patch, tmp_path / "blind")
        said = trap.spring(scene)
    assert not trap.is_named_in(said), "the named detection is not the one that catches it"
    assert trap.unnoticed(said), f"something else still says {list(said)}"


def test_every_trap_of_the_catalogue_is_set_up() -> None:
    assert len(KINDS) == len(set(KINDS)) == 20
    assert {trap.kind for trap in TRAPS} == set(KINDS)
    assert len({trap.name for trap in TRAPS}) == len(TRAPS)
    assert all(trap.off for trap in TRAPS)


def test_the_table_of_the_readme_has_every_trap() -> None:
    table = (Path(__file__).parent / "README.md").read_text(encoding="utf-8")
    assert [trap.name for trap in TRAPS if f"`{trap.name}`" not in table] == []
    assert [kind for kind in KINDS if kind not in table] == []
