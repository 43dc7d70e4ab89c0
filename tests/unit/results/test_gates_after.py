"""The gates after a run: each is silent about a good run and names a broken one by its word."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from boardbench.analysis import littles_law
from boardbench.results import armeffect, record
from boardbench.results.armeffect import Counted
from boardbench.results.gatewords import ALWAYS_COUNTS, BY_NAME, CODE_OF_GATE, GATES
from boardbench.results.judge import Facts, Rules, judge
from boardbench.results.problems import REASON_CODES

ATTEMPT = "cells/003-fanless-king/attempt-1"
DOCS = Path(__file__).resolve().parents[3] / "docs" / "gates.md"


@pytest.fixture
def case(golden: Path) -> tuple[Path, Facts, Rules]:
    plan = json.loads((golden / "plan.json").read_text())
    run = json.loads((golden / ATTEMPT / "run.json").read_text())
    return golden / ATTEMPT, record.facts_of(run), Rules.of_plan(plan, run["boards"][0], run["phase"], ["burn.jsonl"])


def codes(folder: Path, facts: Facts, rules: Rules) -> set[str]:
    return {reason.code for reason in judge(folder, facts, rules)}


def with_evidence(facts: Facts, *entries: dict[str, Any]) -> Facts:
    return dataclasses.replace(facts, evidence=(*facts.evidence, *entries))


def entry(gate: str, **saw: Any) -> dict[str, Any]:
    return {"gate": gate, "ok": True, "saw": saw, "why": ""}


def burn(folder: Path, change: Any) -> None:
    path = folder / "workload" / "burn.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(line) + "\n" for line in change(lines)))


def clock_at(facts: Facts, moved_s: float, later_s: float) -> dict[str, Any]:
    first = next(e["saw"] for e in facts.evidence if e["gate"] == "clock")
    stamp = {key: value + later_s for key, value in first["stamp"].items()}
    return entry("clock", offset_s=first["offset_s"] + moved_s, error_s=0.001, stamp=stamp)


def test_a_clock_that_kept_its_offset_is_fine_and_one_that_was_set_is_a_jump(case: tuple[Path, Facts, Rules]) -> None:
    folder, facts, rules = case
    assert codes(folder, with_evidence(facts, clock_at(facts, 0.01, 60.0)), rules) == set()
    assert codes(folder, with_evidence(facts, clock_at(facts, -0.4, 60.0)), rules) == {"clock-jump"}


def test_a_slow_drift_over_a_long_run_is_allowed(case: tuple[Path, Facts, Rules]) -> None:
    folder, facts, rules = case
    assert codes(folder, with_evidence(facts, clock_at(facts, 0.4, 1860.0)), rules) == set()


def test_two_instruments_that_agree_pass_and_two_that_do_not_are_named(case: tuple[Path, Facts, Rules]) -> None:
    folder, facts, rules = case
    assert facts.window_monotonic_s is not None
    at_s = facts.window_monotonic_s[1]
    near = entry("instruments", celsius={"soc-thermal": 86.0}, monotonic_s=at_s)
    far = entry("instruments", celsius={"soc-thermal": 79.5}, monotonic_s=at_s)
    assert codes(folder, with_evidence(facts, near), rules) == set()
    assert codes(folder, with_evidence(facts, far), rules) == {"instruments-disagree"}


def test_an_end_reading_that_is_missing_is_no_disagreement(case: tuple[Path, Facts, Rules]) -> None:
    folder, facts, rules = case
    assert codes(folder, with_evidence(facts, entry("instruments", celsius={"missing": "no zone"})), rules) == set()


def test_a_lost_interval_does_not_add_up(case: tuple[Path, Facts, Rules]) -> None:
    folder, facts, rules = case
    burn(folder, lambda lines: [line for line in lines if line.get("index") != 4])
    assert "counts-do-not-add-up" in codes(folder, facts, rules)


def test_intervals_that_join_but_miss_some_of_the_total_do_not_add_up(case: tuple[Path, Facts, Rules]) -> None:
    folder, facts, rules = case
    burn(folder, lambda lines: [*lines[:-1], {**lines[-1], "operations": lines[-1]["operations"] * 1.1}])
    assert codes(folder, facts, rules) == {"counts-do-not-add-up"}


def test_a_rate_that_is_not_count_over_time_does_not_add_up(case: tuple[Path, Facts, Rules]) -> None:
    folder, facts, rules = case
    burn(
        folder, lambda lines: [{**line, "operations_per_s": 7.0} if line.get("index") == 2 else line for line in lines]
    )
    assert codes(folder, facts, rules) == {"counts-do-not-add-up"}


def test_pauses_of_a_chained_load_are_no_lost_intervals(case: tuple[Path, Facts, Rules]) -> None:
    folder, facts, rules = case

    def spread(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [
            {**line, "start_monotonic_s": line["start_monotonic_s"] + 1e-3 * line["index"],
             "end_monotonic_s": line["end_monotonic_s"] + 1e-3 * line["index"]}
            if line["event"] == "interval" else line
            for line in lines
        ]  # fmt: skip

    burn(folder, spread)
    assert "counts-do-not-add-up" in codes(folder, facts, rules)
    assert "counts-do-not-add-up" not in codes(folder, facts, dataclasses.replace(rules, chained=True))


def test_a_look_that_found_no_load_inside_the_window_is_named_and_one_outside_is_not(
    case: tuple[Path, Facts, Rules],
) -> None:
    folder, facts, rules = case
    facts = dataclasses.replace(facts, window_monotonic_s=(100.0, 160.0))

    def found(*idle_at_s: float) -> set[str]:
        seen = with_evidence(facts, entry("load-runs", idle_at_monotonic_s=list(idle_at_s)))
        return codes(folder, seen, rules) & {"load-not-running"}

    assert found(99.0, 100.01, 160.2) == set()
    assert found(99.0, 130.0) == {"load-not-running"}


def test_a_gate_that_was_never_asked_has_not_been_passed(case: tuple[Path, Facts, Rules]) -> None:
    folder, facts, rules = case
    without = tuple(e for e in facts.evidence if e["gate"] != "quiet")
    assert codes(folder, dataclasses.replace(facts, evidence=without), rules) == {"gate-not-run"}


def test_a_planned_guard_of_which_nothing_was_heard_has_not_guarded(case: tuple[Path, Facts, Rules]) -> None:
    folder, facts, rules = case
    assert rules.guarded
    assert codes(folder, facts, rules) == set()
    without = tuple(e for e in facts.evidence if e["gate"] != "guard")
    assert codes(folder, dataclasses.replace(facts, evidence=without), rules) == {"gate-not-run"}
    plan = {**json.loads((folder.parents[2] / "plan.json").read_text()), "guard": {"king": {}}}
    assert [Rules.of_plan(plan, board, "fanless", ()).guarded for board in ("king", "queen")] == [True, False]


@pytest.mark.parametrize("gate", [gate for gate in GATES if gate.when != "campaign"], ids=lambda gate: gate.name)
def test_a_shut_gate_takes_a_run_out_with_its_own_word_exactly_when_it_is_required(
    case: tuple[Path, Facts, Rules], gate: Any
) -> None:
    folder, facts, rules = case
    shut = with_evidence(facts, {"gate": gate.name, "ok": False, "saw": {}, "why": "broken on purpose"})
    required = dataclasses.replace(rules, gates=rules.gates | {gate.name})
    assert codes(folder, shut, required) == {gate.code}
    left = {gate.code} if gate.name in ALWAYS_COUNTS else set()
    assert codes(folder, shut, dataclasses.replace(rules, gates=rules.gates - {gate.name})) == left


def test_every_gate_has_a_word_of_the_vocabulary() -> None:
    assert set(CODE_OF_GATE.values()) <= set(REASON_CODES)
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", code) for code in REASON_CODES)
    assert len(BY_NAME) == len(GATES)


def test_the_page_about_gates_tells_of_every_gate_and_every_word() -> None:
    text = DOCS.read_text()
    rows = {
        cells[0].strip("` "): cells for line in text.splitlines() if len(cells := line.strip("| ").split(" | ")) == 6
    }
    for gate in GATES:
        assert gate.name in rows, f"docs/gates.md has no row for {gate.name}"
        assert rows[gate.name][1].strip() == gate.when
        assert f"`{gate.code}`" in rows[gate.name][3]
    assert [code for code in REASON_CODES if f"`{code}`" not in text] == []


def counted(arm: str, *counters: float, board: str = "king", seconds: float = 10.0) -> Counted:
    return Counted(board, arm, f"run-{arm}", counters, seconds)


def test_equal_counters_in_two_arms_are_an_arm_that_did_not_take_effect() -> None:
    same = (101.0, 99.0, 100.0, 98.0)
    found = list(armeffect.equal_counters([counted("a", *same), counted("b", *same)], {}))
    assert [(doubt.board, doubt.arms, doubt.code) for doubt in found] == [
        ("king", ("a", "b"), "arm-did-not-take-effect")
    ]
    assert not list(armeffect.equal_counters([counted("a", *same), counted("b", 101.0, 99.0, 100.0, 97.0)], {}))


def test_equal_counters_of_a_control_of_two_boards_or_by_chance_are_none() -> None:
    same = (101.0, 99.0, 100.0, 98.0)
    assert not list(armeffect.equal_counters([counted("a", *same), counted("aa", *same)], {"aa": "a"}))
    assert not list(armeffect.equal_counters([counted("a", *same), counted("b", *same, board="queen")], {}))
    assert not list(armeffect.equal_counters([counted("a", 5.0), counted("b", 5.0)], {}))


def test_a_control_with_an_impossible_ratio_is_flagged_and_one_within_noise_is_not() -> None:
    original = counted("a", 100.0, 100.0)
    found = list(armeffect.impossible_controls([original, counted("aa", 18.0, 18.0)], {"aa": "a"}))
    assert "0.18 x" in found[0].what
    assert not list(armeffect.impossible_controls([original, counted("aa", 103.0, 101.0)], {"aa": "a"}))


def test_littles_law_holds_for_the_published_points_and_fails_for_mixed_ones() -> None:
    # One node, c12 at 387.2 / 3 inferences a second: latency and rate of one window belong together.
    assert littles_law.holds(12, 112.9, 0.1063)
    assert not littles_law.holds(12, 112.9, 0.1376)
    assert littles_law.departure(10, 100.0, 0.1) == pytest.approx(0.0)
    for bad in ((0, 1.0, 1.0), (1, math.nan, 1.0), (1, 1.0, math.inf)):
        with pytest.raises(ValueError, match="no closed loop"):
            littles_law.departure(*bad)
