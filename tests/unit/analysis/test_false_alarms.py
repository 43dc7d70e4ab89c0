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


def _alarms(repetitions: int, controls: int) -> float:
    """The share of campaigns with equal arms whose rule is supported."""
    luck = random.Random(20261130)
    arms = ["a", "b", *(["b-aa"] if controls else [])]
    hits = 0
    for _ in range(TRIALS):
        readings = [
            Reading("king", arm, repetition, "valid", luck.gauss(100, 100 * SPREAD))
            for arm in arms
            for repetition in range(1, repetitions + 1)
        ]
        hits += decide(RULE, readings, {"b-aa": "b"} if controls else {}).verdict == "supported"
    return hits / TRIALS


@pytest.mark.parametrize("repetitions", [1, 2, 3, 5])
@pytest.mark.parametrize("controls", [0, 1])
def test_equal_arms_are_called_different_in_at_most_one_campaign_of_twenty(repetitions: int, controls: int) -> None:
    # 0.065: 0.05 and three standard deviations of a share of 2,000 trials.
    assert _alarms(repetitions, controls) <= 0.065
