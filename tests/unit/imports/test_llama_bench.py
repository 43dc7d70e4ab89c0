"""llama-bench in all of its dialects: right values, or a refusal that names the line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from boardbench.errors import InputError
from boardbench.imports.model import Missing, Parsed
from boardbench.imports.registry import read

SAMPLES = [200.0, 202.0, 204.0, 202.0, 202.0]


def record(prompt: int = 64, generated: int = 0, **changes: Any) -> dict[str, Any]:
    """A result that adds up."""
    tokens = prompt + generated
    return {
        "build_commit": "abcdef0",
        "model_filename": "models/tiny.gguf",
        "n_threads": 4,
        "n_prompt": prompt,
        "n_gen": generated,
        "n_depth": 0,
        "test_time": "2026-01-02T03:04:05Z",
        "avg_ns": round(tokens / 202.0 * 1e9),
        "stddev_ns": 1000,
        "avg_ts": 202.0,
        "stddev_ts": 1.414214,
        "samples_ns": [round(tokens / value * 1e9) for value in SAMPLES],
        "samples_ts": SAMPLES,
        "a_later_column": True,
        **changes,
    }


def imported(path: Path, text: str, name: str) -> Parsed:
    (path / name).write_text(text, encoding="utf-8")
    found = read(path / name)
    assert found.format == "llama-bench"
    return found.parsed


def test_json_gives_a_prefill_and_a_decode_rate_and_keeps_what_it_does_not_know(tmp_path: Path) -> None:
    found = imported(tmp_path, json.dumps([record(), record(0, 32)], indent=2), "a.json")
    prefill, decode = found.runs
    assert prefill.metrics == {
        "prefill_tokens_per_s": 202.0,
        "prefill_tokens_per_s_stdev": 1.414214,
        "repetitions": 5.0,
    }
    assert decode.metrics["decode_tokens_per_s"] == 202.0
    assert [run.arm["test"] for run in found.runs] == ["pp64", "tg32"]
    assert prefill.extra["a_later_column"] == "true"
    assert prefill.extra["model_filename"] == "models/tiny.gguf"
    assert not prefill.reasons
    assert not found.faults


def test_json_lines_of_an_old_version_need_only_three_columns(tmp_path: Path) -> None:
    lines = [{"n_prompt": 512, "n_gen": 0, "avg_ts": 2410.5}, {"n_prompt": 0, "n_gen": 128, "avg_ts": 131.0}]
    found = imported(tmp_path, "".join(json.dumps(line) + "\n" for line in lines), "a.jsonl")
    assert [run.metrics for run in found.runs] == [{"prefill_tokens_per_s": 2410.5}, {"decode_tokens_per_s": 131.0}]


def test_a_mixed_test_is_neither_prefill_nor_decode(tmp_path: Path) -> None:
    found = imported(tmp_path, json.dumps([record(64, 32, n_depth=512)]), "a.json")
    assert found.runs[0].arm == {"test": "pp64+tg32 @ d512"}
    assert next(iter(found.runs[0].metrics)) == "mixed_tokens_per_s"


def test_columns_that_differ_are_factors_and_the_same_test_again_is_a_repetition(tmp_path: Path) -> None:
    records = [record(), record(n_threads=2), record()]
    found = imported(tmp_path, json.dumps(records), "a.json")
    assert [(run.arm["n_threads"], run.repetition) for run in found.runs] == [("4", 1), ("2", 1), ("4", 2)]


def test_text_around_the_array_is_told_and_a_crash_behind_it_fails_the_runs(tmp_path: Path) -> None:
    text = "ggml_demo: found 1 devices:\n" + json.dumps([record()], indent=1) + "\nSegmentation fault (core dumped)\n"
    found = imported(tmp_path, text, "a.json")
    assert found.runs[0].metrics["prefill_tokens_per_s"] == 202.0
    assert [code for code, _ in found.runs[0].reasons] == ["workload-failed"]
    assert {fault.code for fault in found.faults} == {"malformed-file", "workload-failed"}


def test_an_array_without_an_end_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cut off"):
        imported(tmp_path, json.dumps([record(), record(0, 32)])[:-40], "a.json")


HEADER = "build_commit,n_prompt,n_gen,avg_ns,stddev_ns,avg_ts,stddev_ts"


def test_csv_gives_the_same_values_and_a_blank_line_behind_the_header_is_nothing(tmp_path: Path) -> None:
    text = HEADER + '\n\n"a","64","0","316831683","9","202.0","1.5"\n"a","0","32","158415842","9","202.0","1.5"\n'
    found = imported(tmp_path, text, "a.csv")
    assert [run.metrics for run in found.runs] == [
        {"prefill_tokens_per_s": 202.0, "prefill_tokens_per_s_stdev": 1.5},
        {"decode_tokens_per_s": 202.0, "decode_tokens_per_s_stdev": 1.5},
    ]


@pytest.mark.parametrize(
    "row", ['"a","64","0","316831683","9","202.0"', '"a","b","64","0","316831683","9","202.0","1.5"']
)
def test_a_row_of_another_length_than_the_header_is_refused_by_line(tmp_path: Path, row: str) -> None:
    with pytest.raises(InputError, match=r"a\.csv:3: has \d fields, the header has 7"):
        imported(tmp_path, f"{HEADER}\n\n{row}\n", "a.csv")


def test_shifted_columns_do_not_pass_as_values(tmp_path: Path) -> None:
    # The deviation stands where the rate should be: the rate by time gives it away.
    found = imported(tmp_path, f'{HEADER}\n"a","64","0","316831683","9","1.5","202.0"\n', "a.csv")
    assert [code for code, _ in found.runs[0].reasons] == ["counts-do-not-add-up"]


def test_sql_is_read_and_not_run(tmp_path: Path) -> None:
    text = (
        "CREATE TABLE IF NOT EXISTS llama_bench (\n  build_commit TEXT,\n  avg_ts REAL\n);\n\n"
        "INSERT INTO llama_bench (build_commit, cpu_info, n_prompt, n_gen, n_depth, avg_ns, avg_ts, stddev_ts) "
        "VALUES ('a''b', 'x, (y)', '64', '0', '0', '316831683', '202.000000', '1.5');\n"
        "INSERT INTO llama_bench (build_commit, n_prompt, n_gen, avg_ts) VALUES ('a', '0', '32');\n"
        "INSERT INTO llama_bench (build_commit, n_prompt, n_gen, avg_ts) VALUES ('a', '0', '3"
    )
    found = imported(tmp_path, text, "a.sql")
    (run,) = found.runs
    assert run.metrics["prefill_tokens_per_s"] == 202.0
    assert (run.extra["build_commit"], run.extra["cpu_info"]) == ("a'b", "x, (y)")
    assert [(fault.code, fault.where) for fault in found.faults] == [
        ("malformed-file", "a.sql:7"),
        ("torn-line", "a.sql:8"),
    ]


TABLES = """| model          |       size |     params | backend    | ngl | test       |              t/s |
| -------------- | ---------: | ---------: | ---------- | --: | ---------- | ---------------: |
| tiny Q4_0      |   3.56 GiB |     6.74 B | CUDA       |  99 | pp 512     |  2300.50 ± 90.25 |
| tiny Q4_0      |   3.56 GiB |     6.74 B | CUDA       |  99 | tg 128     |    130.25 ± 0.50 ||

