"""From the words of `plan` and `bench` to a plan: --set, --cells, --plan, and the example of the manual."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from boardbench.errors import InputError
from boardbench.matrix.load import load_matrix
from tasks._plans import asked, cell_list, chosen_levels, globs_of, offline_plan

PROJECT = Path(__file__).parents[2]


def test_levels_are_read_from_set() -> None:
    assert chosen_levels(["cooling=active", "cap_mhz=2208, 1608"]) == {
        "cooling": ("active",),
        "cap_mhz": ("2208", "1608"),
    }


@pytest.mark.parametrize("words", [["cooling"], ["=active"], ["cooling="], ["a=1", "a=2"]])
def test_a_set_that_says_nothing_is_refused(words: list[str]) -> None:
    with pytest.raises(InputError, match="--set"):
        chosen_levels(words)


def test_globs_are_joined_by_commas() -> None:
    assert globs_of("") == ()
    assert globs_of("*-king, 00?-*") == ("*-king", "00?-*")


def test_a_plan_needs_a_matrix_and_a_locked_one_takes_no_set() -> None:
    with pytest.raises(InputError, match="no matrix named"):
        asked("", (), "")
    with pytest.raises(InputError, match="cannot be restricted"):
        asked("", ["cooling=active"], "plan.json")


def test_globs_that_name_no_cell_are_no_wish_for_all_of_them() -> None:
    assert globs_of("") == ()
    assert globs_of("001-*, *-king") == ("001-*", "*-king")
    for given in (",", " ", " , "):
        with pytest.raises(InputError, match="names no cell"):
            globs_of(given)


def test_the_projects_matrix_is_planned_without_any_board(capsys: pytest.CaptureFixture[str]) -> None:
    plan = offline_plan(asked("thermal", ["cooling=fanless"], ""), "", "king")
    assert [cell.name for cell in plan.cells] == ["001-fanless-king"]
    assert cell_list(plan, (), json=False) == 0
    assert capsys.readouterr().out == "001-fanless-king\n"
    cell_list(plan, (), json=True)
    assert json.loads(capsys.readouterr().out)["arm"] == "fanless"


def test_the_example_of_the_manual_is_a_matrix(tmp_path: Path) -> None:
    text = (PROJECT / "docs" / "matrix.md").read_text(encoding="utf-8")
    found = re.search(r"```yaml\n(.*?)```", text, re.DOTALL)
    assert found is not None
    path = tmp_path / "example.yml"
    path.write_text(found[1])
    matrix = load_matrix(path)
    assert [arm.name for arm in matrix.arms] == ["active-none", "full-aa", "active-cap1608", "fanless-cap1608"]
