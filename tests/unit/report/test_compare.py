"""One campaign against another: paired by cell, never under unlike conditions unless that was said."""

from __future__ import annotations

from pathlib import Path

import pytest

from boardbench.analysis.estimates import Estimate, Unknown
from boardbench.errors import InputError
from boardbench.report.comparison import ALL_CELLS, compare
from boardbench.report.comparison_table import print_comparison
from boardbench.results import conditions

from .made_campaign import Wanted, make

A, B = "20261130T152429Z-aaaaaaaa", "20261130T162429Z-bbbbbbbb"


def pair(tmp_path: Path, one: Wanted, other: Wanted) -> tuple[Path, Path]:
    return make(tmp_path / "one", one), make(tmp_path / "other", other)


def test_a_faster_campaign_is_higher_with_its_ratio_and_interval(tmp_path: Path) -> None:
    found = compare(*pair(tmp_path, Wanted(campaign=A), Wanted(campaign=B, speed=1.1)), "steady")
    whole = next(row for row in found.rows if row.arm == ALL_CELLS)
    assert isinstance(whole.comparison.ratio, Estimate)
    assert whole.comparison.ratio.value == pytest.approx(1.1, abs=1e-6)
    assert whole.comparison.ratio.interval is not None
    assert (whole.comparison.verdict, whole.meaning) == ("higher", "better")
    assert whole.comparison.baseline == A
    assert {row.arm for row in found.rows} == {ALL_CELLS, "cooling=active", "cooling=fanless"}


def test_cells_are_paired_by_board_arm_and_repetition(tmp_path: Path) -> None:
    found = compare(*pair(tmp_path, Wanted(campaign=A, repeats=2), Wanted(campaign=B, repeats=3)), "steady")
    assert len(found.cells) == 12
    assert (found.only_a, found.only_b) == (0, 6)


def test_a_run_that_does_not_count_is_no_pair(tmp_path: Path) -> None:
    found = compare(*pair(tmp_path, Wanted(campaign=A), Wanted(campaign=B, why_invalid="rebooted")), "steady")
    assert {cell.b for cell in found.cells} == {None}
    assert {cell.why for cell in found.cells} == {"B: the run does not count"}
    assert isinstance(found.rows[0].comparison.ratio, Unknown)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"virtual": True}, "virtual"),
        ({"payload_sha256": "1" * 64}, "payload"),
        ({"duration_s": 1200.0}, "workload"),
    ],
)
def test_unlike_conditions_are_refused_by_name(tmp_path: Path, change: dict[str, object], name: str) -> None:
    one, other = pair(tmp_path, Wanted(campaign=A), Wanted(campaign=B, **change))  # type: ignore[arg-type]
    with pytest.raises(InputError, match=f"not measured under like conditions.*{name}") as refused:
        compare(one, other)
    assert f"--despite {name}" in refused.value.advice.split(",boards")[0]
    found = compare(one, other, despite=[*dict.fromkeys([name, "boards"])])
    assert name in [entry[0] for entry in found.despite]


def test_another_cooling_is_compared_only_despite_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, other = pair(tmp_path, Wanted(campaign=A, phases=("active",), rules=False),
                      Wanted(campaign=B, phases=("fanless",), rules=False))  # fmt: skip
    with pytest.raises(InputError, match="no cell in common"):
        compare(one, other)
    found = compare(one, other, "steady", despite=["cooling"])
    assert found.despite == (("cooling", "active", "fanless"),)
    assert found.rows[0].comparison.verdict == "lower"
    print_comparison(found)
    told = capsys.readouterr().out
    assert "unlike cooling (--despite): A active; B fanless" in told
    assert "the difference may be theirs" in told


def test_what_is_not_known_is_like_nothing() -> None:
    known = dict.fromkeys(conditions.NAMES, "x")
    blank = {**known, "cooling": conditions.NOT_KNOWN}
    assert conditions.unlike(known, known) == ()
    assert [name for name, _, _ in conditions.unlike(blank, blank)] == ["cooling"]


def test_degrees_have_differences_and_no_ratio(tmp_path: Path) -> None:
    found = compare(*pair(tmp_path, Wanted(campaign=A), Wanted(campaign=B)))
    assert {row.metric for row in found.rows} == {"steady"}
    hot = [cell for cell in found.cells if cell.metric == "max-temperature"]
    assert {cell.ratio for cell in hot} == {None}
    assert {cell.difference for cell in hot} == {0.0}
    assert found.twins == ("steady", "max-temperature")


def test_wrong_words_are_told_the_nearest_right_one(tmp_path: Path) -> None:
    one, other = pair(tmp_path, Wanted(campaign=A), Wanted(campaign=B))
    with pytest.raises(InputError, match="no condition 'coolin'") as wrong:
        compare(one, other, despite=["coolin"])
    assert "cooling" in wrong.value.advice
    with pytest.raises(InputError, match="no metric 'stedy'") as wrong:
        compare(one, other, "stedy")
    assert "steady" in wrong.value.advice
    with pytest.raises(InputError, match="compared with itself"):
        compare(one, one)
