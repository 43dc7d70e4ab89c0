"""Percentiles: pooled ones from samples or sketches, run-level ones named as such."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from boardbench.analysis.estimates import Estimate, Unknown
from boardbench.analysis.percentiles import RunLevel, nearest_rank, pooled_percentile, run_level
from boardbench.analysis.sketch import Sketch

LATENCIES = st.lists(st.just(0.0) | st.floats(1e-6, 1e9), min_size=1, max_size=300)
RANKS = st.sampled_from([0.1, 25.0, 50.0, 90.0, 99.0, 100.0])


def test_nearest_rank_gives_a_value_that_was_measured() -> None:
    values = [float(i) for i in range(1, 11)]
    assert [nearest_rank(values, p) for p in (1, 50, 51, 90, 91, 100)] == [1, 5, 6, 9, 10, 10]
    assert nearest_rank([float(i) for i in range(1, 1001)], 99.9) == 999
    with pytest.raises(ValueError, match="p0"):
        nearest_rank(values, 0)
    with pytest.raises(ValueError, match="of 0 values"):
        nearest_rank([], 50)


def test_a_percentile_that_is_only_the_maximum_is_not_told() -> None:
    assert pooled_percentile([1.0] * 99, 99) == Unknown("p99 needs 100 samples, there are 99")
    assert isinstance(pooled_percentile([1.0] * 100, 99), Estimate)
    assert isinstance(pooled_percentile([1.0] * 1000, 99.9), Estimate)
    assert pooled_percentile([], 50) == Unknown("p50 needs 2 samples, there are 0")
    assert pooled_percentile([None, 3.0], 100).value == 3.0


def test_the_interval_of_a_pooled_percentile_holds_the_truth() -> None:
    rng = np.random.default_rng(1)
    held = sum(
        pooled_percentile(rng.exponential(100.0, 2000).tolist(), 99).interval.holds(100 * math.log(100))
        for _ in range(500)
    )
    assert held >= stats.binom.ppf(0.001, 500, 0.95)


def test_an_end_that_no_sample_bounds_is_infinite() -> None:
    found = pooled_percentile([float(i) for i in range(100)], 99)
    assert isinstance(found, Estimate)
    assert found.interval.high == float("inf")
    assert "missing" in json.dumps(found.as_json(), allow_nan=False)


def test_run_level_percentiles_carry_their_name_and_read_lower_than_pooled_ones() -> None:
    rng = np.random.default_rng(2)
    runs = [rng.exponential(scale, 500) for scale in (60.0, 60.0, 240.0)]
    each = [nearest_rank(sorted(run.tolist()), 99) for run in runs]
    found = run_level([*each, None], 99)
    assert isinstance(found, RunLevel)
    assert found.name == "mean of 3 run-level p99, not pooled"
    assert found.missing == 1
    assert found.mean < pooled_percentile(np.concatenate(runs).tolist(), 99).value
    assert run_level([None], 95) == Unknown("no run has a p95")


@settings(deadline=None)
@given(LATENCIES, RANKS)
def test_a_sketch_is_within_its_relative_error_of_the_exact_percentile(values: list[float], percentile: float) -> None:
    sketch = Sketch()
    sketch.add(values)
    found = sketch.percentile(percentile)
    if isinstance(found, Unknown):
        assert len(values) < math.ceil(round(100 / (100 - percentile), 9))
        return
    exact = nearest_rank(sorted(values), percentile)
    assert abs(found.value - exact) <= 0.005 * exact * (1 + 1e-6)
    assert found.interval.low <= exact * (1 + 1e-9)
    assert exact <= found.interval.high * (1 + 1e-9)


@settings(deadline=None)
@given(st.lists(LATENCIES, min_size=1, max_size=5), RANKS)
def test_merging_gives_the_sketch_of_all_in_any_order(parts: list[list[float]], percentile: float) -> None:
    whole, forward, backward = Sketch(), Sketch(), Sketch()
    whole.add([value for part in parts for value in part])
    for target, order in ((forward, parts), (backward, parts[::-1])):
        for part in order:
            piece = Sketch()
            piece.add(part)
            target.merge(Sketch.of(json.loads(json.dumps(piece.as_json(), allow_nan=False))))
    assert forward == backward == whole
    assert forward.percentile(percentile) == whole.percentile(percentile)
    assert forward.count == sum(len(part) for part in parts)


def test_a_sketch_of_a_million_samples_stays_small() -> None:
    sketch = Sketch()
    sketch.add(np.random.default_rng(3).lognormal(4, 1, 1_000_000))
    assert len(sketch.buckets) < 2000
    assert len(json.dumps(sketch.as_json())) < 20_000


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf"), 1e-12, 1e13])
def test_a_sketch_refuses_what_is_no_latency(value: float) -> None:
    sketch = Sketch()
    with pytest.raises(ValueError, match="a failed read is none"):
        sketch.add([1.0, value])
    assert sketch.count == 0


def test_sketches_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="do not merge"):
        Sketch(0.005).merge(Sketch(0.01))
    with pytest.raises(ValueError, match="not within"):
        Sketch(0.5)
    good = Sketch()
    good.add([0.0, 2.0])
    whole = good.as_json()
    assert Sketch.of(whole) == good
    for name, bad in (
        ("kind", "hdr"), ("keys", []), ("keys", ["1"]), ("counts", [0]), ("counts", [True]), ("zeros", -1),
        ("zeros", None), ("relative_error", None), ("relative_error", 3.0), ("minimum", None), ("maximum", "2"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=r"sketch|relative error"):
            Sketch.of({**whole, name: bad})
    with pytest.raises(ValueError, match="no sketch"):
        Sketch.of({})
    assert Sketch().percentile(50) == Unknown("p50 needs 2 samples, there are 0")
