"""What validation finds in a campaign that somebody or something changed."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from boardbench.errors import InputError
from boardbench.results import manifest, record, store, verdict
from boardbench.results.validate import validate

ATTEMPT = "cells/003-fanless-king/attempt-1"


def edit(path: Path, change: Callable[[Any], None]) -> None:
    value = json.loads(path.read_text())
    change(value)
    path.write_bytes(store.to_bytes(value))


def seal(campaign: Path) -> None:
    """What a careful forger does: file list, verdict and manifest made to fit again."""
    for run_json in campaign.glob("cells/*/attempt-*/run.json"):
        edit(run_json, lambda run, folder=run_json.parent: run.update(files=record.list_files(folder)))
    plan = json.loads((campaign / "plan.json").read_text())
    ending = verdict.ending_of(json.loads((campaign / "verdict.json").read_text()))
    store.write_json(campaign / "verdict.json", verdict.make(campaign, plan, ending), replace=True)
    manifest.write(campaign)


def files_named(campaign: Path) -> set[str]:
    return {problem.file for problem in validate(campaign)}


def test_a_whole_campaign_has_no_problem(golden: Path) -> None:
    assert validate(golden) == []
    assert validate(golden.parents[1]) == []
    assert validate(golden.parent) == []


def test_any_flipped_byte_in_any_file_is_found_and_the_file_named(golden: Path) -> None:
    draw = random.Random(20260821)
    names = [*manifest.files_of(golden), manifest.NAME]
    assert len(names) > 25
    for name in names:
        path = golden / name
        data = path.read_bytes()
        if not data:
            continue
        at = draw.randrange(len(data))
        path.write_bytes(data[:at] + bytes([data[at] ^ (1 << draw.randrange(8))]) + data[at + 1 :])
        assert name in {problem.file for problem in manifest.check(golden)}, f"{name}, byte {at}"
        path.write_bytes(data)
    assert validate(golden) == []


@pytest.mark.parametrize("bit", range(8))
def test_every_byte_of_the_manifest_counts(golden: Path, bit: int) -> None:
    path = golden / manifest.NAME
    data = path.read_bytes()
    for at in (*range(0, len(data), 97), len(data) - 1):
        path.write_bytes(data[:at] + bytes([data[at] ^ (1 << bit)]) + data[at + 1 :])
        assert manifest.NAME in {problem.file for problem in manifest.check(golden)}, at


def test_a_flip_is_named_by_the_whole_validation_too(golden: Path) -> None:
    for name in ("campaign.json", "plan.json", "verdict.json", "journal.jsonl", f"{ATTEMPT}/thermal.csv"):
        path = golden / name
        data = path.read_bytes()
        path.write_bytes(data[:50] + bytes([data[50] ^ 1]) + data[51:])
        assert name in files_named(golden)
        path.write_bytes(data)


def test_a_missing_and_a_strange_file_are_named(golden: Path) -> None:
    (golden / ATTEMPT / "workload/burn.jsonl").unlink()
    (golden / "cells/extra.txt").write_text("x")
    (golden / ATTEMPT / "stranger").write_text("x")
    assert {f"{ATTEMPT}/workload/burn.jsonl", "cells/extra.txt", f"{ATTEMPT}/stranger"} <= files_named(golden)


def test_a_cell_of_the_plan_without_a_run_is_named(golden: Path) -> None:
    shutil.rmtree(golden / ATTEMPT)
    seal(golden)
    found = validate(golden)
    assert [problem.file for problem in found] == ["cells/003-fanless-king"]
    assert "there is no run" in found[0].what


def test_a_campaign_that_was_killed_is_not_whole(golden: Path) -> None:
    (golden / "verdict.json").unlink()
    (golden / manifest.NAME).unlink()
    assert {"verdict.json", manifest.NAME} <= files_named(golden)


def test_a_partial_attempt_is_named(golden: Path) -> None:
    (golden / ATTEMPT).rename(golden / f"{ATTEMPT}.partial")
    seal(golden)
    assert f"{ATTEMPT}.partial" in files_named(golden)


def test_an_invalid_run_that_is_relabelled_valid_is_found(golden: Path) -> None:
    def relabel(run: Any) -> None:
        run["boot_ids"]["after"] = "another"

    edit(golden / ATTEMPT / "run.json", relabel)
    seal(golden)
    (problem,) = validate(golden)
    assert problem.file == f"{ATTEMPT}/run.json"
    assert "rebooted" in problem.what


def test_zero_in_place_of_a_missing_temperature_is_found(golden: Path) -> None:
    path = golden / ATTEMPT / "thermal.csv"
    path.write_text(path.read_text().replace(",86.8,", ",0.0,"))
    seal(golden)
    assert any(p.file == f"{ATTEMPT}/thermal.csv" and "0.0 in all rows" in p.what for p in validate(golden))


def test_an_interval_moved_outside_the_recorded_window_is_found(golden: Path) -> None:
    path = golden / ATTEMPT / "workload/burn.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[-2]["end_monotonic_s"] += 0.005
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    seal(golden)
    assert any("load window" in problem.what for problem in validate(golden))


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "1e999"])
def test_numbers_that_are_none_are_refused(golden: Path, constant: str) -> None:
    path = golden / ATTEMPT / "workload/burn.jsonl"
    text = path.read_text()
    path.write_text(text.replace('"operations_per_s": 800.0', f'"operations_per_s": {constant}', 1))
    assert path.read_text() != text
    seal(golden)
    found = [problem for problem in validate(golden) if problem.file == f"{ATTEMPT}/workload/burn.jsonl"]
    assert found
    assert found[0].line == 2


def test_a_fanless_run_that_is_not_hotter_is_doubted(golden: Path) -> None:
    path = golden / ATTEMPT / "thermal.csv"
    path.write_text(path.read_text().replace(",86.8,", ",59.0,"))
    seal(golden)
    (problem,) = validate(golden)
    assert "board king: a fanless run got no hotter (59.0 degC)" in problem.what


def test_an_unknown_key_is_found(golden: Path) -> None:
    edit(golden / ATTEMPT / "run.json", lambda run: run.update(mood="good"))
    seal(golden)
    assert any("mood" in problem.what for problem in validate(golden))


def test_a_plan_changed_after_the_run_is_found(golden: Path) -> None:
    edit(golden / "plan.json", lambda plan: plan["board_time"].update(duration_s=60.0))
    seal(golden)
    assert any(p.file == "plan.json" and "hash" in p.what for p in validate(golden))


def test_a_run_copied_into_another_cell_is_found(golden: Path) -> None:
    shutil.rmtree(golden / "cells/004-fanless-queen/attempt-1")
    shutil.copytree(golden / ATTEMPT, golden / "cells/004-fanless-queen/attempt-1")
    seal(golden)
    found = validate(golden)
    assert any("boards is ['king']" in problem.what for problem in found)
    assert any("more than once" in problem.what for problem in found)


def test_a_folder_without_campaigns_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no campaign"):
        validate(tmp_path)
