"""Dead time between loads: what is counted, and what is not."""

from __future__ import annotations

from typing import Any

import pytest

from boardbench.analysis.deadtime import DeadTime, Note, dead_time

WAVE_OF = {"001-a": 1, "002-a": 1, "003-b": 2, "004-b": 2}


def run(name: str, *, load_s: float = 100.0, cooled_s: float = 0.0, begins_s: float = 0.1) -> dict[str, Any]:
    return {
        "run": name,
        "started": {"board": {"monotonic_s": 5000.0}},
        "load_window_monotonic_s": [5000.0 + begins_s, 5000.0 + load_s],
        "evidence": [{"gate": "cool", "saw": {"waited_s": cooled_s}}],
    }


def wave(
    at_s: float, cells: list[str], *, attempt: int = 1, prepare_s: float = 3.0, start_s: float = 0.5
) -> list[Note]:
    """Prepared from `at_s`, started after `prepare_s`, told `start_s` later; loads of 100 s, collected in 1 s."""
    notes = []
    for event, later_s in (
        ("prepare", 0.0),
        ("start", prepare_s),
        ("started", prepare_s + start_s),
        ("collected", prepare_s + start_s + 101.0),
    ):
        for cell in cells:
            notes.append(Note(at_s + later_s, event, {"run": f"{cell}-{attempt}", "cell": cell, "attempt": attempt}))
    return notes


def two_waves(*between: Note, second_at_s: float = 105.0) -> list[Note]:
    return [Note(0, "planned", {}), *wave(0, ["001-a", "002-a"]), *between, *wave(second_at_s, ["003-b", "004-b"])]


def runs(**of_second: Any) -> list[dict[str, Any]]:
    return [run("001-a-1"), run("002-a-1"), run("003-b-1", **of_second), run("004-b-1")]


def only(dead: DeadTime) -> dict[str, object]:
    (gap,) = dead.gaps
    return gap.as_json()


def test_the_time_in_which_boards_of_a_cluster_find_each_other_is_declared() -> None:
    def told(note: Note) -> Note:
        return Note(note.monotonic_s, note.event, {**note.fields, "assembly_s": 20.0})

    notes = [told(note) if note.event == "start" else note for note in two_waves()]

    def gap_of(begins_s: float) -> dict[str, object]:
        second = [run(name, begins_s=begins_s) for name in ("003-b-1", "004-b-1")]
        return only(dead_time(notes, [*runs()[:2], *second], WAVE_OF))

    gap = gap_of(20.1)
    assert (gap["total_s"], gap["waits_s"], gap["start_s"], gap["dead_s"]) == (25.1, 20.0, 0.6, 5.1)
    # A load that begins sooner has waited no longer than that.
    gap = gap_of(3.0)
    assert (gap["waits_s"], gap["start_s"]) == (3.5, 0.0)


def test_the_gap_from_load_to_load_is_split_into_its_parts() -> None:
    # Loads end at 103.5; collected at 104.5; prepared from 105, started at 108, told at 108.5; loads begin at 108.6.
    dead = dead_time(two_waves(), runs(cooled_s=2.0), WAVE_OF)
    assert only(dead) == {
        "after_wave": 1, "total_s": 5.1, "dead_s": 3.1, "collect_s": 1.0, "waits_s": 0.0, "prepare_s": 1.5,
        "cooling_s": 2.0, "start_s": 0.6,
    }  # fmt: skip
    assert dead.median_s == pytest.approx(3.1)


def test_the_lead_before_the_load_is_dead_time_too() -> None:
    assert only(dead_time(two_waves(), runs(begins_s=0.5), WAVE_OF))["total_s"] == 5.1  # the other board's began first
    late = [run("001-a-1"), run("002-a-1"), run("003-b-1", begins_s=0.5), run("004-b-1", begins_s=0.7)]
    assert only(dead_time(two_waves(), late, WAVE_OF))["total_s"] == 5.5


def test_a_load_that_never_began_ends_no_gap() -> None:
    never = [run("001-a-1"), run("002-a-1"), {**run("003-b-1"), "load_window_monotonic_s": {"missing": "no interval"}}]
    assert dead_time(two_waves(), never, WAVE_OF).gaps == ()


def test_parts_add_up() -> None:
    gap = dead_time(two_waves(Note(104.6, "waited", {"took_s": 0.3})), runs(cooled_s=1.0), WAVE_OF).gaps[0]
    parts = gap.collect_s + gap.waits_s + gap.prepare_s + gap.cooling_s + gap.start_s
    assert parts == pytest.approx(gap.total_s)
    assert gap.waits_s == pytest.approx(0.3)
    assert gap.dead_s == pytest.approx(gap.total_s - 1.3)


def test_a_wait_for_a_hand_is_no_dead_time_and_time_that_nobody_declared_is() -> None:
    waited = two_waves(Note(164.0, "waited", {"took_s": 59.5}), second_at_s=164.5)
    assert dead_time(waited, runs(), WAVE_OF).median_s == pytest.approx(5.1)
    assert dead_time(two_waves(second_at_s=164.5), runs(), WAVE_OF).median_s == pytest.approx(64.6)


def test_a_wait_before_the_first_wave_belongs_to_no_gap() -> None:
    notes = [Note(0, "planned", {}), Note(0, "waited", {"took_s": 1.0}), *two_waves()[1:]]
    assert only(dead_time(notes, runs(), WAVE_OF))["waits_s"] == 0.0


def test_cooling_never_counts_for_more_than_the_preparation_took() -> None:
    assert only(dead_time(two_waves(), runs(cooled_s=1000.0), WAVE_OF))["cooling_s"] == 3.0


def test_a_second_attempt_is_a_gap_of_its_own() -> None:
    notes = [Note(0, "planned", {}), *wave(0, ["001-a"]), *wave(105, ["001-a"], attempt=2)]
    dead = dead_time(notes, [run("001-a-1"), run("001-a-2")], WAVE_OF)
    assert [gap.after_wave for gap in dead.gaps] == [1]


def test_a_preparation_that_is_begun_again_is_the_same_wave() -> None:
    again = Note(106.0, "prepare", {"run": "003-b-1", "cell": "003-b", "attempt": 1})
    notes = two_waves()
    notes.insert(notes.index(next(n for n in notes if n.monotonic_s == 108.0)), again)
    assert only(dead_time(notes, runs(), WAVE_OF))["total_s"] == 5.1


def test_no_gap_spans_the_absence_of_a_controller() -> None:
    dead = dead_time(two_waves(Note(104.7, "resumed", {})), runs(), WAVE_OF)
    assert dead.gaps == ()
    assert dead.as_json() == {"median": {"missing": dead.why_none}, "per_wave": []}


@pytest.mark.parametrize("lacking", ["started", "collected"])
def test_a_wave_that_was_lost_gives_no_gap(lacking: str) -> None:
    notes = [note for note in two_waves() if note.event != lacking]
    assert dead_time(notes, runs(), WAVE_OF).gaps == ()


def test_a_load_whose_window_is_missing_gives_no_end() -> None:
    lost = [{**one, "load_window_monotonic_s": {"missing": "no interval"}} for one in runs()]
    assert dead_time(two_waves(), lost, WAVE_OF).median_s is None


def test_nothing_at_all_is_said_with_its_reason() -> None:
    assert "missing" in dead_time([], [], {}).as_json()["median"]  # type: ignore[operator]
