"""Any bytes in: a result or one clear error out. A file that was cut off gives no number that the whole has not."""

from __future__ import annotations

import io
import json
import math
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from boardbench.errors import InputError
from boardbench.imports import (
    kernel_files,
    llama_bench,
    llama_bench_md,
    llama_log,
    llama_server,
    node_info,
    npu_bench,
    npu_csv,
    npu_thermal,
    rknpu,
    tegra_log,
)
from boardbench.imports.guess import guess
from boardbench.imports.model import Missing, Parsed
from boardbench.imports.registry import FORMATS, read
from boardbench.imports.text import Line, lines_of, number

from . import rig_files
from .test_kernel_files import INVENTORY
from .test_llama_bench import HEADER, TABLES, record
from .test_llama_server import OLD, SERVER_2024, SERVER_2026, response
from .test_tegrastats import NANO, ORIN, ORIN_ROOT, stamped

QUICK = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def _table(lines: Iterable[Line], name: str) -> Parsed:
    found = npu_csv.parse(lines, name)
    return Parsed() if found is None else found.parsed


def _whole(parse: Callable[[str, str], Parsed]) -> Callable[[Iterable[Line], str], Parsed]:
    def parser(lines: Iterable[Line], name: str) -> Parsed:
        try:
            return parse("".join(line.text + "\n" * line.whole for line in lines), name)
        except ValueError:
            return Parsed()

    return parser


READERS: dict[str, tuple[Callable[[Iterable[Line], str], Parsed], str]] = {
    "table": (_table, rig_files.table(npu="70.5")),
    "thermal": (lambda lines, name: npu_thermal.parse(lines, name, "king"), rig_files.thermal_log()),
    "bench": (_whole(lambda text, name: npu_bench.parse(text, name)[1]), json.dumps(rig_files.bench(1_900_000_500))),
    "bench json": (_whole(llama_bench.parse_json), json.dumps([record(), record(0, 32)], indent=1)),
    "bench jsonl": (llama_bench.parse_jsonl, json.dumps(record()) + "\n" + json.dumps(record(0, 32)) + "\n"),
    "bench csv": (llama_bench.parse_csv, HEADER + '\n\n"a","64","0","316831683","9","202.0","1.5"\n'),
    "bench md": (llama_bench_md.parse, TABLES),
    "bench sql": (
        _whole(llama_bench.parse_sql),
        "INSERT INTO llama_bench (n_prompt, n_gen, avg_ns, avg_ts) VALUES ('64', '0', '316831683', '202.0');\n" * 2,
    ),
    "responses": (
        llama_server.parse_jsonl,
        response(prompt_n=60, prompt_ms=50.0, predicted_n=10, predicted_ms=250.0) * 3,
    ),
    "log": (
        llama_log.parse,
        OLD + SERVER_2024 + SERVER_2026 + "[1]3.5,[2]3.25,\nFinal estimate: PPL = 10.1500 +/- 3.25000\n",
    ),
    "tegrastats": (
        lambda lines, name: tegra_log.parse(lines, name, None),
        "\n".join([*(stamped(second, 5000 + second) for second in range(1, 9)), ""]),
    ),
    "tegrastats without stamps": (lambda lines, name: tegra_log.parse(lines, name, None), "\n".join([NANO, NANO, ""])),
    "sysfs": (
        lambda lines, name: kernel_files.parse(lines, name, None),
        "/sys/class/thermal/thermal_zone0/type\tcpu-thermal\n/sys/class/thermal/thermal_zone0/temp\t44156\n",
    ),
    "rknpu": (lambda lines, name: rknpu.parse(lines, name, None), "load\tNPU load:  Core0:  9%, Core1:  42%,\\n\n"),
    "node-info": (node_info.parse, INVENTORY),
}


def parsed(name: str, data: bytes) -> Parsed:
    return READERS[name][0](lines_of(io.BytesIO(data)), name)


def numbers(found: Parsed) -> dict[tuple[str, str], float]:
    """Every number of every run, by where it comes from."""
    return {
        (run.source, metric): value
        for run in found.runs
        for metric, value in run.metrics.items()
        if not isinstance(value, Missing)
    }


