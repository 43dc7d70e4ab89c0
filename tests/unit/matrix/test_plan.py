"""Matrix files, orders and the locked plan."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_boards import MATRIX, Fleet

from boardbench.errors import InputError
from boardbench.matrix.load import choose_boards, load_matrix
from boardbench.matrix.plan import make_plan
from boardbench.results import schema

PROJECT = Path(__file__).parents[3]


def matrix(tmp_path: Path, *changes: tuple[str, str]) -> Path:
    text = MATRIX
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path = tmp_path / "m.yml"
    path.write_text(text)
    return path


def test_the_projects_own_matrix_loads_and_its_plan_fits_the_schema(fleet: Fleet) -> None:
    loaded = load_matrix(PROJECT / "playbooks" / "matrices" / "thermal.yml")
    plan = make_plan(loaded, fleet.boards, 60.0)
    assert list(schema.faults(plan.document(), "plan")) == []
    assert plan.wall_s(loaded.duration_s) == 31.0
    assert [cell.name for cell in plan.cells] == [
        "001-active-king", "002-active-queen", "003-fanless-king", "004-fanless-queen",
    ]  # fmt: skip
    assert [len(wave) for wave in plan.waves] == [2, 2]


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ("duration_s: 1860", "duration: 1860", 6, "duration_s"),
        ("[active, fanless]", "[active, warm]", 8, "active or fanless"),
        ("interval_s: 60}", "interval_s: 6000}", 5, "longer than the whole run"),
        ("kind: phase, levels", "kind: dial, levels", 8, "phase"),
        ("attempts: 2", "attempts: 0", 12, "least is 1"),
    ],
)
def test_a_mistake_is_told_with_its_line(tmp_path: Path, old: str, new: str, line: int, said: str) -> None:
    with pytest.raises(InputError) as caught:
        load_matrix(matrix(tmp_path, (old, new)))
    assert f"m.yml:{line}" in str(caught.value)
    assert said in str(caught.value)


def test_a_matrix_for_other_boards_is_refused(tmp_path: Path, fleet: Fleet) -> None:
    loaded = load_matrix(matrix(tmp_path, ("nanopi-r76s", "jetson-orin-nano")))
    with pytest.raises(InputError, match="none of the 2 boards"):
        choose_boards(loaded, fleet.boards)


def test_a_group_that_the_inventory_lacks_is_named_with_its_line(tmp_path: Path, fleet: Fleet) -> None:
    loaded = load_matrix(matrix(tmp_path, ("kinds: [nanopi-r76s]", "groups: [npuu]")))
    with pytest.raises(InputError, match=r"m\.yml:\d+: the inventory has no group 'npuu'; did you mean 'npu'\?"):
        choose_boards(loaded, fleet.boards, ("npu", "gpu"))


def test_equal_inputs_give_an_equal_plan_and_others_another(tmp_path: Path, fleet: Fleet) -> None:
    loaded = load_matrix(matrix(tmp_path))
    first = make_plan(loaded, fleet.boards, 60.0)
    assert first.sha256 == make_plan(loaded, fleet.boards, 60.0).sha256
    others = [
        make_plan(loaded, fleet.boards, 30.0),
        make_plan(loaded, fleet.boards[:1], 60.0),
        make_plan(load_matrix(matrix(tmp_path, ("seed: 7", "seed: 8"))), fleet.boards, 60.0),
    ]
    assert first.sha256 not in {plan.sha256 for plan in others}


def test_the_logger_never_samples_faster_than_ten_times_a_second(tmp_path: Path, fleet: Fleet) -> None:
    loaded = load_matrix(matrix(tmp_path))
    assert make_plan(loaded, fleet.boards, 1.0).logger_period_s == 1.0
    assert make_plan(loaded, fleet.boards, 60.0).logger_period_s == 0.1
