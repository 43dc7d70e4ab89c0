"""Second looks at what somebody else has said: who answered, do two counts agree, is the board as it was."""

from __future__ import annotations

from typing import Any

import pytest

from boardbench.results import answers, crosscheck, put_back
from boardbench.workloads.base import Count, Pair


def details(planned: list[str], came: dict[str, int]) -> list[str]:
    return [reason.detail for reason in answers.reasons(planned, came)]


def test_all_planned_nodes_must_have_answered_and_no_other() -> None:
    assert details(["king", "queen"], {"king": 5, "queen": 1}) == []
    assert details(["king", "queen"], {"king": 5}) == ["1 of 2 nodes answered, none from queen"]
    assert details(["king"], {"king": 5, "jack": 0}) == []
    assert details(["king"], {"king": 5, "jack": 2}) == ["answers from jack, which the cell does not have"]


def apart(one: float, other: float, unit: str = "calls") -> int:
    return len(crosscheck.disagreements([Pair("x", Count("a", one, "calls"), Count("b", other, unit))]))


def test_two_counts_agree_within_two_percent_and_in_one_unit() -> None:
    assert [apart(100.0, 101.9), apart(0.0, 0.0), apart(-5.0, -5.0)] == [0, 0, 0]
    assert [apart(100.0, 103.0), apart(11.0, 170_000.0), apart(0.0, 1.0), apart(5.0, 5.0, "us")] == [1, 1, 1, 1]


def facts(**changes: Any) -> dict[str, Any]:
    policy = {"policy": "policy0", "governor": "ondemand", "min_khz": 408000, "max_khz": 2208000}
    return {
        "boot_id": "a",
        "cpu_policies": [{**policy, **changes.pop("policy", {})}],
        "devfreq": [{"name": "npu", "governor": "rknpu", "min_hz": 3e8, "max_hz": 9.5e8}],
        "thermal": [{"zone": "thermal_zone0", "type": "soc-thermal", "celsius": 40.0}],
        "nvpmodel": None,
        **changes,
    }


@pytest.mark.parametrize(
    ("after", "said"),
    [
        (facts(), 0),
        (facts(policy={"governor": "performance"}), 1),
        (facts(policy={"min_khz": 2208000}), 1),
        (facts(policy={"max_khz": 816000}), 1),
        (facts(policy={"cur_khz": 816000}), 0),
        (facts(policy={"governor": {"missing": "EIO"}}), 0),
        (facts(devfreq=[{"name": "npu", "governor": "rknpu", "min_hz": 9.5e8, "max_hz": 9.5e8}]), 1),
        (facts(nvpmodel="MAXN"), 1),
        (facts(policy={"governor": "performance"}, boot_id="b"), 0),
    ],
)
def test_settings_that_are_not_as_before_are_told(after: dict[str, Any], said: int) -> None:
    assert len(put_back.differences(facts(), after)) == said


@pytest.mark.parametrize("zones", [[{"celsius": 80.0}], [{"celsius": {"missing": "off"}}], []])
def test_a_lower_highest_clock_of_a_hot_board_is_no_proof(zones: list[Any]) -> None:
    assert put_back.differences(facts(), facts(policy={"max_khz": 816000}, thermal=zones)) == ()
