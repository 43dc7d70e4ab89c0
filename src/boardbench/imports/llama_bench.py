"""Results of llama-bench, whichever version wrote them: JSON, JSON lines, CSV, SQL; tables are in `llama_bench_md`.

Only `n_prompt`, `n_gen` and `avg_ts` are required; all other columns come and go with versions and are kept as they
are. `pp` tests give a prefill rate, `tg` tests a decode rate, both at once a mixed one, which is neither.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isclose

from boardbench.imports.model import Missing, Parsed, Reading, Run
from boardbench.imports.table import rows_of
from boardbench.imports.text import MOST_RECORDS, Faults, Line, json_number, plain, reading, strict_json

REQUIRED = ("n_prompt", "n_gen", "avg_ts")
MEASURED = {"avg_ns", "stddev_ns", "avg_ts", "stddev_ts", "samples_ns", "samples_ts", "test_time", "n_prompt", "n_gen"}
FOLLOWING = {"test_time", "samples_ns", "samples_ts", "size", "params", "model_size", "model_n_params"}
"""Columns that follow from others or differ in any two runs: no factors."""
_CRASH = re.compile(r"segmentation fault|core dumped|aborted|GGML_ASSERT|terminate called|out of memory|error:", re.I)
NOT_KNOWN = (
    "the board, its clocks, temperature and page cache",
    "when each repetition began: test_time is when the test was set up",
)


@dataclass(frozen=True)
class Test:
    """What a test did: tokens of prompt and of generation, and how many were in the context before."""

    prompt: int
    generated: int
    depth: int | None

    @property
    def name(self) -> str:
        """`pp512`, `tg128`, `pp512+tg128`, with ` @ d512` where the depth is told and not 0."""
        parts = [f"pp{self.prompt}"] * (self.prompt > 0) + [f"tg{self.generated}"] * (self.generated > 0)
        return "+".join(parts) + (f" @ d{self.depth}" if self.depth else "")

    @property
    def metric(self) -> str:
        """The rate that the test measures."""
        if self.prompt and self.generated:
            return "mixed_tokens_per_s"
        return "prefill_tokens_per_s" if self.prompt else "decode_tokens_per_s"


def _count(value: Reading) -> int | None:
    return int(value) if isinstance(value, float) and value == int(value) and 0 <= value < 1e9 else None


def run_of(fields: Mapping[str, Reading | str | tuple[float, ...]], source: str) -> tuple[Run | None, str]:
    """The run in one record, and why there is none. Values are numbers, Missing, texts, or (samples) tuples."""
    numbers = {key: value for key, value in fields.items() if isinstance(value, float | Missing)}
    lacking = [key for key in REQUIRED if not isinstance(numbers.get(key), float)]
    if lacking:
        return None, f"has no {', '.join(lacking)}"
    prompt, generated = (_count(numbers[key]) for key in ("n_prompt", "n_gen"))
    depth = _count(numbers.get("n_depth", Missing("")))
    if prompt is None or generated is None or prompt + generated == 0:
        return None, f"n_prompt {fields['n_prompt']} and n_gen {fields['n_gen']} are no test"
    test = Test(prompt, generated, depth)
    rate = numbers["avg_ts"]
    metrics: dict[str, Reading] = {test.metric: rate}
    if "stddev_ts" in numbers:
        metrics[test.metric + "_stdev"] = numbers["stddev_ts"]
    samples = fields.get("samples_ts")
    if isinstance(samples, tuple):
        metrics["repetitions"] = float(len(samples))
    extra = {
        key: plain(value) for key, value in fields.items() if key not in MEASURED and not isinstance(value, Missing)
    }
    extra |= {key: plain(list(value)) for key, value in fields.items() if isinstance(value, tuple)}
    if isinstance(fields.get("test_time"), str):
        extra["test_time"] = str(fields["test_time"])
    reasons = tuple(_checks(test, numbers, fields))
    return Run(source=source, arm={"test": test.name}, metrics=metrics, extra=extra, reasons=reasons), ""


def _checks(
    test: Test, numbers: Mapping[str, Reading], fields: Mapping[str, Reading | str | tuple[float, ...]]
) -> Iterable[tuple[str, str]]:
    rate, spread, nanoseconds = (numbers.get(key) for key in ("avg_ts", "stddev_ts", "avg_ns"))
    assert isinstance(rate, float)
    if rate <= 0:
        yield "workload-failed", f"avg_ts is {rate:g}"
        return
    if isinstance(spread, float) and spread < 0:
        yield "malformed-file", f"stddev_ts is {spread:g}"
    if isinstance(nanoseconds, float):
        # The mean of rates is above the rate of the mean time, by the square of the spread; 5 % is a shifted column.
        by_time = (test.prompt + test.generated) / nanoseconds * 1e9 if nanoseconds > 0 else 0.0
        if not isclose(by_time, rate, rel_tol=0.05):
            yield "counts-do-not-add-up", f"avg_ts is {rate:g}, tokens by avg_ns are {by_time:g} a second"
    samples = fields.get("samples_ts")
    if isinstance(samples, tuple) and samples and not isclose(sum(samples) / len(samples), rate, rel_tol=0.01):
        yield "counts-do-not-add-up", f"avg_ts is {rate:g}, the mean of its samples {sum(samples) / len(samples):g}"


def numbered(runs: Sequence[Run]) -> tuple[Run, ...]:
    """The same test again is a repetition; columns that differ between the runs become factors of the arm."""
    varied = sorted(
        key
        for key in {key for run in runs for key in run.extra}
        if key not in FOLLOWING and len({run.extra.get(key) for run in runs}) > 1
    )
    counts: dict[tuple[tuple[str, str], ...], int] = {}
    result = []
    for run in runs:
        arm = {**run.arm, **{key: run.extra.get(key, "") or "-" for key in varied}}
        key = tuple(sorted(arm.items()))
        counts[key] = counts.get(key, 0) + 1
        result.append(replace(run, arm=arm, repetition=counts[key]))
    return tuple(result)


def parse_json(text: str, name: str) -> Parsed:
    """A JSON array, with whatever the program printed before and after it. Raises ValueError when there is none."""
    faults = Faults(name)
    start = re.search(r"^[ \t]*\[(?=\s*[{\]])", text, re.M)
    if start is None:
        if not text.lstrip().startswith("{"):
            raise ValueError("holds no array of results")
        runs = _runs([(strict_json(text, faults), name, None)], faults)  # somebody cut one result out
        return Parsed(runs=runs, faults=faults.done(), not_known=NOT_KNOWN)
    begin = start.end() - 1
    end = _array_end(text, begin)
    if end is None:
        faults.add("torn-line", "the array of results has no end: its writer was cut off in it")
        return Parsed(faults=faults.done())
    before, after = text[:begin].strip(), text[end:].strip()
    if before:
        faults.add(
            "malformed-file", f"{len(before)} characters stand before the results: stdout and stderr in one file"
        )
    records = strict_json(text[begin:end], faults)
    runs = _runs([(record, name, None) for record in records], faults)
    if after:
        crash = _CRASH.search(after)
        code, what = ("workload-failed", f"the program died after its results: {after[:120]!r}") if crash else (
            "malformed-file", f"text stands behind the results: {after[:80]!r}"
        )  # fmt: skip
        faults.add(code, what)
        if crash:
            runs = tuple(replace(run, reasons=(*run.reasons, (code, what))) for run in runs)
    return Parsed(runs=runs, faults=faults.done(), not_known=NOT_KNOWN)


def _array_end(text: str, begin: int) -> int | None:
    """Where the array that begins here ends, strings respected; None when it does not."""
    depth, inside, at = 0, False, begin
    for match in re.finditer(r'\\.|["\[\]{}]', text[begin:], re.S):
        token, at = match[0], begin + match.end()
        if token == '"':
            inside = not inside
        elif not inside and token in "[{":
            depth += 1
        elif not inside and token in "]}":
            depth -= 1
            if depth == 0:
                return at
    return None


def parse_jsonl(lines: Iterable[Line], name: str) -> Parsed:
    """One JSON object a line; lines that are none are noted."""
    faults = Faults(name)
    found = []
    for line in faults.records(lines, torn_ok="}"):
        if not line.text.strip():
            continue
        try:
            found.append((strict_json(line.text, faults, line.number), f"{name}:{line.number}", line.number))
        except ValueError as error:
            faults.add("malformed-file", f"is not JSON: {error}", line.number)
    return Parsed(runs=_runs(found, faults), faults=faults.done(), not_known=NOT_KNOWN)


def _runs(found: Iterable[tuple[object, str, int | None]], faults: Faults) -> tuple[Run, ...]:
    runs = []
    for record, source, line in found:
        if not isinstance(record, dict):
            faults.add("malformed-file", "a result is no object", line)
            continue
        run, why = run_of({key: _typed(key, value) for key, value in record.items()}, source)
        if run is None:
            faults.add("malformed-file", f"a result {why}", line)
        else:
            runs.append(run)
    return numbered(runs)


def _typed(key: str, value: object) -> Reading | str | tuple[float, ...]:
    if key in ("samples_ns", "samples_ts"):
        numbers = [json_number(entry) for entry in value] if isinstance(value, list) else []
        if numbers and all(isinstance(entry, float) for entry in numbers):
            return tuple(entry for entry in numbers if isinstance(entry, float))
        return Missing("the samples are no list of numbers")
    if key in MEASURED - {"test_time"} or key == "n_depth":
        return json_number(value)
    return Missing("null") if value is None else plain(value)


def parse_csv(lines: Iterable[Line], name: str) -> Parsed:
    """CSV with a header; rows of another length than the header are refused, each by its line."""
    faults = Faults(name)
    _, rows = rows_of(lines, faults)
    return _from_texts([(row.fields, f"{name}:{row.line}", row.line) for row in rows], faults)


def _from_texts(records: Iterable[tuple[Mapping[str, str], str, int | None]], faults: Faults) -> Parsed:
    runs = []
    for fields, source, line in records:
        typed: dict[str, Reading | str | tuple[float, ...]] = {}
        for key, text in fields.items():
            typed[key] = reading(text) if key in MEASURED - {"test_time"} or key == "n_depth" else text
        run, why = run_of(typed, source)
        if run is None:
            faults.add("malformed-file", why, line)
        else:
            runs.append(run)
    return Parsed(runs=numbered(runs), faults=faults.done(), not_known=NOT_KNOWN)


_INSERT = re.compile(r"INSERT\s+INTO\s+\"?(\w+)\"?\s*\(([^()]*)\)\s*VALUES\s*\(", re.I)
_VALUE = re.compile(r"\s*(?:'([^']*(?:''[^']*)*)'|([^\s',()]+))\s*([,)])")


def parse_sql(text: str, name: str) -> Parsed:
    """The INSERT statements that `-o sql` prints. Nothing is executed; a statement that does not fit is refused."""
    faults = Faults(name)
    records: list[tuple[Mapping[str, str], str, int | None]] = []
    line, at = 1, 0
    for match in _INSERT.finditer(text):
        line, at = line + text.count("\n", at, match.start()), match.start()
        if len(records) >= MOST_RECORDS:
            faults.add("malformed-file", f"has more than {MOST_RECORDS:,} statements: the rest was not read", line)
            break
        names = [column.strip().strip('"') for column in match[2].split(",")]
        values, closed = _sql_values(text, match.end(), len(names) + 1)
        if not closed:
            faults.add("torn-line", "the statement has no end", line)
        elif len(values) != len(names):
            faults.add("malformed-file", f"has {len(values)} values for {len(names)} columns", line)
        elif len(set(names)) != len(names):
            faults.add("repeated-key", "the statement names a column twice", line)
        else:
            records.append((dict(zip(names, values, strict=True)), f"{name}:{line}", line))
    return _from_texts(records, faults)


def _sql_values(text: str, at: int, most: int) -> tuple[list[str], bool]:
    values: list[str] = []
    while (match := _VALUE.match(text, at)) is not None and len(values) <= most:
        values.append(match[1].replace("''", "'") if match[1] is not None else match[2])
        at = match.end()
        if match[3] == ")":
            return values, True
    return values, False
