"""Bytes to lines, numbers and JSON values, strictly: what is torn, repeated or not a number is named, never guessed."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from boardbench.imports.model import Fault, Missing, Reading

LONGEST_LINE = 1 << 20
"""Bytes. A longer line is cut and named: no text format here has one."""
MOST_FAULTS = 200
"""Faults kept of one kind and source: a file of a million bad lines must not become a million sentences."""
MOST_LINES = 2_000_000
"""Lines read of one file: at one a second, 23 days. What is beyond is named, not read."""
LONGEST_TEXT = 1 << 14
"""Characters of a line that is searched by pattern. A longer one is no line of such a log."""
MOST_RECORDS = 200_000
"""Lines read of a file whose every line is a run or a fact: each of them costs far more than a reading in a column."""
_NUMBER = re.compile(r"[+-]?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,3})?")
_COMMA = re.compile(r"[+-]?[0-9]+,[0-9]+")


@dataclass(frozen=True)
class Line:
    """A line without its end. `whole`: its newline is there. `bad`: why it cannot be read, empty when it can."""

    number: int
    text: str
    whole: bool
    bad: str = ""


def lines_of(file: BinaryIO) -> Iterator[Line]:
    """The lines of a file, one at a time in bounded memory. A byte-order mark and carriage returns are left out."""
    number = 0
    while raw := file.readline(LONGEST_LINE):
        number += 1
        bad = ""
        if len(raw) == LONGEST_LINE and not raw.endswith(b"\n"):
            bad = f"is longer than {LONGEST_LINE} bytes"
            while (rest := file.readline(LONGEST_LINE)) and not rest.endswith(b"\n"):
                pass
            raw = raw[:80] + b"\n"
        whole = raw.endswith(b"\n")
        raw = raw.rstrip(b"\r\n") if whole else raw
        if number == 1:
            raw = raw.removeprefix(b"\xef\xbb\xbf")
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            text, bad = raw.decode("utf-8", "replace"), bad or f"is not UTF-8 at byte {error.start}"
        if "\0" in text:
            bad = bad or "has zero bytes: its writer lost power, or it is no text"
        yield Line(number, text, whole, bad)


class Faults:
    """Collects faults of one source; many of one kind are counted, not listed."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._kept: list[Fault] = []
        self._by_code: dict[str, int] = {}

    def add(self, code: str, detail: str, line: int | None = None) -> None:
        """Note a fault at a line of the source (None: of the whole source)."""
        seen = self._by_code[code] = self._by_code.get(code, 0) + 1
        if seen <= MOST_FAULTS:
            self._kept.append(Fault(code, self.name if line is None else f"{self.name}:{line}", detail))

    def done(self) -> tuple[Fault, ...]:
        """All faults; what was only counted as one more sentence."""
        more = [
            Fault(code, self.name, f"{count - MOST_FAULTS} more of this kind")
            for code, count in self._by_code.items()
            if count > MOST_FAULTS
        ]
        return (*self._kept, *more)

    def records(self, lines: Iterable[Line], torn_ok: str = "") -> Iterator[Line]:
        """`usable` for files of which every line is a run or a fact."""
        return self.usable(lines, torn_ok, MOST_RECORDS)

    def usable(
        self, lines: Iterable[Line], torn_ok: str = "", most: int = MOST_LINES, longest: int = LONGEST_LINE
    ) -> Iterator[Line]:
        """The first `most` lines that can be read; others are noted. A last line without its end is no line.

        Unless it ends with `torn_ok`, which proves that nothing is cut off.
        """
        for line in lines:
            if line.number > most:
                self.add("malformed-file", f"has more than {most:,} lines: the rest was not read", line.number)
                return
            if line.bad:
                self.add("malformed-file", line.bad, line.number)
            elif len(line.text) > longest:
                self.add("malformed-file", f"has {len(line.text):,} characters: it is not searched", line.number)
            elif not line.whole and line.text.strip() and not (torn_ok and line.text.rstrip().endswith(torn_ok)):
                self.add("torn-line", "the last line has no end: its writer was cut off in it", line.number)
            else:
                yield line


def number(text: str) -> float:
    """A finite decimal number. Raises ValueError with one sentence: a decimal comma, inf, nan, or no number."""
    text = text.strip()
    if _NUMBER.fullmatch(text):
        value = float(text)
        if math.isfinite(value):
            return value
        raise ValueError(f"{text!r} is too large")
    if _COMMA.fullmatch(text):
        raise ValueError(f"{text!r} has a comma: the tool ran with a locale of its own (want LC_ALL=C)")
    if text.lower().lstrip("+-") in ("inf", "infinity", "nan"):
        raise ValueError(f"{text!r} is not finite")
    raise ValueError(f"{text[:40]!r} is not a number")


def reading(text: str) -> Reading:
    """`number`, or Missing with its sentence; blank is missing too."""
    if not text.strip():
        return Missing("blank in the source")
    try:
        return number(text)
    except ValueError as error:
        return Missing(str(error))


def whole_number(text: str) -> int:
    """A whole number of at most 18 digits. Raises ValueError."""
    text = text.strip()
    if not re.fullmatch(r"[+-]?[0-9]{1,18}", text):
        raise ValueError(f"{text[:40]!r} is not a whole number")
    return int(text)


def strict_json(text: str, faults: Faults, line: int | None = None) -> Any:
    """The value of a JSON text. A key that occurs twice is left out and noted; NaN and infinities become null, noted.

    Raises ValueError when it is no JSON.
    """

    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        result: dict[str, Any] = {}
        twice: set[str] = set()
        for key, value in found:
            if key in result:
                twice.add(key)
            result[key] = value
        for key in sorted(twice):
            faults.add("repeated-key", f"the key {key[:60]!r} occurs twice: neither value is taken", line)
            del result[key]
        return result

    def constant(word: str) -> None:
        faults.add("not-finite", f"{word} stands for a number: it is missing", line)

    def floating(word: str) -> float | None:
        value = float(word)
        if math.isfinite(value):
            return value
        faults.add("not-finite", f"{word[:40]} is too large for a number: it is missing", line)
        return None

    try:
        return json.loads(text, object_pairs_hook=pairs, parse_constant=constant, parse_float=floating)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def json_number(value: object) -> Reading:
    """A JSON value as a finite number, or Missing. `true` is no number, and neither is a text."""
    if value is None:
        return Missing("null or left out in the source")
    if isinstance(value, bool) or not isinstance(value, int | float):
        return Missing(f"{str(value)[:40]!r} is not a number")
    try:
        result = float(value)
    except OverflowError:
        return Missing("too large for a number")
    return result if math.isfinite(result) else Missing("not finite")


def plain(value: object) -> str:
    """A JSON value as text for `extra`: strings as they are, everything else as JSON."""
    if isinstance(value, str):
        return value
    return json.dumps(value, sort_keys=True, ensure_ascii=False, allow_nan=False, default=str)


def slug(text: str) -> str:
    """A word that may name a cell, a board or a file: letters, digits, dot, dash, underscore."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._")[:60] or "unnamed"
