"""An arm that answers something else than its baseline measures something else: its cell does not count."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from tests.payloads.llama.llama_raw import lines, request, sha, write

from boardbench.results import sameness, verdict
from boardbench.results.sampled import Sampled
from boardbench.workloads.base import Outputs, Samples

TEXTS = {"en-1": "a", "en-2": "b"}
PLAN: dict[str, Any] = {
    "baselines": [{"arm": "stock", "is": "stock"}],
    "arms": [{"name": name} for name in ("cache", "stock", "stock-aa", "dense", "dense-cache")],
}


def run(arm: str, number: int = 1, board: str = "jetson", family: str = "moe", **more: Any) -> Sampled:
    outputs = Outputs(family, **{"texts": TEXTS, "perplexity": 6.2344, "perplexity_of": "ours", **more})
    return Sampled(board, arm, f"{board}-{arm}-{number}", Samples("tokens", (), True, "", None, True, outputs=outputs))


def codes(*runs: Sampled) -> dict[str, list[str]]:
    return {name: [reason.code for reason in found] for name, found in sameness.differing(PLAN, runs).items()}


def test_equal_answers_are_nothing_against_a_run() -> None:
    assert codes(run("cache"), run("stock"), run("stock-aa")) == {}


def test_one_answer_that_differs_takes_the_run_out_and_names_the_request() -> None:
    other = run("cache", texts={"en-1": "a", "en-2": "x"})
    found = sameness.differing(PLAN, [other, run("stock")])
    assert list(found) == ["jetson-cache-1"]
    (reason,) = found["jetson-cache-1"]
    assert (reason.code, reason.detail) == (
        "text-differs", "1 of 2 answers are not those of stock (jetson-stock-1): en-2",
    )  # fmt: skip


def test_an_answer_that_is_not_there_is_a_difference() -> None:
    assert codes(run("cache", texts={"en-1": "a"}), run("stock")) == {"jetson-cache-1": ["text-differs"]}


def test_a_baseline_that_does_not_repeat_itself_is_told_too() -> None:
    assert codes(run("stock"), run("stock", 2, texts={"en-1": "z", "en-2": "b"})) == {
        "jetson-stock-2": ["text-differs"]
    }


@pytest.mark.parametrize(
    ("value", "of", "told"),
    [(6.2345, "ours", False), (6.25, "ours", True), (7.58, "another text", False), (None, "ours", False)],
)
def test_perplexity_is_compared_over_the_same_text_only(value: float | None, of: str, told: bool) -> None:
    found = codes(run("cache", perplexity=value, perplexity_of=of), run("stock"))
    assert found == ({"jetson-cache-1": ["perplexity-differs"]} if told else {})


def test_models_and_boards_are_compared_with_their_own_kind_only() -> None:
    dense = {"family": "dense", "texts": {"en-1": "d"}}
    assert codes(run("stock"), run("dense", **dense), run("stock", board="other", texts={"en-1": "q"})) == {}
    against = sameness.baselines(PLAN, [run("stock"), run("dense-cache", **dense), run("dense", **dense)])
    assert against["jetson-dense-cache-1"].arm == "dense"


def attempt(folder: Path, name: str, *requests: dict[str, Any]) -> None:
    place = folder / "cells" / name / "attempt-1"
    raw = write(place / "workload", lines(*requests)) / "llama.jsonl"
    run = {
        "run": name, "cell": name, "attempt": 1, "boards": ["jetson"], "phase": None,
        "workload": {"name": "llama-load"},
        "valid": True, "invalid_reasons": [], "load_window_monotonic_s": [10.0, 18.0], "evidence": [],
        "files": [{"name": "workload/llama.jsonl", "sha256": hashlib.sha256(raw.read_bytes()).hexdigest()}],
    }  # fmt: skip
    (place / "run.json").write_text(json.dumps(run))


def test_the_verdict_counts_a_cell_with_other_text_as_invalid_and_rules_on_it_too(tmp_path: Path) -> None:
    attempt(tmp_path, "001-stock-jetson", request(0), request(1))
    attempt(tmp_path, "002-cache-jetson", request(0, predicted_ms=1.0), request(1, text_sha256=sha("other")))
    rule = {
        "name": "gains", "metric": "decode", "aggregate": "median", "arms": ["cache", "stock"], "compare": "ratio",
        "op": ">", "threshold": 1.1, "minimum_effect": {"percent": 1}, "over_boards": "each",
    }  # fmt: skip
    plan = {
        **PLAN, "arms": [{"name": name, "control_of": None, "levels": {}, "options": {}, "phase": None}
                         for name in ("stock", "cache")],
        "cells": [
            {"name": "001-stock-jetson", "arm": "stock", "boards": ["jetson"], "repetition": 1},
            {"name": "002-cache-jetson", "arm": "cache", "boards": ["jetson"], "repetition": 1},
        ],
        "workload": {"name": "llama-load", "options": {}}, "metrics": [
            {"name": "decode", "unit": "tokens/s", "direction": "none", "from": "decode"},
        ],
        "rules": [rule], "prediction": None, "time_scale": 60.0, "question": "?", "domain": "", "boards": ["jetson"],
        "board_time": {"duration_s": 1.0}, "repeats": 1, "factors": [],
    }  # fmt: skip
    made = verdict.make(tmp_path, plan, verdict.Ending({}, False, {}))
    states = {entry["cell"]: entry["state"] for entry in made["cells"]}
    assert states == {"001-stock-jetson": "valid", "002-cache-jetson": "invalid"}
    (reason,) = made["cells"][1]["attempts"][0]["invalid_reasons"]
    assert reason["code"] == "text-differs"
    assert (made["counts"]["valid"], made["counts"]["invalid"]) == (1, 1)
    assert made["decisions"]["rules"][0]["verdict"] == "invalid"