def finite(found: Parsed) -> bool:
    facts = [fact.value for fact in found.facts if isinstance(fact.value, float)]
    forward = all(
        all(after > before for before, after in zip(table.time_s, table.time_s[1:], strict=False))
        for table in found.samples
    )
    whole = all(len(column) == table.rows for table in found.samples for column in table.values.values())
    return forward and whole and all(math.isfinite(value) for value in [*numbers(found).values(), *facts])


@pytest.mark.parametrize("name", READERS)
def test_each_reader_reads_its_own_sample(name: str) -> None:
    found = parsed(name, READERS[name][1].encode())
    assert not found.empty
    assert finite(found)


@pytest.mark.parametrize("name", READERS)
@QUICK
@given(data=st.binary(max_size=400))
def test_any_bytes_give_a_result_with_finite_numbers(name: str, data: bytes) -> None:
    assert finite(parsed(name, data))


@pytest.mark.parametrize("name", READERS)
@QUICK
@given(seed=st.data())
def test_a_file_that_was_cut_off_gives_no_number_that_the_whole_has_not(name: str, seed: st.DataObject) -> None:
    text = READERS[name][1].encode()
    cut = seed.draw(st.integers(0, len(text)))
    whole, part = parsed(name, text), parsed(name, text[:cut])
    known = numbers(whole)
    assert {key: value for key, value in numbers(part).items() if known.get(key) != value} == {}
    for table in part.samples:
        (full,) = whole.samples
        if table.clock == "wall" and len(set(map(int, table.time_s))) == table.rows:
            assert list(table.time_s) == list(full.time_s[: table.rows])
        for column in table.values:
            assert table.column(column) == full.column(column)[: table.rows]
    facts = {fact.name: fact.value for fact in whole.facts}
    assert all(isinstance(facts.get(fact.name), type(fact.value)) for fact in part.facts if fact.name in facts)


@pytest.mark.parametrize("name", READERS)
@QUICK
@given(seed=st.data())
def test_changed_bytes_never_break_a_reader(name: str, seed: st.DataObject) -> None:
    text = bytearray(READERS[name][1].encode())
    for _ in range(seed.draw(st.integers(1, 5))):
        at = seed.draw(st.integers(0, len(text) - 1))
        text[at : at + seed.draw(st.integers(0, 3))] = seed.draw(st.binary(max_size=3))
        if not text:
            text = bytearray(b"\n")
    assert finite(parsed(name, bytes(text)))


STRANGE_LINES = st.text(st.characters(codec="utf-8", exclude_characters="\n\r"), max_size=60).filter(
    lambda text: "eval time" not in text and "task" not in text and not text.strip().startswith("|")
)


@pytest.mark.parametrize("name", ["table", "bench csv", "bench jsonl", "responses", "tegrastats without stamps"])
@QUICK
@given(seed=st.data())
def test_a_strange_line_costs_only_itself(name: str, seed: st.DataObject) -> None:
    lines = READERS[name][1].splitlines()
    at = seed.draw(st.integers(1, len(lines)))
    stranger = seed.draw(STRANGE_LINES)
    changed = parsed(name, ("\n".join([*lines[:at], stranger, *lines[at:]]) + "\n").encode())
    whole = parsed(name, READERS[name][1].encode())
    assert [value for (_, _), value in numbers(changed).items()] == [value for (_, _), value in numbers(whole).items()]
    assert [table.rows for table in changed.samples] == [table.rows for table in whole.samples]


