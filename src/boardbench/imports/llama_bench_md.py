"""Tables that llama-bench prints for people: read by their headers, with the rounding that they have.

`pp512`, `pp 512` (2023), `tg128 @ d512`, `pp512+tg128`; the columns depend on what differed between the tests.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from boardbench.imports.llama_bench import NOT_KNOWN, Test, numbered
from boardbench.imports.model import Fact, Missing, Parsed, Reading, Run
from boardbench.imports.text import Faults, Line, number

TEST, RATE = "test", "t/s"
_TEST = re.compile(r"(?:pp ?(\d{1,9}))?(?:\+?tg ?(\d{1,9}))?(?: @ d(\d{1,9}))?")
_RATE = re.compile(r"(\S+)\s*(?:±|\+/-)\s*(\S+)")
_RULE = re.compile(r"[\s|:-]+")
_BUILD = re.compile(r"build:\s*(\S+)\s*\((\d+)\)")


def is_header(text: str) -> bool:
    """Whether this line is the header of such a table."""
    return text.lstrip().startswith("|") and {TEST, RATE} <= set(_cells(text))


def _cells(text: str) -> list[str]:
    return [cell.strip() for cell in text.strip().removeprefix("|").rstrip("|").split("|")]


@dataclass
class _Table:
    header: list[str]
    usable: bool


def parse(lines: Iterable[Line], name: str) -> Parsed:
    """All tables of a file; other text is no fault."""
    faults = Faults(name)
    runs: list[Run] = []
    facts: list[Fact] = []
    table: _Table | None = None
    for line in faults.records(lines, torn_ok="|"):
        text = line.text.strip()
        if not text.startswith("|"):
            table = None
            if build := _BUILD.search(text):
                facts += [Fact("build_commit", build[1], f"{name}:{line.number}")]
            continue
        if is_header(text):
            header = _cells(text)
            table = _Table(header, len(set(header)) == len(header))
            if not table.usable:
                faults.add("repeated-key", "the header names a column twice", line.number)
        elif table is not None and table.usable and not _RULE.fullmatch(text):
            _row(table.header, _cells(text), line.number, runs, faults)
    return Parsed(
        runs=numbered(runs),
        facts=tuple(facts),
        faults=faults.done(),
        not_known=(*NOT_KNOWN, "settings that did not differ between the tests: the table leaves them out"),
    )


def _row(header: list[str], cells: list[str], line: int, runs: list[Run], faults: Faults) -> None:
    if len(cells) != len(header):
        faults.add("malformed-file", f"has {len(cells)} cells, the header has {len(header)}", line)
        return
    fields = dict(zip(header, cells, strict=True))
    test = named_test(fields[TEST])
    metrics = _metrics(test, fields[RATE]) if test is not None else f"{fields[TEST][:40]!r} is no test"
    if test is None or isinstance(metrics, str):
        faults.add("malformed-file", str(metrics), line)
        return
    extra = {key: value for key, value in fields.items() if key not in (TEST, RATE)}
    runs.append(Run(source=f"{faults.name}:{line}", arm={"test": test.name}, metrics=metrics, extra=extra))


def named_test(text: str) -> Test | None:
    """The test that a cell names; None when it names none."""
    match = _TEST.fullmatch(text)
    if match is None or not (match[1] or match[2]):
        return None
    test = Test(int(match[1] or 0), int(match[2] or 0), int(match[3]) if match[3] else None)
    return test if test.prompt + test.generated > 0 else None


def _metrics(test: Test, text: str) -> Mapping[str, Reading] | str:
    match = _RATE.fullmatch(text)
    if match is None:
        return f"{text[:40]!r} is no rate with its deviation"
    try:
        rate, spread = number(match[1]), number(match[2])
    except ValueError as error:
        return str(error)
    if rate <= 0 or spread < 0:
        return f"{text!r} is no rate"
    return {test.metric: rate, test.metric + "_stdev": spread, "repetitions": Missing("the table does not tell it")}
