"""Figures that only one kind of workload has: a metric names them, with a unit, as it names any other."""

from __future__ import annotations

import pytest

from boardbench.results.figures import Figures
from boardbench.workloads.base import Figure


def figures(**own: Figure) -> Figures:
    return Figures(None, None, None, (), {name.replace("_", "-"): value for name, value in own.items()})


def test_a_figure_of_the_workloads_own_is_given_in_the_unit_that_is_asked_for() -> None:
    found = figures(latency_p99=Figure(250.0))
    assert found.value_of("npu-load", "latency-p99", "ms") == (250.0, "")
    assert found.value_of("npu-load", "latency-p99", "s") == (pytest.approx(0.25), "")


def test_what_was_not_measured_is_missing_with_its_reason() -> None:
    found = figures(errors=Figure(None, "the load was cut off"))
    assert found.value_of("npu-load", "errors", "count") == (None, "the load was cut off")
    assert found.value_of("npu-load", "node-spread", "ratio") == (None, "it was not measured")
