"""Stages: a level that sets several things at once, for a load that ends when its work is done."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_boards import TIME_SCALE, Fleet

from boardbench.errors import InputError
from boardbench.matrix.load import load_matrix
from boardbench.matrix.plan import Plan, make_plan
from boardbench.results import schema
from boardbench.results.judge import Rules

PROJECT = Path(__file__).parents[3]

MATRIX = """version: 1
name: stages
question: what does each step gain?
boards: {capabilities: [cpufreq], together: each}
workload: {name: llama-load, interval_s: 1, predict: 8, arguments: --cpu-moe}
duration_s: 300
limits: {memory_max_mib: 256, swap_max_mib: 0}
factors:
  stage:
    kind: stage
    levels:
      baseline:
        workload: {build: stock, threads: 2, floor: down}
        settings: [{unit: {name: gpu-floor.service, active: false}}]
      cache:
        workload: {build: patched, threads: 1, floor: up, cache_mib: 64}
        settings: [{unit: {name: gpu-floor.service, active: true}}]
controls: [{name: baseline-aa, of: baseline}]
metrics:
  - {name: decode, unit: tokens/s, direction: higher-is-better}
  - {name: read, unit: GiB, direction: lower-is-better}
"""


def plan_of(tmp_path: Path, fleet: Fleet, text: str = MATRIX) -> Plan:
    path = tmp_path / "stages.yml"
    path.write_text(text)
    return make_plan(load_matrix(path), fleet.boards, TIME_SCALE)


def test_a_level_sets_options_of_the_workload_and_the_state_of_a_unit(tmp_path: Path, fleet: Fleet) -> None:
    plan = plan_of(tmp_path, fleet)
    assert [arm.name for arm in plan.arms] == ["baseline", "baseline-aa", "cache"]
    cache = plan.arm("cache")
    assert plan.options(cache) == {
        "predict": 8, "arguments": "--cpu-moe", "build": "patched", "threads": 1, "floor": "up", "cache_mib": 64,
    }  # fmt: skip
    (setting,) = plan.settings(cache, plan.boards[0], None)
    assert (setting.resource, setting.args) == ("unit", {"name": "gpu-floor.service", "active": True})
    assert plan.options(plan.arm("baseline-aa")) == plan.options(plan.arm("baseline"))


def test_the_locked_plan_holds_the_limits_and_fits_its_schema(tmp_path: Path, fleet: Fleet) -> None:
    document = plan_of(tmp_path, fleet).document()
    assert document["limits"] == {"memory_max_bytes": 256 << 20, "swap_max_bytes": 0}
    assert list(schema.faults(document, "plan")) == []


def test_real_work_takes_real_time_however_fast_a_boards_physics_run(tmp_path: Path, fleet: Fleet) -> None:
    plan = plan_of(tmp_path, fleet)
    assert plan.body()["wall_time"]["duration_s"] == 300.0  # type: ignore[index]
    assert plan.logger_period_s == 1.0
    # A load that is done early is no short load.
    assert Rules.of_plan(plan.body(), "jetson", None, ("llama.jsonl",)).duration_s == 0.0


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("threads: 1", "thread: 1", "workload llama-load has no option 'thread'; did you mean 'threads'"),
        ("threads: 1", "policy: ect", r"stages\.yml:\d+: workload llama-load has no option 'policy'"),
        ("predict: 8", "predikt: 8", r"stages\.yml:5: unknown key 'predikt' in workload; did you mean 'predict'"),
        ("predict: 8", "stretch: 4", r"stages\.yml:5: workload llama-load has no option 'stretch'"),
        ("floor: up", "floor: upp", r"stages\.yml:\d+: option 'floor' cannot be 'upp'; did you mean 'up'"),
        ("cache_mib: 64", "cache_mib: true", r"stages\.yml:\d+: option 'cache_mib' cannot be 'True'"),
        ("build: patched", "build: stock", "no expert cache"),
        ("active: true", "active: high", r"stages\.yml:\d+"),
        ("kind: stage", "kind: setting", r"stages\.yml:\d+.*a list of settings"),
        ("        settings: [{unit: {name: gpu-floor.service, active: true}}]\n", "", "does not set unit gpu-floor"),
        ("unit: GiB", "unit: MB", "read is not given in MB"),
        ("name: decode", "name: decoded", "no figure is called 'decoded'"),
        ("memory_max_mib: 256", "memory_max_mb: 256", r"stages\.yml:\d+"),
    ],
)
def test_a_mistake_is_told_before_any_board_is_asked(
    tmp_path: Path, fleet: Fleet, old: str, new: str, what: str
) -> None:
    assert MATRIX.count(old) >= 1
    with pytest.raises(InputError, match=what):
        plan_of(tmp_path, fleet, MATRIX.replace(old, new))


def test_the_projects_own_stages_load_and_their_plan_fits_the_schema(fleet: Fleet) -> None:
    plan = make_plan(load_matrix(PROJECT / "playbooks/matrices/moe-stages.yml"), fleet.boards, 60.0)
    assert list(schema.faults(plan.document(), "plan")) == []
    assert [arm.name for arm in plan.arms] == [
        "baseline", "baseline-aa", "floor", "cache", "tuned", "dense", "dense-aa", "densecache",
    ]  # fmt: skip
