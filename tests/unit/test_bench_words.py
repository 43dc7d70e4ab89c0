"""What `bench` says at its end: how many runs do not count, and why."""

from __future__ import annotations

from pathlib import Path

from boardbench.results import store
from tasks.bench import uncounted


def verdict(folder: Path, *attempts: list[list[str]]) -> Path:
    """A verdict with these cells, each a list of attempts, each a list of reason words (empty: it counts)."""
    cells = [
        {"attempts": [{"valid": not words, "invalid_reasons": [{"code": word} for word in words]} for words in cell]}
        for cell in attempts
    ]
    store.write_json(folder / "verdict.json", {"cells": cells})
    return folder


def test_runs_that_do_not_count_are_counted_by_their_reasons_also_when_a_later_attempt_did(tmp_path: Path) -> None:
    folder = verdict(
        tmp_path, [["rebooted"], []], [["overheated", "overheated", "workload-short"], ["overheated"]], [[]]
    )
    assert uncounted(folder) == ["3 of 5 runs do not count: overheated 2, rebooted 1, workload-short 1"]


def test_nothing_is_said_when_all_count(tmp_path: Path) -> None:
    assert uncounted(verdict(tmp_path, [[]], [])) == []
