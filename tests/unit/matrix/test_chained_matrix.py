"""A chained load in a matrix file: declared whole, in board time, and on the board in its own seconds."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_boards import MATRIX, TIME_SCALE, Fleet

from boardbench.errors import InputError
from boardbench.matrix.load import load_matrix

LOAD = "workload: {name: burn, threads: all, interval_s: 60}"


def written(tmp_path: Path, load: str) -> Path:
    path = tmp_path / "chained.yml"
    path.write_text(MATRIX.replace(LOAD, f"workload: {{name: burn, threads: all, interval_s: 60, {load}}}"))
    return path


@pytest.mark.parametrize(
    "load",
    [
        "mode: chained",
        "chain: {run_s: 120, gap_s: 5}",
        "mode: sustained, chain: {run_s: 120, gap_s: 5}",
        "mode: chained, chain: {run_s: 30, gap_s: 5}",
        "mode: chained, chain: {run_s: 9000, gap_s: 5}",
        "mode: chained, chain: {run_s: 120}",
        "mode: chaned",
    ],
)
def test_half_a_chain_is_a_mistake_with_its_line(tmp_path: Path, load: str) -> None:
    with pytest.raises(InputError, match=r"chained\.yml:\d+"):
        load_matrix(written(tmp_path, load))


def test_a_chain_is_in_the_plan_and_in_the_run_and_on_the_boards_command_line(
    bench: Callable[..., Any], fleet: Fleet, tmp_path: Path
) -> None:
    matrix = tmp_path / "small.yml"
    matrix.write_text(written(tmp_path, "mode: chained, chain: {run_s: 310, gap_s: 31}").read_text())
    outcome = bench()
    plan = json.loads((outcome.path / "plan.json").read_text())
    assert plan["workload"]["options"]["mode"] == "chained"
    run = json.loads((outcome.path / "cells/001-active-king/attempt-1/run.json").read_text())
    assert run["workload"]["mode"] == "chained"
    argv = dict(fleet["king"].log)["start"]["exec"]
    assert float(argv[argv.index("--gap-s") + 1]) == pytest.approx(31 / TIME_SCALE, abs=1e-6)


def test_a_load_without_a_word_is_sustained(bench: Callable[..., Any]) -> None:
    run = json.loads((bench().path / "cells/001-active-king/attempt-1/run.json").read_text())
    assert run["workload"]["mode"] == "sustained"
