"""Responses and logs of llama.cpp: rates from counts and times, warm prompts apart, no progress line for a result."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from boardbench.imports.model import Missing, Parsed, Run
from boardbench.imports.registry import read


def imported(path: Path, text: str, name: str = "a.jsonl", wanted: str = "llama-server") -> Parsed:
    (path / name).write_text(text, encoding="utf-8")
    found = read(path / name)
    assert found.format == wanted
    return found.parsed


def response(**timings: Any) -> str:
    return json.dumps({"timings": timings, "model": "tiny"}) + "\n"


def codes(run: Run) -> list[str]:
    return [code for code, _ in run.reasons]


def test_rates_come_from_counts_and_times(tmp_path: Path) -> None:
    text = response(cache_n=0, prompt_n=600, prompt_ms=500.0, predicted_n=100, predicted_ms=2500.0, new=1)
    (run,) = imported(tmp_path, text).runs
    assert run.metrics["prefill_tokens_per_s"] == 1200.0
    assert run.metrics["decode_tokens_per_s"] == 40.0
    assert run.arm == {"prompt_cache": "cold"}
    assert run.extra == {"timings.new": "1", "model": "tiny"}
    assert not run.reasons


def test_a_cached_prompt_is_warm_and_its_prefill_has_another_name(tmp_path: Path) -> None:
    found = imported(tmp_path, response(cache_n=13, prompt_n=1, prompt_ms=20.0, predicted_n=100, predicted_ms=2500.0))
    (run,) = found.runs
    assert run.arm == {"prompt_cache": "warm"}
    assert "prefill_tokens_per_s" not in run.metrics
    assert run.metrics["warm_prefill_tokens_per_s"] == 50.0
    assert [fault.code for fault in found.faults] == ["cache-warm"]
    assert not run.reasons


def test_no_prompt_time_gives_no_rate_and_not_infinity(tmp_path: Path) -> None:
    value = {
        "timings": {
            "prompt_n": 10,
            "prompt_ms": 0.0,
            "prompt_per_second": None,
            "predicted_n": 10,
            "predicted_ms": 100.0,
        },
        "tokens_evaluated": 10,
        "truncated": True,
    }
    (run,) = imported(tmp_path, json.dumps(value) + "\n").runs
    assert isinstance(run.metrics["prefill_tokens_per_s"], Missing)
    assert run.metrics["decode_tokens_per_s"] == 100.0
    assert run.notes


def test_an_old_server_that_processed_fewer_tokens_than_it_evaluated_was_warm(tmp_path: Path) -> None:
    value = {
        "timings": {"prompt_n": 1, "prompt_ms": 9.0, "predicted_n": 10, "predicted_ms": 100.0},
        "tokens_evaluated": 14,
    }
    (run,) = imported(tmp_path, json.dumps(value) + "\n").runs
    assert (run.arm["prompt_cache"], run.metrics["cached_tokens"]) == ("warm", 13.0)


def test_more_prompt_tokens_than_the_prompt_had_do_not_add_up(tmp_path: Path) -> None:
    value = {
        "timings": {"prompt_n": 120, "prompt_ms": 9.0, "predicted_n": 10, "predicted_ms": 100.0},
        "tokens_evaluated": 43,
    }
    (run,) = imported(tmp_path, json.dumps(value) + "\n").runs
    assert codes(run) == ["counts-do-not-add-up"]


def test_a_rate_that_the_counts_do_not_give_is_told(tmp_path: Path) -> None:
    text = response(
        cache_n=0, prompt_n=600, prompt_ms=500.0, predicted_n=100, predicted_ms=2500.0, predicted_per_second=80.0
    )
    assert codes(imported(tmp_path, text).runs[0]) == ["counts-do-not-add-up"]


def test_wrapped_listed_and_streamed_responses_are_found(tmp_path: Path) -> None:
    one = {"timings": {"prompt_n": 6, "prompt_ms": 5.0, "predicted_n": 4, "predicted_ms": 100.0}}
    listed = imported(tmp_path, json.dumps({"all": [one, {"reply": one}]}, indent=1), "a.json")
    streamed = imported(tmp_path, 'data: {"content": "x"}\n\ndata: ' + json.dumps(one) + "\n\ndata: [DONE]\n", "s.txt")
    assert [len(found.runs) for found in (listed, streamed)] == [2, 1]
    assert not streamed.faults


def timing(what: str, ms: float, count: int, unit: str = "tokens") -> str:
    """A timing as all versions print it."""
    per, rate = ms / count, count / ms * 1000
    head = f"{what} time = {ms:10.2f} ms / {count:5d} {unit}"
    return f"{head}   ({per:8.2f} ms per token, {rate:8.2f} tokens per second)"


OLD = (
    f"llama_print_timings: {timing('prompt eval', 1000, 20)}\n"
    f"llama_print_timings:        {timing('eval', 2000, 30, 'runs')}\n"
)
SERVER_2024 = (
    f'INFO [ print_timings] {timing("prompt eval", 10, 12)} | tid="1" id_task=7 n_tokens_second=1200.0\n'
    f'INFO [ print_timings] {timing("generation eval", 1000, 250, "runs")} | tid="1" id_task=7 n_tokens_second=250.0\n'
)
SERVER_2026 = (
    "slot print_timing: id  0 | task 3 | prompt processing, n_tokens =   1536, progress = 0.10, t =   3.42 s /"
    " 448.61 tokens per second\n"
    "2.27 I slot print_timing: id  0 | task 3 | n_decoded =    172, tg =  11.90 t/s\n"
    "2.28 I slot print_timing: id  0 | task 3 |\n"
    f"{timing('prompt eval', 500, 25)}\n       {timing('eval', 16000, 192)}\n"
    "      total time =   16500.00 ms /   217 tokens\n"
)


@pytest.mark.parametrize(
    ("text", "prefill", "decode"), [(OLD, 20.0, 15.0), (SERVER_2024, 1200.0, 250.0), (SERVER_2026, 50.0, 12.0)]
)
def test_logs_of_all_versions_give_their_rates_once(tmp_path: Path, text: str, prefill: float, decode: float) -> None:
    found = imported(tmp_path, text, "a.log")
    (run,) = found.runs
    assert run.metrics["prefill_tokens_per_s"] == prefill
    assert run.metrics["decode_tokens_per_s"] == decode
    assert not found.faults


def test_zero_milliseconds_print_inf_and_give_no_rate(tmp_path: Path) -> None:
    text = "x:        eval time =       0.00 ms /     1 runs   (    0.00 ms per token,      inf tokens per second)\n"
    found = imported(tmp_path, text, "a.log")
    assert isinstance(found.runs[0].metrics["decode_tokens_per_s"], Missing)
    assert [fault.code for fault in found.faults] == ["not-finite"]
    assert codes(found.runs[0]) == ["workload-failed"]


def test_decimal_commas_are_refused(tmp_path: Path) -> None:
    text = OLD + "x: eval time =    2000,00 ms /    30 runs   (   66,67 ms per token,    15,00 tokens per second)\n"
    found = imported(tmp_path, text, "a.log")
    assert isinstance(found.runs[1].metrics["decode_tokens_per_s"], Missing)
    assert [fault.code for fault in found.faults] == ["malformed-file"]
    assert "LC_ALL=C" in found.faults[0].detail


def test_a_printed_rate_that_the_counts_do_not_give_is_told(tmp_path: Path) -> None:
    found = imported(tmp_path, OLD.replace("15.00 tokens", "31.00 tokens"), "a.log")
    assert codes(found.runs[0]) == ["counts-do-not-add-up"]


def test_both_wordings_of_a_perplexity_are_read_with_their_error(tmp_path: Path) -> None:
    text = (
        "[1]9.5,[2]10.2,\nFinal estimate: PPL = 10.1500 +/- 3.25000\n"
        "[1]3.5,\nFinal estimate: PPL over 10 chunks for n_ctx=2048 = 3.1900 +/- 0.07000\n"
    )
    found = imported(tmp_path, text, "a.log", "llama-perplexity")
    assert [run.metrics for run in found.runs] == [
        {"perplexity": 10.15, "perplexity_error": 3.25},
        {"perplexity": 3.19, "perplexity_error": 0.07},
    ]
    assert found.runs[1].extra == {"chunks": "10", "n_ctx": "2048"}


@pytest.mark.parametrize(
    "text", ["[1]2.57,[2]3.34,[3]2.40,\n", "[1]nan,[2]nan,\n", "[1]2.5,[2]3.0,\nFinal estimate: PPL = nan +/- nan\n"]
)
def test_no_final_estimate_or_nan_is_a_failed_run_and_no_perplexity(tmp_path: Path, text: str) -> None:
    (run,) = imported(tmp_path, text, "a.log", "llama-perplexity").runs
    assert isinstance(run.metrics["perplexity"], Missing)
    assert "workload-failed" in codes(run)


def test_a_model_that_did_not_load_is_told(tmp_path: Path) -> None:
    text = OLD + "gguf_init: tensor 'blk.0.ffn_down_exps.weight' has invalid ggml type 39 (NONE)\n"
    assert [fault.code for fault in imported(tmp_path, text, "a.log").faults] == ["workload-failed"]