some text between

| model          |       size |     params | backend    |    threads |            test |                  t/s |
| -------------- | ---------: | ---------: | ---------- | ---------: | --------------: | -------------------: |
| tiny Q4_0      |   3.56 GiB |     6.74 B | CPU        |          1 |    pp512 @ d256 |      6425.75 ± 18.50 |
| tiny Q4_0      |   3.56 GiB |     6.74 B | CPU        |          1 |     pp512+tg128 |        400.00 ± 1.00 |
| tiny Q4_0      |   3.56 GiB |     6.74 B | CPU        |          1 |       something |        400.00 ± 1.00 |
| tiny Q4_0      |   3.56 GiB |     6.74 B | CPU        |          1 |           pp512 |          2300,50 ± 1 |

build: abcdef0 (5163)
"""


def test_tables_are_read_by_their_headers(tmp_path: Path) -> None:
    found = imported(tmp_path, TABLES, "a.md")
    assert [run.arm["test"] for run in found.runs] == ["pp512", "tg128", "pp512 @ d256", "pp512+tg128"]
    first, second, deep, mixed = (run.metrics for run in found.runs)
    assert (first["prefill_tokens_per_s"], first["prefill_tokens_per_s_stdev"]) == (2300.5, 90.25)
    assert second["decode_tokens_per_s"] == 130.25
    assert deep["prefill_tokens_per_s"] == 6425.75
    assert mixed["mixed_tokens_per_s"] == 400.0
    assert isinstance(first["repetitions"], Missing)
    assert [run.arm.get("threads") for run in found.runs] == ["-", "-", "1", "1"]
    assert [fault.where for fault in found.faults] == ["a.md:12", "a.md:13"]
    assert found.facts[0].value == "abcdef0"


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"avg_ts": 100.06}, "counts-do-not-add-up"),
        ({"samples_ts": [300.0, 301.0]}, "counts-do-not-add-up"),
        ({"avg_ts": 0.0}, "workload-failed"),
        ({"stddev_ts": -1.0}, "malformed-file"),
    ],
)
def test_values_that_contradict_each_other_do_not_count(tmp_path: Path, changes: dict[str, Any], code: str) -> None:
    found = imported(tmp_path, json.dumps([record(**changes)]), "a.json")
    assert code in {code for code, _ in found.runs[0].reasons}


@pytest.mark.parametrize(
    "changes", [{"avg_ts": None}, {"avg_ts": "fast"}, {"n_prompt": True}, {"n_prompt": 0.5}, {"n_prompt": 0}]
)
def test_a_result_without_its_required_columns_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="nothing in it can be used"):
        imported(tmp_path, json.dumps([record(**changes)]), "a.json")


def test_nan_and_a_key_twice_are_named(tmp_path: Path) -> None:
    nan = json.dumps(record()).replace("1.414214", "NaN")
    twice = json.dumps(record()).replace('"n_threads": 4', '"n_threads": 4, "n_threads": 8')
    text = f"[{nan}, {twice}]"
    found = imported(tmp_path, text, "a.json")
    assert {fault.code for fault in found.faults} == {"not-finite", "repeated-key"}
    assert isinstance(found.runs[0].metrics["prefill_tokens_per_s_stdev"], Missing)
    assert "n_threads" not in found.runs[1].extra
