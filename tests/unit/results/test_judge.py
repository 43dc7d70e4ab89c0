"""Which runs count: a whole one does; each fault takes it out with its own word."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from boardbench.results import record
from boardbench.results.judge import Facts, Rules, coverage, judge

ATTEMPT = "cells/003-fanless-king/attempt-1"


@pytest.fixture
def case(golden: Path) -> tuple[Path, Facts, Rules]:
    plan = json.loads((golden / "plan.json").read_text())
    run = json.loads((golden / ATTEMPT / "run.json").read_text())
    return golden / ATTEMPT, record.facts_of(run), Rules.of_plan(plan, run["boards"][0], run["phase"], ["burn.jsonl"])


def rows(folder: Path, change: Callable[[int, list[str]], list[str] | None]) -> None:
    """Rewrite the log row by row; None drops the row."""
    path = folder / "thermal.csv"
    header, *lines = path.read_text().splitlines()
    kept = [changed for index, line in enumerate(lines) if (changed := change(index, line.split(",")))]
    path.write_text("\n".join([header, *(",".join(row) for row in kept)]) + "\n")


def codes(folder: Path, facts: Facts, rules: Rules) -> set[str]:
    return {reason.code for reason in judge(folder, facts, rules)}


def test_a_whole_run_counts(case: tuple[Path, Facts, Rules]) -> None:
    assert judge(*case) == ()


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"exit_code": 1}, "workload-failed"),
        ({"exit_code": None}, "workload-failed"),
        ({"exit_code": None, "exit_signal": 9}, "workload-failed"),
        ({"boot_after": "another"}, "rebooted"),
        ({"boot_after": None}, "boot-id-unknown"),
        ({"window_monotonic_s": None}, "workload-short"),
        ({"evidence": ({"gate": "cool", "ok": False, "saw": {}, "why": "hot"},)}, "cool-gate-not-met"),
        ({"evidence": ({"gate": "strays", "ok": False, "saw": {}, "why": "one"},)}, "strays-present"),
        (
            {"evidence": ({"gate": "logger", "ok": False, "saw": {"biggest_gap_s": 3, "gap_limit_s": 1}, "why": "g"},)},
            "logger-gap",
        ),
    ],
)
def test_what_the_gates_saw_takes_a_run_out(
    case: tuple[Path, Facts, Rules], change: dict[str, object], code: str
) -> None:
    folder, facts, rules = case
    if "evidence" in change:
        change = {"evidence": (*facts.evidence, *change["evidence"])}  # type: ignore[misc]
    assert codes(folder, dataclasses.replace(facts, **change), rules) == {code}  # type: ignore[arg-type]


def test_a_gate_that_the_matrix_does_not_name_takes_nothing_out(case: tuple[Path, Facts, Rules]) -> None:
    folder, facts, rules = case
    said = {"gate": "cache", "ok": False, "saw": {}, "why": "warm"}
    warm = dataclasses.replace(facts, evidence=(*facts.evidence, said))
    assert judge(folder, warm, rules) == ()
    strict = dataclasses.replace(rules, gates=rules.gates | {"cache"})
    assert codes(folder, warm, strict) == {"cache-warm"}


def test_a_load_shorter_than_planned_does_not_count(case: tuple[Path, Facts, Rules]) -> None:
    folder, facts, rules = case
    assert codes(folder, facts, dataclasses.replace(rules, duration_s=0.05)) == {"workload-short"}


@pytest.mark.parametrize("name", ["thermal.csv", "thermal.meta.json", "workload/burn.jsonl"])
def test_a_missing_file_does_not_count(case: tuple[Path, Facts, Rules], name: str) -> None:
    folder, facts, rules = case
    (folder / name).unlink()
    assert "missing-file" in codes(folder, facts, rules)


def test_a_hole_in_the_log_is_a_gap(case: tuple[Path, Facts, Rules]) -> None:
    folder, facts, rules = case
    strict = dataclasses.replace(rules, max_gap_s=0.02)
    assert judge(folder, facts, strict) == ()
    rows(folder, lambda index, row: None if 30 <= index <= 62 and index % 8 else row)
    assert codes(folder, facts, strict) == {"logger-gap"}


def test_a_row_that_was_woken_late_leaves_no_hole_where_time_is_scaled() -> None:
    clock = [0.0, 0.1, 0.2, 1.0, 1.1]
    late = [0.0, 0.0, 0.0, 0.7, 0.0]
    assert list(coverage(clock, 0.05, 1.05, 0.5, late)) == []
    assert [reason.code for reason in coverage(clock, 0.05, 1.05, 0.5)] == ["logger-gap"]
    # Too late for any excuse, or not late at all: rows are missing.
    assert [reason.code for reason in coverage([0.0, 0.1, 1.3], 0.05, 1.2, 0.5, [0.0, 0.0, 1.1])] == ["logger-gap"]
    assert [reason.code for reason in coverage(clock, 0.05, 1.05, 0.5, [0.0] * 5)] == ["logger-gap"]


def test_a_log_that_ends_before_the_load_is_short(case: tuple[Path, Facts, Rules]) -> None:
    folder, facts, rules = case
    assert facts.window_monotonic_s is not None
    end_s = facts.window_monotonic_s[1]
    strict = dataclasses.replace(rules, max_gap_s=0.006)
    rows(folder, lambda _, row: row if float(row[1]) < end_s - 0.008 else None)
    assert codes(folder, facts, strict) == {"logger-short"}


def test_a_clock_that_was_set_under_load_is_a_jump(case: tuple[Path, Facts, Rules]) -> None:
    folder, facts, rules = case
    assert facts.window_monotonic_s is not None
    middle_s = sum(facts.window_monotonic_s) / 2
    rows(folder, lambda _, row: [str(float(row[0]) + 2.0 * (float(row[1]) > middle_s)), *row[1:]])
    assert codes(folder, facts, rules) == {"clock-jump"}


def test_a_run_without_a_temperature_under_load_does_not_count(case: tuple[Path, Facts, Rules]) -> None:
    folder, facts, rules = case

    def blank(_: int, row: list[str]) -> list[str]:
        named = [entry for entry in row[6].split(";") if entry]
        return [*row[:4], "", row[5], ";".join([*named, "soc-thermal_celsius=EIO"])]

    rows(folder, blank)
    assert codes(folder, facts, rules) == {"no-temperature"}


def test_a_fan_that_turns_in_a_fanless_run_is_seen_in_the_log(case: tuple[Path, Facts, Rules]) -> None:
    folder, facts, rules = case
    path = folder / "thermal.csv"
    header, *lines = path.read_text().splitlines()
    path.write_text(header.replace(",missing", ",fan_pwm,missing") + "\n")
    with path.open("a") as file:
        for line in lines:
            head, _, tail = line.rpartition(",")
            file.write(f"{head},255,{tail}\n")
    assert codes(folder, facts, rules) == {"cooling-not-as-planned"}
    assert judge(folder, facts, dataclasses.replace(rules, phase="active")) == ()
