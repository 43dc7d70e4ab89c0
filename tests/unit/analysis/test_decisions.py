"""Decision rules: a table of cases, the prediction, and what must hold for any numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import assume, given
from hypothesis import strategies as st

from boardbench.analysis.decisions import VERDICTS, Decision, Reading, decide, foretold
from boardbench.analysis.metrics import SOURCES, unit_fits, value_of
from boardbench.analysis.rules import Prediction, Rule
from boardbench.analysis.thermal import Heat

CASES = yaml.safe_load((Path(__file__).parents[1] / "cases" / "decisions" / "cases.yml").read_text())
DEFAULT = {
    "name": "r", "metric": "steady", "arms": ["fanless", "active"], "compare": "ratio", "op": "<", "threshold": 0.97,
    "minimum_effect": {"percent": 1},
}  # fmt: skip
PREDICTION = {"says": "it costs", "rule": "r", "refuted_if": {"op": ">=", "threshold": 0.99}}


def rule(**changes: Any) -> Rule:
    return Rule.of({**DEFAULT, **changes})


def readings(boards: dict[str, Any]) -> list[Reading]:
    found = []
    for board, arms in boards.items():
        for arm, entries in arms.items():
            for repetition, entry in enumerate(entries, start=1):
                if isinstance(entry, int | float):
                    found.append(Reading(board, arm, repetition, "valid", float(entry)))
                else:
                    state = "valid" if entry == "no-figure" else entry
                    found.append(Reading(board, arm, repetition, state, None, entry))
    return found


def of(case: dict[str, Any]) -> Decision:
    return decide(rule(**case.get("rule", {})), readings(case["readings"]), case.get("controls", {}))


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_case(case: dict[str, Any]) -> None:
    decision, expect = of(case), case["expect"]
    whole = decision.whole
    one = decision.boards[0] if len(decision.boards) == 1 else whole
    assert decision.verdict == expect["verdict"], decision
    if "effect" in expect:
        assert one.effect == pytest.approx(expect["effect"], rel=1e-3)
    if "noise" in expect:
        assert one.noise.source == expect["noise"]
    assert expect.get("why", "") in f"{one.why} {whole.why}"


def test_every_verdict_is_reached_by_a_case() -> None:
    assert {case["expect"]["verdict"] for case in CASES} == set(VERDICTS)


@pytest.mark.parametrize(
    ("fanless", "verdict"),
    [([80, 80], "hit"), ([100, 100], "missed"), ([98.5, 98.5], "undecided"), ([110, 110], "missed"),
     ([80, "invalid"], "invalid")],
)  # fmt: skip
def test_what_became_of_a_prediction(fanless: list[Any], verdict: str) -> None:
    decision = decide(rule(), readings({"king": {"active": [100, 100], "fanless": fanless}}), {})
    assert foretold(Prediction.of(PREDICTION), decision).verdict == verdict


def test_a_prediction_for_each_board_is_missed_by_one() -> None:
    boards = {
        "king": {"active": [100, 100], "fanless": [80, 80]},
        "jack": {"active": [100, 100], "fanless": [101, 101]},
    }
    told = foretold(Prediction.of(PREDICTION), decide(rule(), readings(boards), {}))
    assert told.verdict == "missed"
    assert "jack" in told.why


@pytest.mark.parametrize(
    ("op", "threshold", "overlaps"),
    [(">=", 0.99, False), (">=", 0.97, False), (">", 0.96, True), ("<", 0.9, True), ("<=", 1.2, True)],
)
def test_a_prediction_cannot_be_hit_and_missed_at_once(op: str, threshold: float, overlaps: bool) -> None:
    prediction = Prediction.of({**PREDICTION, "refuted_if": {"op": op, "threshold": threshold}})
    assert prediction.overlaps(rule()) is overlaps


NUMBERS = st.floats(1.0, 1e6)
SIDE = st.lists(NUMBERS, min_size=1, max_size=5)
RULES = st.builds(
    rule,
    compare=st.sampled_from(["ratio", "difference"]),
    op=st.sampled_from([">", ">=", "<", "<="]),
    threshold=st.floats(-10, 10),
    aggregate=st.sampled_from(["mean", "median", "min", "max"]),
    minimum_effect=st.builds(lambda share: {"percent": share}, st.floats(0, 20)),
    over_boards=st.sampled_from(["each", "min", "max", "median"]),
)


@given(RULES, st.lists(st.tuples(SIDE, SIDE), min_size=1, max_size=4), st.permutations(range(4)))
def test_the_verdict_does_not_depend_on_the_order_of_the_runs(asked: Rule, boards: list[Any], order: list[int]) -> None:
    named = {f"b{index}": {"fanless": a, "active": b} for index, (a, b) in enumerate(boards)}
    runs = readings(named)
    shuffled = [run for place in order for run in runs[place::4]]
    assert decide(asked, runs, {}).verdict == decide(asked, shuffled, {}).verdict


@given(RULES, SIDE)
def test_an_arm_against_itself_never_shows_an_effect(asked: Rule, side: list[float]) -> None:
    null = asked.null
    assert null is not None
    assume(not asked.holds(null))
    same = {"king": {"fanless": side, "active": side}}
    assert decide(asked, readings(same), {}).verdict in ("null", "undecided")


@given(RULES, SIDE, SIDE, st.floats(0.5, 2.0))
def test_more_noise_never_turns_doubt_into_a_verdict(
    asked: Rule, arm: list[float], base: list[float], k: float
) -> None:
    def with_control(factor: float) -> str:
        control = [value * factor for value in base]
        runs = readings({"king": {"fanless": arm, "active": base, "aa": control}})
        return decide(asked, runs, {"aa": "active"}).verdict

    quiet, loud = sorted([1.0, k], key=lambda factor: abs(factor - 1))
    if with_control(quiet) in ("null", "undecided"):
        assert with_control(loud) in ("null", "undecided")


@given(RULES, SIDE, SIDE)
def test_a_lost_run_is_never_a_verdict(asked: Rule, arm: list[float], base: list[float]) -> None:
    runs = readings({"king": {"fanless": [*arm, "missing"], "active": base}})
    assert decide(asked, runs, {}).verdict == "invalid"


def test_a_ratio_is_said_with_both_arms() -> None:
    assert "fanless / active < 0.97" in rule().text
    assert "under 1 % rank nothing" in rule().text


@pytest.mark.parametrize("source", SOURCES)
def test_a_figure_that_was_not_measured_is_none_and_not_zero(source: str) -> None:
    value, why = value_of(source, next(iter(SOURCES[source].units), "operations/s"), None, None)
    assert value is None
    assert why


def test_never_throttled_is_said_and_units_are_kept() -> None:
    hot = Heat(9, 40.0, 60.0, 2208.0, 1800.0, None, None, False, None, ())
    assert value_of("throttle-onset", "s", None, hot) == (None, "it never throttled")
    assert value_of("min-clock", "kHz", None, hot) == (1_800_000.0, "")
    assert value_of("min-clock", "MHz", None, hot) == (1800.0, "")
    assert unit_fits("steady", "operations/s")
    assert not unit_fits("steady", "operations")
    assert not unit_fits("loss", "ratio")


def test_the_number_of_a_control_run_that_does_not_count_is_no_noise() -> None:
    runs = readings({"king": {"active": [100], "fanless": [80]}})
    runs.append(Reading("king", "aa", 1, "invalid", 500.0))
    decision = decide(rule(), runs, {"aa": "active"})
    assert (decision.verdict, decision.boards[0].noise.source) == ("invalid", "unknown")


def test_a_doubt_about_an_arm_makes_its_rules_invalid_and_keeps_the_numbers() -> None:
    runs = readings({"king": {"active": [100, 100], "fanless": [80, 80]}, "jack": {"active": [100], "fanless": [80]}})
    decision = decide(rule(), runs, {}, {("king", "fanless"): "arm-did-not-take-effect: all 31 counters are equal"})
    assert decision.verdict == "invalid"
    assert "king: arm-did-not-take-effect: all 31 counters" in decision.whole.why
    king, jack = decision.boards
    assert (king.verdict, king.effect, king.arm_n) == ("invalid", 0.8, 2)
    assert jack.verdict != "invalid"
    assert foretold(Prediction.of(PREDICTION), decision).verdict == "invalid"


@pytest.mark.parametrize("over", ["each", "min", "max", "median"])
def test_no_board_that_is_asked_hides_a_doubt(over: str) -> None:
    runs = readings({b: {"active": [100, 100], "fanless": [80, 80]} for b in ("king", "queen", "jack")})
    asked = rule(over_boards=over)
    assert decide(asked, runs, {}).verdict == "supported"
    assert decide(asked, runs, {}, {("queen", "active"): "overload-quoted: ..."}).verdict == "invalid"


def test_a_doubt_about_a_control_is_one_about_its_arm_and_one_about_another_arm_is_none() -> None:
    runs = readings({"king": {"active": [100, 100], "aa": [100, 100], "fanless": [80, 80], "capped": [50, 50]}})
    controls = {"aa": "active"}
    assert decide(rule(), runs, controls, {("king", "aa"): "control aa has 0.18 x the rate"}).verdict == "invalid"
    assert decide(rule(), runs, controls, {("king", "capped"): "no effect"}).verdict == "supported"


def test_a_control_without_valid_runs_leaves_no_noise_to_judge_by() -> None:
    runs = readings({"king": {"active": [100, 100], "aa": [100, "invalid"], "fanless": [80, 80]}})
    decision = decide(rule(), runs, {"aa": "active"})
    assert decision.verdict == "invalid"
    assert "1 of 6; aa#2: invalid" in decision.whole.why
    left_out = readings({"king": {"active": [100, 100], "aa": ["not-selected"] * 2, "fanless": [80, 80]}})
    assert decide(rule(), left_out, {"aa": "active"}).verdict == "supported"
