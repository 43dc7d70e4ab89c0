"""Two equal arms, played many times: how often does a rule call them different?"""

from __future__ import annotations

import random

import pytest

from boardbench.analysis.decisions import Reading, decide
from boardbench.analysis.rules import Rule

TRIALS = 2000
SPREAD = 0.02  # twice the minimum effect: the rule must not lean on that alone
RULE = Rule.of(
    {"name": "r", "metric": "steady", "arms": ["a", "b"], "compare": "ratio", "op": ">", "threshold": 1.01,
     "minimum_effect": {"percent": 1}}
)  # fmt: skip


def _alarms(repetitions: int, *, controls: bool = False, shared: float = 0.0, gain: float = 1.0) -> float:
    """The share of campaigns whose rule is supported. `shared`: how much of the variance the arms of a repetition have
    in common; `gain`: of arm a over arm b, in truth."""
    luck = random.Random(20261130)
    arms = {"a": gain, "b": 1.0, **({"b-aa": 1.0} if controls else {})}
    hits = 0
    for _ in range(TRIALS):
        readings = []
        for repetition in range(1, repetitions + 1):
            hour = luck.gauss(0, SPREAD * shared**0.5)
            for arm, factor in arms.items():
                own = luck.gauss(0, SPREAD * (1 - shared) ** 0.5)
                readings.append(Reading("king", arm, repetition, "valid", 100 * factor * (1 + hour + own)))
        hits += decide(RULE, readings, {"b-aa": "b"} if controls else {}).verdict == "supported"
    return hits / TRIALS


@pytest.mark.parametrize("repetitions", [1, 2, 3, 5])
@pytest.mark.parametrize("controls", [False, True])
@pytest.mark.parametrize("shared", [0.0, 0.5, 0.95])
def test_equal_arms_are_called_different_in_at_most_one_campaign_of_twenty(
    repetitions: int, controls: bool, shared: float
) -> None:
    # 0.065: 0.05 and three standard deviations of a share of 2,000 trials.
    assert _alarms(repetitions, controls=controls, shared=shared) <= 0.065


def test_what_a_repetition_does_to_both_arms_does_not_hide_a_difference() -> None:
    # The arms' own repetitions range over 4 to 5 %; within a repetition they differ by 4 % and hardly anything else.
    assert _alarms(3, shared=0.98, gain=1.04) >= 0.9
    assert _alarms(3, shared=0.0, gain=1.04) <= 0.5
