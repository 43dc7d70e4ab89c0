"""What a matrix file may say: factors, arms, settings of levels, promises; and what each mistake is called."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from fake_boards import MATRIX, Fleet
from hypothesis import given
from hypothesis import strategies as st

from boardbench.errors import InputError, RigError
from boardbench.matrix import lock
from boardbench.matrix.levels import capped_khz
from boardbench.matrix.load import Matrix, load_matrix
from boardbench.matrix.plan import Plan, make_plan
from boardbench.results import schema, store

STEADY = {"name": "steady", "unit": "operations/s", "direction": "higher-is-better"}
BASELINE = {"arm": "active", "is": "with its fan"}
RULE = {
    "name": "cost", "metric": "steady", "arms": ["fanless", "active"], "compare": "ratio", "op": "<",
    "threshold": 0.97, "minimum_effect": {"percent": 1},
}  # fmt: skip
PREDICTION = {"says": "it costs", "rule": "cost", "refuted_if": {"op": ">=", "threshold": 0.99}}
PROMISES: dict[str, Any] = {"baseline": BASELINE, "rules": [RULE], "prediction": PREDICTION}
LADDER: dict[str, Any] = {"factors": {"cap_mhz": {"kind": "cap", "levels": [2208, 1608, "none"]}}}
FACTS = {
    "cpu_policies": [
        {"policy": "policy0", "hw_max_khz": 1_800_000, "available_khz": [408_000, 1_608_000, 1_800_000]},
        {"policy": "policy4", "hw_max_khz": 2_208_000, "available_khz": []},
    ]
}


def write(folder: Path, changes: Mapping[str, Any]) -> Path:
    data = {**yaml.safe_load(MATRIX), **changes}
    path = folder / "m.yml"
    path.write_text(yaml.safe_dump(json.loads(json.dumps(data)), sort_keys=False))  # no object twice: no anchors
    return path


def load(folder: Path, changes: Mapping[str, Any]) -> Matrix:
    return load_matrix(write(folder, changes))


def rule(**changes: Any) -> dict[str, Any]:
    return {**PROMISES, "rules": [{**RULE, **changes}]}


def setting(**levels: Any) -> dict[str, Any]:
    return {"factors": {"tune": {"kind": "setting", "levels": levels}}}


SWAP = {"sysctl": {"name": "vm.swappiness", "value": 1}}
SAVE = {"governor": "powersave"}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (rule(metric="stedy"), "no metric is called 'stedy'; did you mean 'steady'?"),
        (rule(arms=["fanles", "active"]), "no arm is called 'fanles'; did you mean 'fanless'?"),
        (rule(arms=["fanless"]), "compare: ratio needs 2 arms"),
        (rule(arms=["active", "fanless"]), "'fanless' is not a named baseline"),
        (rule(compare="value"), "compare: value needs 1 arm"),
        (rule(op="="), "op"),
        (rule(aggregate="mode"), "aggregate"),
        ({"rules": [RULE]}, "'active' is not a named baseline"),
        ({**PROMISES, "rules": [RULE, RULE]}, "rule 'cost' is there twice"),
        ({**PROMISES, "rules": [{k: v for k, v in RULE.items() if k != "minimum_effect"}]}, "minimum_effect"),
        ({**PROMISES, "prediction": {**PREDICTION, "rule": "costs"}}, "did you mean 'cost'?"),
        ({**PROMISES, "prediction": {**PREDICTION, "refuted_if": {"op": "<", "threshold": 0.9}}}, "at once"),
        ({"baseline": {"arm": "warm", "is": "x"}}, "no arm is called 'warm'"),
        ({"metrics": [{**STEADY, "name": "speed"}]}, "no figure is called 'speed'"),
        ({"metrics": [{**STEADY, "unit": "percent"}]}, "steady is not given in percent"),
        ({"metrics": [STEADY, STEADY]}, "metric 'steady' is there twice"),
        ({"controls": [{"name": "aa", "of": "actve"}]}, "did you mean 'active'?"),
        ({"controls": [{"name": "fanless", "of": "active"}]}, "two arms are called 'fanless'"),
        ({"exclude": [{"cooling": "warm"}]}, "no factor 'cooling' with level 'warm'"),
        ({"exclude": [{"cooling": "active"}, {"cooling": "fanless"}]}, "no arm is left"),
        (setting(fast=[SWAP], slow=[SAVE]), "which another level sets"),
        (setting(fast=[SWAP, SWAP], slow=[SWAP]), "sets one thing twice"),
        ({**setting(save=[SAVE]), "settings": {"governor": "performance"}}, "set by 'tune' and by 'settings'"),
        ({"factors": {"cap": {"kind": "cap", "levels": [1608]}}}, "call it cap_mhz"),
        ({"factors": {"cap_mhz": {"kind": "cap", "levels": ["fast"]}}}, "give MHz above 0, or none"),
        ({"factors": {"cooling": {"kind": "phase", "levels": ["warm"]}}}, "active or fanless"),
        ({"factors": {"threads": {"kind": "workload", "levels": [1, 1]}}}, "twice"),
        ({"factors": {"threads": {"kind": "workload", "levels": [1, 4]}}}, "'threads' is varied by factor 'threads'"),
        ({"factors": {"tune": {"kind": "setting", "levels": ["a"]}}}, "must be a mapping"),
        ({"factors": {"n": {"kind": "workload", "levels": [1], "policies": "all"}}}, "kind 'cap' only"),
    ],
)
def test_a_mistake_is_called_by_its_name(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as caught:
        load(tmp_path, changes)
    assert said in str(caught.value)
    assert "m.yml" in str(caught.value)


def test_arms_are_combinations_less_exclude_with_their_controls_beside_them(tmp_path: Path) -> None:
    matrix = load(
        tmp_path,
        {
            "factors": {
                "cooling": {"kind": "phase", "levels": ["active", "fanless"]},
                "cap_mhz": {"kind": "cap", "levels": [2208, 1608]},
            },
            "exclude": [{"cooling": "fanless"}],
            "include": [{"cooling": "fanless", "cap_mhz": 1608}],
            "controls": [{"name": "aa", "of": "active-cap2208"}],
        },
    )
    assert [arm.name for arm in matrix.arms] == ["active-cap2208", "aa", "active-cap1608", "fanless-cap1608"]
    control = matrix.arms[1]
    assert (control.control_of, control.levels) == ("active-cap2208", matrix.arms[0].levels)
    assert matrix.phases == ("active", "fanless")
    only = matrix.restrict({"cooling": ["active"]})
    assert [arm.name for arm in only.arms] == ["active-cap2208", "aa", "active-cap1608"]
    assert only.phases == ("active",)
    with pytest.raises(InputError, match="no level 'warm'"):
        matrix.restrict({"cooling": ["warm"]})
    with pytest.raises(InputError, match="no factor 'fan'"):
        matrix.restrict({"fan": ["active"]})


def caps(plan: Plan, arm: str, board: str = "king") -> dict[str, str]:
    found = plan.settings(plan.arm(arm), board, FACTS)
    return {s.args["path"].split("/")[-2]: s.args["value"] for s in found if s.resource == "sysfs"}


def test_a_cap_becomes_a_clock_that_each_policy_has(tmp_path: Path, fleet: Fleet) -> None:
    plan = make_plan(load(tmp_path, LADDER), fleet.boards)
    assert caps(plan, "cap1608") == {"policy0": "1608000", "policy4": "1608000"}
    assert caps(plan, "cap2208") == {"policy0": "1800000", "policy4": "2208000"}
    assert caps(plan, "none") == caps(plan, "cap2208")


def test_a_cap_for_some_policies_and_boards_touches_no_other(tmp_path: Path, fleet: Fleet) -> None:
    factor = {"kind": "cap", "levels": [1608], "policies": ["policy4"], "boards": ["king"]}
    plan = make_plan(load(tmp_path, {"factors": {"cap_mhz": factor}}), fleet.boards)
    assert caps(plan, "cap1608") == {"policy4": "1608000"}
    assert caps(plan, "cap1608", "queen") == {}
    with pytest.raises(RigError, match="clocks to cap are not known"):
        plan.settings(plan.arm("cap1608"), "king", {"cpu_policies": []})


@given(st.integers(100, 4000), st.lists(st.integers(100_000, 3_000_000), max_size=8), st.integers(100_000, 3_000_000))
def test_a_cap_is_never_above_the_policys_maximum(level: int, steps: list[int], top: int) -> None:
    policy = {"policy": 0, "hw_max_khz": top, "available_khz": [step for step in steps if step <= top]}
    khz = capped_khz(str(level), policy, "king")
    assert khz <= top
    assert khz <= level * 1000 or khz == min(policy["available_khz"])


def test_levels_set_options_and_settings(tmp_path: Path, fleet: Fleet) -> None:
    changes = {
        "workload": {"name": "burn", "interval_s": 60},
        "factors": {
            "threads": {"kind": "workload", "levels": [1, "all"]},
            "tune": {
                "kind": "setting",
                "levels": {"calm": [SWAP], "busy": [{"sysctl": {**SWAP["sysctl"], "value": 60}}]},
            },
        },
    }
    plan = make_plan(load(tmp_path, changes), fleet.boards)
    assert [arm.name for arm in plan.arms] == ["threads1-calm", "threads1-busy", "all-calm", "all-busy"]
    assert plan.options(plan.arm("threads1-busy")) == {"threads": 1}
    settings = plan.settings(plan.arm("all-busy"), "king", None)
    assert [(s.resource, s.args) for s in settings if s.resource == "sysctl"] == [
        ("sysctl", {"name": "vm.swappiness", "value": "60"})
    ]


@pytest.mark.parametrize(
    "changes", [PROMISES, LADDER, setting(a=[SWAP]), {"controls": [{"name": "aa", "of": "active"}]}]
)
def test_every_plan_fits_the_schema(tmp_path: Path, fleet: Fleet, changes: dict[str, Any]) -> None:
    plan = make_plan(load(tmp_path, changes), fleet.boards, 60.0)
    assert list(schema.faults(plan.document(), "plan")) == []


CHANGES: list[dict[str, Any]] = [
    {}, {"question": "Other?"}, {"domain": "desk"}, {"seed": 8}, {"repeats": 2}, {"order": "balanced"}, {"attempts": 1},
    {"duration_s": 1800}, {"settings": {"governor": "powersave"}}, {"controls": [{"name": "aa", "of": "active"}]},
    {"metrics": [{**STEADY, "direction": "none"}]}, PROMISES, rule(threshold=0.96), rule(op="<="),
    rule(minimum_effect={"percent": 2}), rule(over_boards="min"),
    {**PROMISES, "baseline": {**BASELINE, "is": "fan on"}},
    {**PROMISES, "prediction": {**PREDICTION, "refuted_if": {"op": ">=", "threshold": 0.98}}},
    {**PROMISES, "prediction": {**PREDICTION, "says": "it costs much"}},
]  # fmt: skip


def test_any_change_gives_another_hash(tmp_path: Path, fleet: Fleet) -> None:
    matrices = [load(tmp_path, changes) for changes in CHANGES]
    # Also without the hash of the file: each change is in the plan by itself.
    bare = [replace(matrix, file_sha256="0" * 64) for matrix in matrices]
    hashes = [make_plan(matrix, fleet.boards, 60.0).sha256 for matrix in bare]
    hashes.append(make_plan(bare[0].restrict({"cooling": ["active"]}), fleet.boards, 60.0).sha256)
    assert len(set(hashes)) == len(CHANGES) + 1


def test_even_a_comment_makes_another_plan(tmp_path: Path, fleet: Fleet) -> None:
    path = write(tmp_path, {})
    first = make_plan(load_matrix(path), fleet.boards, 60.0)
    path.write_text(f"# changed\n{path.read_text()}")
    assert make_plan(load_matrix(path), fleet.boards, 60.0).sha256 != first.sha256


def test_a_locked_plan_is_read_back_and_refuses_another(tmp_path: Path, fleet: Fleet) -> None:
    matrix = load(tmp_path, PROMISES).restrict({"cooling": ["fanless", "active"]})
    plan = make_plan(matrix, fleet.boards, 60.0)
    path = lock.lock(plan, tmp_path / "results")
    assert path == tmp_path / "results" / "plans" / f"small-{plan.sha256[:8]}.json"
    assert lock.lock(plan, tmp_path / "results") == path
    locked = lock.read(path)
    assert locked.boards == ("king", "queen")
    assert locked.restricted_to == {"cooling": ("active", "fanless")}
    locked.check(make_plan(matrix, fleet.boards, 60.0))
    other = make_plan(replace(matrix, seed=9), fleet.boards, 60.0)
    with pytest.raises(InputError, match="order changed"):
        locked.check(other)


def test_a_locked_plan_that_was_edited_is_refused(tmp_path: Path, fleet: Fleet) -> None:
    path = lock.lock(make_plan(load(tmp_path, PROMISES), fleet.boards, 60.0), tmp_path)
    document = store.read_object(path)
    document["rules"][0]["threshold"] = 0.5  # type: ignore[index]
    store.write_json(path, document, replace=True)
    with pytest.raises(InputError, match="was changed after it was locked"):
        lock.read(path)
    path.write_text("{}")
    with pytest.raises(InputError, match="is no plan"):
        lock.read(path)


def test_cells_are_selected_by_globs_and_the_plan_stays_whole(tmp_path: Path, fleet: Fleet) -> None:
    plan = make_plan(load(tmp_path, {}), fleet.boards, 60.0)
    assert plan.select(()) is None
    assert plan.select(["*-king"]) == ("001-active-king", "003-fanless-king")
    assert plan.select(["001-*", "*-queen"]) == ("001-active-king", "002-active-queen", "004-fanless-queen")
    assert [[c.name for c in wave] for wave in plan.chosen_waves(["004-fanless-queen"])] == [["004-fanless-queen"]]
    with pytest.raises(InputError, match="no cell fits '\\*-jack'"):
        plan.select(["*-king", "*-jack"])