@QUICK
@given(data=st.binary(max_size=300), wanted=st.sampled_from(["", *FORMATS]))
@example(b"", "")
@example(b"[", "llama-bench")
@example(b'{"a":' * 5000, "llama-server")
@example(b"epoch soc_c\n1 2\n", "")
def test_a_file_of_any_bytes_is_read_or_refused_in_one_sentence(tmp_path: Path, data: bytes, wanted: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(data)
    refused, found = None, None
    try:
        found = read(path, wanted)
    except InputError as error:
        refused = error
    if refused is None:
        assert found is not None
        assert finite(found.parsed)
    else:
        assert "\n" not in refused.what
        assert str(path) in str(refused)


@QUICK
@given(head=st.binary(max_size=300), name=st.text(max_size=10))
def test_guessing_never_fails(head: bytes, name: str) -> None:
    found = guess(head, name)
    assert found is None or found.format in FORMATS


@pytest.mark.parametrize(
    "text", ["1_000", "0x10", "１２", "1,5", "1 000", "inf", "-nan", "", ".", "1e999", "--1", "1.", "NaN"]
)
def test_what_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"number|finite|comma|large"):
        number(text)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_number_that_is_printed_is_read_as_itself(value: float) -> None:
    assert number(repr(value)) == value


def test_a_line_without_end_is_cut_in_bounded_memory() -> None:
    found = list(lines_of(io.BytesIO(b"x" * (3 << 20) + b"\nRAM\n")))
    assert [(line.number, len(line.text), line.bad != "") for line in found] == [(1, 80, True), (2, 3, False)]


def test_byte_order_mark_and_carriage_returns_are_no_content() -> None:
    found = list(lines_of(io.BytesIO(b"\xef\xbb\xbfa\r\nb\n")))
    assert [line.text for line in found] == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (rig_files.table(), "npu-rig"),
        (rig_files.thermal_log(), "npu-rig"),
        (json.dumps(rig_files.bench(1), indent=2), "npu-rig"),
        (json.dumps([record()], indent=2), "llama-bench"),
        ("banner: found 1 device\n" + json.dumps([record()]), "llama-bench"),
        (TABLES, "llama-bench"),
        (response(prompt_n=1), "llama-server"),
        (OLD, "llama-server"),
        ("[1]2.5,[2]3.5,\n", "llama-perplexity"),
        (ORIN, "tegrastats"),
        (ORIN_ROOT, "tegrastats"),
        (INVENTORY, "node-info"),
        ("NPU load:  0%\n", "rknpu"),
        ("/sys/class/x\t1\n", "sysfs"),
        ("GGUF\3\0\0\0", "gguf"),
        ("BBROUTE1", "router-trace"),
        ('{"boardbench-router-trace": 1}\n', "router-trace"),
    ],
)
def test_the_format_is_told_by_the_content_and_why_is_said(text: str, expected: str) -> None:
    found = guess(text.encode())
    assert found is not None
    assert found.format == expected
    assert found.why


@pytest.mark.parametrize("text", ["", "\n\n", "hello world\n", "a,b,c\n1,2,3\n", '{"a": 1}', "\x00\x01\x02"])
def test_what_is_of_no_format_is_not_guessed(text: str) -> None:
    assert guess(text.encode()) is None


def test_a_file_of_too_many_records_is_read_as_far_as_it_may_and_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("boardbench.imports.text.MOST_RECORDS", 3)
    found = parsed("table", rig_files.table().encode())
    assert len(found.runs) == 2
    assert any("more than 3 lines" in fault.detail for fault in found.faults)


ENDLESS = {
    "log": b"eval time = x" * 80_000 + b"\n",
    "tegrastats": b"RAM 1/2MB " + b"CPU [" * 200_000 + b"\n",
    "bench json": b"\n" * 150_000,
    "bench sql": b"INSERT INTO a (b) VALUES ('" * 40_000,
    "bench md": b"| test | t/s |\n" + b"|" * 1_000_000 + b"\n",
    "rknpu": b"NPU load: " + b"1%" * 400_000 + b"\n",
    "sysfs": b"/sys/a\t" + b"EAGAI " * 100_000 + b"\n",
    "node-info": b"a=" + b"=" * 1_000_000 + b"\n",
    "responses": b'{"timings":' * 80_000 + b"\n",
}


@pytest.mark.parametrize("name", ENDLESS)
def test_a_megabyte_that_wants_to_be_searched_for_ever_is_soon_done(name: str) -> None:
    began = time.process_time()
    assert finite(parsed(name, ENDLESS[name]))
    guess(ENDLESS[name][:65536])
    assert time.process_time() - began < 10.0
