"""`key=value` inventories in sections, as the NPU rig's collector prints them: facts, with what could not be read."""

from __future__ import annotations

import re
from collections.abc import Iterable

from boardbench.imports.model import Fact, FactValue, Missing, Parsed
from boardbench.imports.text import Faults, Line

_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*")
_SECTION = re.compile(r"#\s*---\s*(.*?)\s*---\s*")
_NOT_READ = {"UNKNOWN": "the collector could not read it", "<redacted>": "taken out of the source", "": "blank"}
_NUMBER = re.compile(r"-?[0-9]{1,15}(\.[0-9]+)?")
_UNPRIVILEGED = ("rknpu_version", "rknpu_load")


def pairs_of(lines: Iterable[Line], faults: Faults) -> dict[str, tuple[str, int]]:
    """Keys with value and line; a key that occurs twice has none."""
    found: dict[str, tuple[str, int]] = {}
    twice: set[str] = set()
    for line in faults.records(lines):
        text = line.text.strip()
        if not text or text.startswith("#"):
            continue
        key, separator, value = text.partition("=")
        if not separator or not _KEY.fullmatch(key.strip()):
            faults.add("malformed-file", "is no key=value", line.number)
            continue
        if key in found:
            twice.add(key)
            faults.add("repeated-key", f"the key {key[:60]!r} occurs twice: neither value is taken", line.number)
        found[key.strip()] = (value.strip(), line.number)
    return {key: value for key, value in found.items() if key not in twice}


def value_of(key: str, text: str) -> FactValue:
    """The value of a key: missing, a number where the key has a unit, else text."""
    if text in _NOT_READ:
        return Missing(_NOT_READ[text])
    if key.endswith("_speed") and text == "-1":
        return Missing("the link is down: it has no speed")
    number = _NUMBER.fullmatch(text) is not None
    if number and re.search(r"_(khz|kb|c|v|s|512b|count|mtu|speed|online)$", key):
        value = float(text)
        if key.endswith(("_temp_c", "_voltage_v")) and value == 0.0:
            return Missing("0 in the source: a read that failed")
        return value
    return text


def parse(lines: Iterable[Line], name: str) -> Parsed:
    """The facts of one board; thermal zones by their type, not by their number."""
    faults = Faults(name)
    pairs = pairs_of(lines, faults)
    board = pairs.get("hostname", ("", 0))[0]
    facts = []
    for key, (text, line) in pairs.items():
        zone = re.fullmatch(r"thermal_thermal_zone(\d+)_temp_c", key)
        label = key
        if zone:
            kind = pairs.get(f"thermal_thermal_zone{zone[1]}_type", ("", 0))[0]
            label = f"{kind}_celsius" if kind and kind != "UNKNOWN" else f"thermal_zone{zone[1]}_celsius"
        facts.append(Fact(f"{board}.{label}" if board else label, value_of(key, text), f"{name}:{line}"))
    blind = [key for key in _UNPRIVILEGED if pairs.get(key, ("", 0))[0] == "UNKNOWN"]
    if blind:
        faults.add(
            "unprivileged-read",
            f"{', '.join(blind)}: not read (needs root, or no such file); that is not 'no NPU' and not 0 %",
        )
    return Parsed(facts=tuple(facts), faults=faults.done())
