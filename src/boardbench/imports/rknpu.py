"""Texts of the RKNPU driver's debugfs: version, load of each core, clock, voltage, power.

A load above 100 % is a counter that overflowed: missing, never clamped. "Permission denied" says nothing about the NPU.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from boardbench.imports.model import Fact, FactValue, Missing, Parsed
from boardbench.imports.text import LONGEST_TEXT, MOST_RECORDS, Faults, Line

_VERSION = re.compile(r"RKNPU driver: v(\d{1,4}\.\d{1,4}\.\d{1,4})")
_LOAD = re.compile(r"NPU load:\s*(.*)")
_CORE = re.compile(r"\s*(?:Core(\d{1,2}):)?\s*(\d{1,12})%\s*,?")
_ERROR = re.compile(r"cat: (\S+): (Permission denied|No such file or directory)")
UNITS = {"freq": "npu_cur_hz", "volt": "npu_microvolts", "delayms": "npu_load_window_ms"}


@dataclass(frozen=True)
class Value:
    """One reading and what is wrong with it: a reason code and a sentence, or nothing."""

    name: str
    value: FactValue
    code: str = ""
    why: str = ""


def looks_like(text: str) -> bool:
    """Whether a line is one of these texts."""
    body = text.rpartition("\t")[2]
    return bool(_VERSION.search(body) or _LOAD.search(body) or "/debug/rknpu/" in body)


def readings(text: str, what: str = "") -> tuple[Value, ...]:
    """The readings in one text; `what` is the file's name where it is known. None that is known: empty."""
    text = text.replace("\\n", "\n").strip()
    kind = re.split(r"[-(]", what)[0]
    if (error := _ERROR.search(text)) is not None:
        name = f"rknpu_{error[1].rpartition('/')[2]}"
        denied = error[2] == "Permission denied"
        code = "unprivileged-read" if denied else "failed-read"
        why = "needs root: that is not 'no NPU' and not 0 %" if denied else "this kernel has no such file"
        return (Value(name, Missing(f"{error[2]}: {why}"), code, f"{error[1]}: {error[2]}: {why}"),)
    if (version := _VERSION.fullmatch(text)) is not None:
        return (Value("rknpu_version", version[1]),)
    if (load := _LOAD.fullmatch(text)) is not None:
        return _loads(load[1])
    if kind == "power" and text in ("on", "off"):
        return (Value("npu_power", text),)
    if kind in UNITS and re.fullmatch(r"\d{1,12}", text):
        return (Value(UNITS[kind], float(text)),)
    return ()


def _loads(text: str) -> tuple[Value, ...]:
    values: list[Value] = []
    at = 0
    while at < len(text.rstrip()):
        match = _CORE.match(text, at)
        if match is None:
            return (Value("npu_load_percent", Missing("is no load"), "malformed-file", f"{text[:60]!r} is no load"),)
        at = match.end()
        name = "npu_load_percent" if match[1] is None else f"npu_core{match[1]}_load_percent"
        percent = float(match[2])
        if percent <= 100:
            values.append(Value(name, percent))
        else:
            why = f"{name} reads {match[2]} %: the driver's counter overflowed"
            values.append(Value(name, Missing(why), "failed-read", why))
    return tuple(values)


def parse(lines: Iterable[Line], name: str, board: str | None) -> Parsed:
    """Facts of a file of such texts, each alone or behind `what<TAB>`."""
    faults = Faults(name)
    facts = []
    for line in faults.usable(lines, most=MOST_RECORDS, longest=LONGEST_TEXT):
        if not line.text.strip() or line.text.startswith("#"):
            continue
        what, _, text = line.text.rpartition("\t")
        found = readings(text, what)
        if not found:
            faults.add("malformed-file", "is no text of the RKNPU driver that is known", line.number)
        for value in found:
            if value.code:
                faults.add(value.code, value.why, line.number)
            label = ".".join(part for part in (board or "", what, value.name) if part)
            facts.append(Fact(label, value.value, f"{name}:{line.number}"))
    return Parsed(facts=tuple(facts), faults=faults.done())
