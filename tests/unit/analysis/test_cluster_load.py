"""Figures of a cluster's arms."""

from __future__ import annotations

import pytest

from boardbench.analysis.cluster_load import LoadRun, arms_of
from boardbench.analysis.estimates import Estimate, Unknown
from boardbench.analysis.percentiles import RunLevel


def run(arm: str, nodes: int, rate: float, latencies: list[float], p99: float = 200.0) -> LoadRun:
    names = ("king", "queen", "jack")[:nodes]
    return LoadRun(
        arm=arm,
        nodes=dict.fromkeys(names, 100),
        node_p50_ms={name: 80.0 + 40 * index for index, name in enumerate(names)},
        rate_per_s=rate,
        under_way=12.0 * nodes,
        mean_latency_ms=1000 * 12 * nodes / rate,
        latencies_ms=latencies,
        percentiles_ms={50.0: 80.0, 95.0: 120.0, 99.0: p99},
        stages={"inference": 14.0, "decode": "not measured: always 0, nobody fills it in"},
    )


def test_a_speedup_never_stands_without_its_efficiency_and_what_it_is_against() -> None:
    one, three = arms_of([run("nodes1", 1, 135.5, [80.0] * 200), run("nodes3", 3, 387.2, [90.0] * 600)])
    assert (one.speedup, one.efficiency) == (1.0, 1.0)
    assert three.speedup == pytest.approx(2.858, abs=1e-3)
    assert three.efficiency == pytest.approx(0.953, abs=1e-3)
    assert three.against == "nodes1"


def test_arms_of_one_node_count_have_no_scaling() -> None:
    arms = arms_of([run("rr", 3, 380.0, [90.0] * 200), run("ect", 3, 384.0, [90.0] * 200)])
    assert all(arm.speedup is None and arm.efficiency is None for arm in arms)


def test_pooled_and_run_level_percentiles_are_told_apart() -> None:
    fast, slow = [10.0] * 990 + [20.0] * 10, [10.0] * 900 + [500.0] * 100
    (arm,) = arms_of([run("a", 1, 100.0, fast, 20.0), run("a", 1, 100.0, slow, 500.0)])
    pooled, per_run = arm.pooled[99.0], arm.per_run[99.0]
    assert isinstance(pooled, Estimate)
    assert isinstance(per_run, RunLevel)
    assert pooled.value == 500.0
    assert per_run.mean == 260.0


def test_too_few_requests_give_no_percentile() -> None:
    (arm,) = arms_of([run("a", 1, 1.0, [10.0] * 20)])
    assert isinstance(arm.pooled[99.0], Unknown)


def test_a_stage_that_was_not_measured_stays_so() -> None:
    (arm,) = arms_of([run("a", 1, 100.0, [10.0] * 200), run("a", 1, 100.0, [10.0] * 200)])
    assert arm.stages_ms["inference"] == 14.0
    assert str(arm.stages_ms["decode"]).startswith("not measured")


def test_the_residual_is_against_the_direct_rate_and_missing_without_it() -> None:
    runs = [run("a", 1, 135.5, [10.0] * 200)]
    assert arms_of(runs)[0].residual is None
    assert arms_of(runs, 161.5)[0].residual == pytest.approx(0.161, abs=1e-3)


def test_a_rate_that_fits_the_law_departs_by_nothing() -> None:
    (arm,) = arms_of([run("a", 3, 387.0, [10.0] * 200)])
    assert arm.law == pytest.approx(0.0)
    assert arm.node_spread == pytest.approx(2.0)
    assert arm.shares == {"jack": pytest.approx(1 / 3), "king": pytest.approx(1 / 3), "queen": pytest.approx(1 / 3)}
