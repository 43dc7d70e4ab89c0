"""YAML files of the project, read with the line of every key and item, and checked against a JSON Schema.

A small and strict YAML: only `true` and `false` are booleans, dates and `0644` stay text, and anchors, aliases,
tags, NaN and infinity are refused. Every mistake is an `InputError` that names file and line.
"""

from __future__ import annotations

import difflib
import math
import re
import stat
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from boardbench.errors import InputError
from boardbench.schemafault import Fault, schema_faults

Key = str | int
MAX_BYTES = 1 << 20
MAX_NODES = 50_000
MAX_DEPTH = 40
MAX_FAULTS_SHOWN = 10

_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)\Z")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF|nan|NaN|NAN)\Z")
_WORDS: dict[str, object] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip
# libyaml reads the same language some ten times faster; the wheels of PyYAML carry it, a source build may not.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class Document:
    """Plain data of a YAML file, and the line of each of its keys and items (by path from the root)."""

    path: Path
    data: Any
    lines: Mapping[tuple[Key, ...], int]

    def where(self, *keys: Key) -> str:
        """`file:line` of the entry at this path, or of the nearest parent that the file has."""
        return f"{self.path}:{self._line(keys)}"

    def error(self, *keys: Key, what: str, advice: str = "") -> InputError:
        """The `InputError` for a fault at this path."""
        return InputError(what, where=self.where(*keys), advice=advice)

    def with_data(self, data: Any) -> Document:
        """The same file with other data of the same shape (after variables were put in)."""
        return replace(self, data=data)

    def check(self, schema_name: str, *, leave_out: Callable[[object], bool] = lambda _: False) -> None:
        """Raise `InputError` with every fault against `schemas/<schema_name>.schema.json`.

        `leave_out` says of a value that its own type and text are not to be judged (yet).
        """
        raise_faults(self, schema_faults(self.data, schema_name, leave_out, nearest))

    def _line(self, keys: tuple[Key, ...]) -> int:
        for length in range(len(keys), -1, -1):
            if keys[:length] in self.lines:
                return self.lines[keys[:length]]
        return 1


def load(path: Path, schema_name: str) -> Document:
    """The checked contents of a YAML file; `InputError` for anything wrong with it, all faults in one run."""
    document = parse(read_bytes(path), path)
    document.check(schema_name)
    return document


def nearest(word: str, words: Iterable[str]) -> str | None:
    """The known word that was most likely meant, or None."""
    known = list(words)
    by_folded = {known_word.casefold().replace("_", "-"): known_word for known_word in known}
    folded = word.casefold().replace("_", "-")
    found = difflib.get_close_matches(folded, list(by_folded), n=1, cutoff=0.6)
    if found:
        return by_folded[found[0]]
    longer = [known_word for known_word in known if len(folded) >= 3 and known_word.casefold().startswith(folded)]
    return longer[0] if len(longer) == 1 else None


def did_you_mean(word: str, words: Iterable[str], *, kind: str = "words") -> str:
    """Advice for an unknown word: the nearest known one, else all of them."""
    known = list(dict.fromkeys(words))
    best = nearest(word, known)
    if best is not None:
        return f"did you mean '{best}'?"
    return f"known {kind}: {', '.join(known)}" if known else f"there are no {kind} at all"


def raise_faults(document: Document, faults: list[Fault]) -> None:
    """Raise one `InputError` that holds every fault, the most telling first; nothing if there is none."""
    if not faults:
        return
    ranked = sorted(faults, key=lambda fault: (fault.rank, document._line(fault.keys)))
    first = ranked[0]
    if len(ranked) == 1:
        raise document.error(*first.keys, what=first.what, advice=first.advice)
    lines = [str(document.error(*fault.keys, what=fault.what, advice=fault.advice)) for fault in ranked]
    rest = lines[1:MAX_FAULTS_SHOWN]
    if len(lines) > MAX_FAULTS_SHOWN:
        rest.append(f"{document.path}: and {len(lines) - MAX_FAULTS_SHOWN} more")
    head = f"{first.what}; {first.advice}" if first.advice else first.what
    raise document.error(*first.keys, what="\n".join([head, *rest]))


def read_bytes(path: Path) -> bytes:
    """The bytes of a regular file of at most 1 MiB; `InputError` for everything else that a path can be."""
    where = str(path)
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise InputError("this is a folder, not a file", where=where, advice="name a YAML file")
        if not stat.S_ISREG(status.st_mode):
            raise InputError("this is not a regular file", where=where, advice="name a YAML file")
        if status.st_size > MAX_BYTES:
            raise InputError(f"the file has {status.st_size} bytes; the limit is {MAX_BYTES}", where=where)
        return path.read_bytes()
    except FileNotFoundError:
        raise InputError("no such file", where=where, advice=_other_file(path)) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"cannot be read: {reason}", where=where) from None


def _other_file(path: Path) -> str:
    try:
        there = [file.name for file in path.parent.iterdir() if file.suffix in {".yml", ".yaml"}]
    except OSError:
        return "check the path"
    best = nearest(path.name, there)
    return f"did you mean '{path.parent / best}'?" if best else "check the path"


def parse(data: bytes, path: Path) -> Document:
    """Plain data and lines of YAML bytes, not yet checked against a schema; `InputError` for whatever is not right."""
    text = _text(data, path)
    builder = _Builder(path)
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            builder.take(event)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark is not None else 1
        problem = " ".join(filter(None, [error.context, error.problem]))
        if error.context_mark is not None and error.context_mark.line + 1 != line:
            problem += f" (it begins on line {error.context_mark.line + 1})"
        raise _not_yaml(path, text, line, problem) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1 if isinstance(error.position, int) else 1
        raise InputError(
            "a character that YAML does not allow", where=f"{path}:{line}", advice="remove control characters"
        ) from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        # PyYAML's own scanner lets a few number conversions escape, such as an impossible \U escape.
        raise InputError(f"not YAML: {error}", where=str(path)) from None
    if not builder.done:
        raise InputError("the file is empty", where=str(path), advice="see the examples in the project")
    return Document(path, builder.root, builder.lines)


def _text(data: bytes, path: Path) -> str:
    if len(data) > MAX_BYTES:
        raise InputError(f"the file has {len(data)} bytes; the limit is {MAX_BYTES}", where=str(path))
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"not UTF-8 text: byte 0x{data[error.start]:02x}", where=f"{path}:{line}", advice="save the file as UTF-8"
        ) from None


def _not_yaml(path: Path, text: str, line: int, problem: str) -> InputError:
    lines = text.splitlines()
    # The scanner stops at the tab or at the next token, depending on what came before.
    for number in (line, line - 1):
        if 1 <= number <= len(lines):
            row = lines[number - 1]
            if "\t" in row[: len(row) - len(row.lstrip())]:
                return InputError(
                    "a tab is used to indent; YAML allows spaces only",
                    where=f"{path}:{number}",
                    advice="replace each tab by two spaces",
                )
    return InputError(f"not YAML: {problem}", where=f"{path}:{line}", advice="check quotes, colons and indentation")


@dataclass
class _Open:
    """A collection that is being read; `key` is the mapping's key whose value comes next."""

    value: dict[str, Any] | list[Any]
    path: tuple[Key, ...]
    key: str | None = None


class _Builder:
    """Builds plain data from parser events without recursion, so that no input can exhaust the stack."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.root: Any = None
        self.done = False
        self.lines: dict[tuple[Key, ...], int] = {}
        self._open: list[_Open] = []
        self._nodes = 0

    def take(self, event: Any) -> None:
        if isinstance(event, yaml.AliasEvent):
            raise self._error(event, f"alias '*{event.anchor}' is not allowed", "write the value out")
        if isinstance(event, yaml.DocumentStartEvent) and self.done:
            raise self._error(event, "a second YAML document starts here", "use one document a file")
        if isinstance(event, yaml.CollectionEndEvent):
            self._open.pop()
        elif isinstance(event, yaml.NodeEvent):
            self._node(event)

    def _node(self, event: Any) -> None:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise self._error(event, f"more than {MAX_NODES} values", "split the file")
        if event.anchor is not None:
            raise self._error(event, f"anchor '&{event.anchor}' is not allowed", "write the value out where it is used")
        if event.tag is not None:
            raise self._error(event, f"tag '{event.tag}' is not allowed", "use plain values")
        parent = self._open[-1] if self._open else None
        if parent is not None and isinstance(parent.value, dict) and parent.key is None:
            self._take_key(parent, event)
            return
        path = self._place(parent, event)
        if isinstance(event, yaml.ScalarEvent):
            self._put(parent, self._scalar(event))
            return
        if len(self._open) >= MAX_DEPTH:
            raise self._error(event, f"nested deeper than {MAX_DEPTH}", "make the file flatter")
        value: dict[str, Any] | list[Any] = {} if isinstance(event, yaml.MappingStartEvent) else []
        self._put(parent, value)
        self._open.append(_Open(value, path))

    def _take_key(self, parent: _Open, event: Any) -> None:
        if not isinstance(event, yaml.ScalarEvent):
            raise self._error(event, "a key must be a word", "quote it, or check the indentation")
        key = self._checked(event)
        if key in parent.value:
            first = self.lines[(*parent.path, key)]
            raise self._error(event, f"key '{key}' is here twice", f"it is also on line {first}")
        parent.key = key
        self.lines[(*parent.path, key)] = _line_of(event)

    def _place(self, parent: _Open | None, event: Any) -> tuple[Key, ...]:
        if parent is None:
            path: tuple[Key, ...] = ()
        elif isinstance(parent.value, list):
            path = (*parent.path, len(parent.value))
        else:
            return (*parent.path, parent.key or "")
        self.lines[path] = _line_of(event)
        return path

    def _put(self, parent: _Open | None, value: Any) -> None:
        if parent is None:
            self.root, self.done = value, True
        elif isinstance(parent.value, list):
            parent.value.append(value)
        else:
            parent.value[parent.key or ""] = value
            parent.key = None

    def _scalar(self, event: Any) -> object:
        text = self._checked(event)
        if event.style:  # quoted or a block: text, whatever it looks like
            return text
        if text in _WORDS:
            return _WORDS[text]
        if _INTEGER.match(text) and len(text) < 20:
            return int(text)
        if _INTEGER.match(text) or _NOT_FINITE.match(text):
            raise self._error(event, f"'{text[:40]}' is not a number that can be used", "write a finite number")
        if _FLOAT.match(text):
            number = float(text)
            if not math.isfinite(number):
                raise self._error(event, f"'{text[:40]}' is too large a number", "write a finite number")
            return number
        return text

    def _checked(self, event: Any) -> str:
        text: str = event.value
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise self._error(event, "half of a surrogate pair is not a character", "write the character itself")
        return text

    def _error(self, event: Any, what: str, advice: str) -> InputError:
        return InputError(what, where=f"{self.path}:{_line_of(event)}", advice=advice)


def _line_of(event: Any) -> int:
    line: int = event.start_mark.line
    return line + 1
